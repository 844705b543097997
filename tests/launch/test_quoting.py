"""Quoting: what is written is what the reader of that language gets."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import SpecError
from envbuild.launch.quoting import (
    assignment,
    edf_string,
    pod_list,
    sbatch_line,
    shell_command,
    shell_lines,
    toml_string,
    yaml_string,
)
from tests.support.launching import edf_of, make_plan, torch_image, written

pytestmark = pytest.mark.unit

HARD = "'\"`$\\#!%*?[]{}()<>|&;~ \t\n=,:-"
CPU = torch_image(target="cpu", layers=("python-packages",), versions={"numpy": "2"}, env={})
WORD = st.text(st.one_of(st.sampled_from(HARD), st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
LINE = WORD.filter(lambda text: not set(text) & set("\n\r"))


def shell(script: str) -> bytes:
    return subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout


@given(st.lists(WORD, min_size=1, max_size=4))
def test_words_of_a_shell(words: list[str]) -> None:
    expected = b"".join(word.encode() + b"\0" for word in words)
    assert shell(f"printf '%s\\0' {shell_command(words)}") == expected
    assert shell(shell_lines(["printf", "%s\\0", *words])) == expected


@given(WORD)
def test_a_variable_of_a_shell(value: str) -> None:
    assert shell(f'{assignment("V", value)}; printf %s "$V"') == value.encode()


@given(WORD)
def test_strings_of_toml(value: str) -> None:
    assert tomllib.loads(f"a = {toml_string(value)}") == {"a": value}


@given(WORD)
def test_a_dollar_expands_nothing_in_an_edf(value: str) -> None:
    assert tomllib.loads(f"a = {edf_string(value)}")["a"].replace("$$", "$") == value


@given(st.lists(WORD, max_size=4))
def test_strings_of_yaml(values: list[str]) -> None:
    assert [yaml.safe_load(yaml_string(value)) for value in values] == values


@given(st.lists(WORD | st.text("$()A"), max_size=4))
def test_strings_of_a_pod_expand_nothing(values: list[str]) -> None:
    """Kubernetes replaces ``$$`` and ``$(NAME)`` (its package third_party/forked/golang/expansion)."""
    read = yaml.safe_load(f"a: {pod_list(values)}")["a"]
    assert [re.sub(r"\$\$|\$\(.*?\)", lambda found: "$" if found[0] == "$$" else "?", text) for text in read] == values


def sbatch_value(line: str) -> str:
    """Return the value of an #SBATCH line as sbatch reads it. (tests/launch/test_slurm.py compares it with sbatch.)"""
    value, quote, escaped = "", "", False
    for char in line.partition("=")[2]:
        if char in " \t\v\f" and not quote:
            break
        if escaped:
            value, escaped = value + char, False
        elif char == "\\":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif char == "#" and not quote:
            break
        else:
            value += char
    return value


@given(LINE)
def test_lines_of_sbatch(value: str) -> None:
    line = sbatch_line(f"--job-name={value}")
    assert "\n" not in line
    assert sbatch_value(line) == value


def test_the_reference_of_a_registry_in_an_sbatch_line() -> None:
    assert sbatch_line("--container-image=nvcr.io#nvidia/pytorch:23.02-py3") == (
        "#SBATCH --container-image=nvcr.io\\#nvidia/pytorch:23.02-py3"
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\0"])
def test_a_line_end_in_an_sbatch_line_is_refused(end: str) -> None:
    with pytest.raises(SpecError, match="cannot hold a line end"):
        sbatch_line(f"--comment=a{end}b")


@pytest.mark.parametrize("form", ["srun", "sbatch", "edf"])
@given(words=st.lists(WORD, min_size=1, max_size=3), value=WORD, name=LINE)
def test_words_variables_and_names_survive_a_step(form: str, words: list[str], value: str, name: str) -> None:
    """The script is run by a shell in which srun is a function that prints its arguments and a variable."""
    plan = make_plan(["prog", *words], form=form, env={"V": value}, name=name, image=CPU)
    text = written(plan, form)
    if form == "edf":
        assert tomllib.loads(edf_of(text))["env"]["V"] == value.replace("$", "$$")
        text = "(\n" + text.partition("\nEND_OF_EDF\n")[2]
    assert not re.search("^#SBATCH (?!--[a-z-]+(=|$))", text, re.MULTILINE)
    program = 'srun() { printf \'%s\\0\' "$V" "$@"; }; export SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n1 SLURM_NTASKS=1\n'
    script = program + text.replace("[ -r /fs/images/net.sqsh ] ||", "true ||")
    found = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"})
    listed = found.stdout.split(b"\0")[:-1]
    assert listed[-len(words) - 1 :] == [b"prog", *(word.encode() for word in words)]
    if form != "edf":
        assert listed[0] == value.encode()


@given(st.lists(WORD, min_size=1, max_size=3).filter(lambda words: words[0] and "=" not in words[0]), WORD)
def test_command_and_variables_survive_a_docker_line(words: list[str], value: str) -> None:
    """The line is run by a shell in which docker is a function that prints its arguments."""
    plan = make_plan(["prog", *words], form="docker", env={"V": value}, mpi=False, image=CPU)
    script = "docker() { printf '%s\\0' \"$@\"; }\n" + written(plan, "docker")
    found = shell(script).split(b"\0")[:-1]
    assert f"--env=V={value}".encode() in found
    assert found[-len(words) - 1 :] == [b"prog", *(word.encode() for word in words)]

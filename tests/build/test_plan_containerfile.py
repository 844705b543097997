"""The Containerfile: its whole text for a small plan, the same in every thread, and no value changed by its quoting."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.build.plan.containerfile import containerfile, image_layers
from envbuild.build.plan.units import Input, Plan, Unit
from envbuild.build.steps import Step
from envbuild.core.errors import SpecError
from envbuild.oci.config import ImageConfig
from tests.support.small_plan import small_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "small.Containerfile"


@pytest.mark.golden
def test_the_text_of_a_small_plan(update_golden: bool) -> None:
    text = containerfile(small_plan())
    if update_golden:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.unit
def test_twice_and_in_threads_it_is_the_same() -> None:
    plan = small_plan()
    with ThreadPoolExecutor(6) as pool:
        texts = set(pool.map(lambda _: containerfile(plan), range(24)))
    assert texts == {containerfile(plan)}


@pytest.mark.unit
def test_image_layers_names_the_unit_of_each_layer() -> None:
    names = [*["base"] * 3, "debian", *["ucx"] * 2, *["venv"] * 2, "glue"]  # COPY, owner and mode
    assert image_layers(small_plan()) == tuple(names)


WORD = re.compile(r'([A-Za-z_.]+)="((?:[^"\\]|\\.)*)"(?: |$)')


def read(line: str) -> dict[str, str]:
    """NAME="value" words as builders read them: in double quotes a backslash takes the meaning of ``"``, ``$`` and
    itself (Dockerfile reference, "Environment replacement" and "Escape")."""
    found: dict[str, str] = {}
    position = 0
    while position < len(line):
        match = WORD.match(line, position)
        assert match, line[position:]
        value = match[2]
        assert not re.search(r"(?<!\\)(?:\\\\)*\$", value), f"a variable would be replaced in {value}"
        found[match[1]] = re.sub(r'\\([\\"$])', r"\1", value)
        position = match.end()
    return found


def joined(text: str) -> list[str]:
    """Return the instructions of a text: continued lines joined, comments dropped."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    return [re.sub(r" +\\ *\n +", " ", line) for line in re.split(r"(?<!\\)\n", "\n".join(lines)) if line.strip()]


VALUES = st.dictionaries(
    st.from_regex(r"[A-Za-z_]{1,8}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\n\r\0")),
    min_size=1,
    max_size=4,
)


@pytest.mark.unit
@given(VALUES, VALUES)
def test_every_value_of_env_and_label_survives(env: dict[str, str], labels: dict[str, str]) -> None:
    plan = Plan("x", (Unit("base", "base", (Step("true"),)),), ImageConfig(env=env, labels=labels), 0)
    instructions = joined(containerfile(plan))
    assert read(next(line for line in instructions[::-1] if line.startswith("ENV "))[4:]) == env
    assert read(next(line for line in instructions if line.startswith("LABEL "))[6:]) == labels


@pytest.mark.unit
@pytest.mark.parametrize("value", ["a\nb", "a\r", "\n"])
def test_a_line_break_in_a_value_is_refused(value: str) -> None:
    config = ImageConfig(env={"A": value})
    with pytest.raises(SpecError, match="line break"):
        containerfile(Plan("x", (Unit("base", "base", ()),), config, 0))


@pytest.mark.unit
@pytest.mark.parametrize("name", ["A x\nRUN touch /x", "A\rB", "A B", 'A"', "A$B", "A\\", ""])
def test_a_name_that_would_be_another_instruction_is_refused(name: str) -> None:
    """A base image may have such a variable."""
    for config in (ImageConfig(env={name: "1"}), ImageConfig(labels={name: "1"})):
        with pytest.raises(SpecError, match="a variable or label is named"):
            containerfile(Plan("x", (Unit("base", "base", ()),), config, 0))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("make && \\\n    make install", False),
        ("\nmake\n", False),
        ("make\nmake install", True),
        ("make && \\\n    # and then\n    make install", True),
        ("cat > x <<EOF\nhello\nEOF", True),
    ],
)
def test_a_command_of_many_lines_is_a_script_of_the_context(command: str, script: bool) -> None:
    plan = Plan("x", (Unit("base", "base", (Step(command),)),), ImageConfig(), 0)
    instructions = joined(containerfile(plan))
    assert any("source=base/step-1.sh" in line for line in instructions) is script
    assert all(re.match(r"(FROM|ENV|ARG|RUN|WORKDIR|CMD) ", line) for line in instructions)


@pytest.mark.unit
def test_the_content_of_a_mount_changes_the_text() -> None:
    """buildah's cache compares texts and does not look into mounts."""

    def text(content: str) -> str:
        item = Input("files", "text", texts=(("file", content),))
        return containerfile(Plan("x", (Unit("base", "base", (Step("true"),), inputs=(item,)),), ImageConfig(), 0))

    assert text("one") == text("one")
    assert text("one") != text("two")

"""``envbuild launch``: its options, its answers, its exit codes, and the start of a job."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from envbuild.cli.launch_job import parse_hosts, parse_variables, parse_words
from envbuild.core.errors import SpecError
from envbuild.launch.launch import Launch, load_form
from envbuild.launch.submit import submit
from tests.support.command import envbuild
from tests.support.launching import make_plan, write_squashfs

pytestmark = pytest.mark.unit

RECORD = {"image": "net", "target": "azure-ndv4", "order": ["nccl", "torch"], "versions": {"torch": "2.15.0"}}
SITE = 'schema: 1\nslurm: {version: "23.11.4", pyxis: "0.20.0", enroot: "4.0.1", pmix: [pmix]}\npartition: gpu\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(SITE)
    write_squashfs(tmp_path, {"etc/envbuild/resolution.json": json.dumps(RECORD)})
    return tmp_path


def launch(project: Path, *words: str, path: str = "/nonexistent") -> CompletedProcess[str]:
    """Run the command where no client is installed, but those in `path`."""
    return envbuild("launch", str(project / "net.sqsh"), *words, cwd=project, PATH=path)


def test_the_text_is_on_stdout(project: Path) -> None:
    done = launch(project, "-N", "2", "--as", "sbatch", "--time", "01:00:00", "--", "python", "train.py", "--as", "x y")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert "#SBATCH --time=01:00:00" in lines
    assert "#SBATCH --partition=gpu" in lines
    assert lines[-1].endswith(" sh python train.py --as 'x y'")


def test_json(project: Path) -> None:
    done = launch(project, "--json", "-e", "NCCL_DEBUG=INFO", "--", "train.py")
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["as"], answer["image"], answer["target"]) == (1, "srun", "net", "azure-ndv4")
    assert {"name": "NCCL_DEBUG", "value": "INFO", "owner": "command line", "because": "", "replaces": []} in answer[
        "env"
    ]
    assert {"of": "job", "text": "--partition=gpu", "owner": "site", "because": "partition of the site"} in answer[
        "options"
    ]
    assert answer["text"].startswith("export CUDA_DEVICE_ORDER=PCI_BUS_ID\n")


def test_explain_prints_owner_and_reason_of_everything(project: Path) -> None:
    done = launch(project, "--explain", "-e", "NCCL_NET=Socket", "--because", "no fabric today", "--", "train.py")
    text = done.stdout
    assert "  NCCL_NET=Socket\n    command line: no fabric today\n    instead of IB of the launch\n" in text
    answer = json.loads(launch(project, "--json", "--", "train.py").stdout)
    for item in answer["env"]:
        assert f"    {item['owner']}: {item['because']}" in text or item["name"] == "NCCL_NET"
    for item in answer["options"]:
        assert f"  {item['text']}\n    {item['owner']}: {item['because']}" in text
        assert item["because"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--as", "sbtch", "--", "x"], "error: --as sbtch is not known", "hint: did you mean 'sbatch'?"),
        ([], "error: no command to start", "hint: envbuild launch net -- CMD"),
        (["-e", "A", "--", "x"], "error: -e A: no value", "hint: type -e NAME=VALUE"),
        (["-e", "1A=2", "--", "x"], "error: -e: '1A' is not a variable name", "hint: type -e NAME=VALUE"),
        (["-e", "RANK=2", "--", "x"], "error: -e: 'RANK' has another value on each rank", "hint: type -e NAME=VALUE"),
        (["--tasks-per-node", "9", "--", "x"], "error: --tasks-per-node 9: the job has 8 GPUs on a node", "hint: type"),
        (
            ["-e", "NCCL_NET=Socket", "--", "x"],
            "error: NCCL_NET: the command line sets 'Socket'",
            "hint: give the reason",
        ),
        (["--mount", "data", "--", "x"], "error: --mount must be a mount", ""),
        (
            ["--as", "docker", "-N", "2", "--", "x"],
            "error: --as docker with 2 nodes needs their names",
            "hint: type --hosts",
        ),
        (["--hosts", "a", "--", "x"], "error: --hosts has no meaning with --as srun", "hint: leave it out"),
        (
            ["--as", "trainjob", "--", "x"],
            "error: Kubernetes pulls images from a registry",
            "hint: name an image of the project, or docker:",
        ),
        (["--compile", "--", "x"], "error: --compile: target 'azure-ndv4' has no compile step", "hint: leave out"),
        (["--target", "no", "--", "x"], "error: no target is called 'no'", "hint: "),
        (
            ["--as", "docker", "-N2", "--hosts=a,b", "--submit", "x"],
            "error: Docker starts no squashfs file",
            "docker://NAME:TAG",
        ),
    ],
)
def test_mistakes_end_with_2(words: list[str], message: str, hint: str, project: Path) -> None:
    done = launch(project, *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_is_passed_to_its_program(project: Path) -> None:
    """A program in place of sbatch prints its input."""
    (project / "bin").mkdir()
    (project / "bin/sbatch").write_text("#!/bin/sh\ncat\nexit 3\n")
    (project / "bin/sbatch").chmod(0o755)
    path = f"{project}/bin:/usr/bin:/bin"
    printed = launch(project, "--as", "sbatch", "--", "train.py", path=path)
    started = launch(project, "--as", "sbatch", "--submit", "--", "train.py", path=path)
    assert started.stdout == printed.stdout
    assert started.returncode == 3


def test_a_program_that_is_missing(project: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = launch(project, "--as", "sbatch", "--submit", "--", "x", path=str(tmp_path / "none"))
    assert done.returncode == 5
    assert "error: sbatch is not installed here" in done.stderr


def test_a_job_that_is_typed_on_several_nodes_is_not_started() -> None:
    plan = make_plan(("python", "train.py"), form="docker", nodes=2, hosts=("a", "b"))
    with pytest.raises(SpecError, match="--submit cannot start this: each command is typed on its own node"):
        submit(Launch(plan, load_form("docker").write(plan), slurm=False))


def test_variables_of_the_command_line() -> None:
    assert parse_variables(["A=1=2", "B="]) == {"A": "1=2", "B": ""}
    with pytest.raises(SpecError, match="-e A is given twice"):
        parse_variables(["A=1", "A=2"])


def test_hosts_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# mine\nn1\nn2 slots=8\n\n")
    assert parse_hosts("", str(file)) == parse_hosts("n1,n2", "") == ("n1", "n2")
    with pytest.raises(SpecError, match="both name the nodes"):
        parse_hosts("a", str(file))
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        parse_hosts("", str(tmp_path / "none"))
    for bad in ("a;b", "-x", "$(id)"):
        with pytest.raises(SpecError, match="is not the name of a host"):
            parse_hosts(bad, "")
    with pytest.raises(SpecError, match="host 'a' is named twice"):
        parse_hosts("a,a", "")


def test_control_characters_are_refused() -> None:
    with pytest.raises(SpecError, match="contains a control character"):
        parse_words("--name", "a\nb")

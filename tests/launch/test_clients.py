"""Clients: a site states their versions, or programs here are queried; no option is printed that they do not have."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.launch.client_queries import ClientQueries
from envbuild.launch.clients import Clients, check_partition, find_clients, older
from envbuild.launch.model import LaunchImage
from envbuild.launch.programs import may_be_mpi
from envbuild.net.slurm_site import NodeSettings, Slurm
from tests.support.launching import ENV, make_plan, option_values, site, torch_image, write_launch

pytestmark = pytest.mark.unit

NCCL_TEST = ("/opt/nccl-tests/build/all_reduce_perf", "-b", "8")
# srun --mpi=list of Slurm 22.05.8 and of 20.11, srun --help of pyxis 0.24.0 (cut).
LIST_22 = (
    "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmix\n\tpmi2\nspecific pmix plugin versions available: pmix_v4"
)
LIST_20 = "srun: MPI types are...\nsrun: cray_shasta\nsrun: none\nsrun: pmi2\n"
HELP_24 = "--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n--container-env=NAME\n--container-unshare=NS\n"


def machine(**answers: str) -> Callable[..., str]:
    return lambda *command: answers.get(command[-1].lstrip("-").replace("=", "_"), "")


def test_the_machine_is_queried_for_what_the_site_leaves_out() -> None:
    ask = machine(version="slurm 22.05.8", help=HELP_24, mpi_list=LIST_22)
    found = find_clients(Slurm(), ask)
    assert found.slurm == Slurm(version="22.05.8", pyxis="0.24.0", enroot="22.05.8", pmix=("pmix", "pmix_v4"))
    assert find_clients(Slurm(pyxis="0.11.1", pmix=()), ask).slurm.pyxis == "0.11.1"


def test_what_the_site_states_is_not_queried() -> None:
    def ask(*command: str) -> str:
        raise AssertionError(command)

    stated = Slurm(version="20.11.7", pyxis="0.11.1", enroot="3.4.0", pmix=("pmix",))
    assert find_clients(stated, ask) == Clients(stated)


def test_a_machine_without_programs_answers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_clients(Slurm(), ClientQueries()) == Clients(Slurm())


def test_a_program_that_fails_shows_nothing_about_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without slurm.conf srun prints an error, with pyxis and without."""
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\necho 'srun: fatal: Could not establish a configuration source' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reporter = SilentReporter()
    found = find_clients(Slurm(enroot="4.0.1"), ClientQueries(reporter))
    assert (found.slurm.pmix, found.without_pyxis) == (None, False)
    (line,) = reporter.lines
    assert line.startswith("'srun --version' failed: srun: fatal: Could not establish a configuration source; slurm: {")


def test_a_program_that_does_not_answer_is_reported_and_queried_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """srun and sinfo wait for the controller of Slurm, which may be down."""
    program = tmp_path / "srun"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/count\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reporter = SilentReporter()
    assert find_clients(Slurm(enroot="4.0.1"), ClientQueries(reporter, limit=1, patience=0.2)).slurm.version == ""
    assert (tmp_path / "count").read_text() == "\n"
    assert reporter.lines == [
        "waiting for 'srun --version', at most 1 s",
        "srun did not answer within 1 s, and is not queried again: "
        "slurm: {version: …, pyxis: …, enroot: …, pmix: […]} in site.yaml states those of srun and enroot",
    ]


def test_slurm_without_pyxis_is_refused() -> None:
    found = find_clients(Slurm(), machine(help="--nodes=N\n", version="slurm 22.05.8"))
    with pytest.raises(SpecError, match="Slurm here has no pyxis"):
        found.require_pyxis()
    find_clients(Slurm(pyxis="0.20.0"), machine(help="--nodes=N\n")).require_pyxis()


@pytest.mark.parametrize(
    ("version", "has"), [("0.11.1", False), ("0.14.0", False), ("0.15.0", True), ("0.24.0", True), ("", False)]
)
def test_container_env_is_printed_from_pyxis_0_15_on(version: str, has: bool) -> None:
    image = torch_image(env={**ENV, "NCCL_NET": "Socket"})
    plan = make_plan(NCCL_TEST, image=image, at=site(slurm=Slurm(pyxis=version, pmix=("pmix",))))
    assert plan.beats_image == ("NCCL_NET",)
    assert option_values(plan).get("--container-env") == ("NCCL_NET" if has else None)
    text = write_launch(NCCL_TEST, image=image, at=site(slurm=Slurm(pyxis=version, pmix=("pmix",))))
    assert ("env NCCL_NET=IB /opt/nccl-tests" in text) != has


@pytest.mark.parametrize("release", ["0.11.1", "0.20.0"])
def test_the_address_of_the_ranks_beats_that_of_an_image(release: str) -> None:
    """Third-party images may define MASTER_ADDR; the script is run by a shell in which srun starts its last words with
    the image's variables, as pyxis does."""
    image = torch_image(env={"MASTER_ADDR": "localhost", "PYTORCH_VERSION": "2"})
    at = site(slurm=Slurm(pyxis=release))
    text = write_launch(("sh", "-c", "echo $MASTER_ADDR"), form="sbatch", image=image, at=at, nodes=2)
    program = """
    scontrol() { echo n7; }
    srun() {
        case $* in *--container-env=*MASTER_ADDR*) ;; *) export MASTER_ADDR=localhost ;; esac
        while [ "${1#--}" != "$1" ]; do shift; done; "$@"
    }
    export SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n[7-8] SLURM_STEP_NODELIST=n[7-8]
    export SLURM_NTASKS=16 SLURM_PROCID=0 SLURM_LOCALID=0
    """
    script = program + text.replace("[ -r /fs/images/net.sqsh ] ||", "true ||")
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout == "n7\n"


@pytest.mark.parametrize("form", ["srun", "sbatch", "torchrun"])
def test_the_oldest_reference_clients_get_only_options_that_they_have(form: str) -> None:
    """pyxis 0.11.1 (its tag) and srun of Slurm 20.11."""
    known = {
        "--container-image", "--container-mounts", "--no-container-mount-home", "--no-container-remap-root",
        "--kill-on-bad-exit", "--export", "--cpus-per-task", "--cpu-bind", "--mpi", "--nodes", "--ntasks",
        "--ntasks-per-node", "--exclusive", "--gpus-per-node", "--mem", "--partition",
    }  # fmt: skip
    azure = Slurm(version="20.11.7", pyxis="0.11.1", enroot="3.4.0", pmix=("pmix", "pmix_v3"))
    plan = make_plan(form=form, at=site(slurm=azure, nodes=NodeSettings(partition="hpc")), nodes=2)
    assert set(option_values(plan)) <= known


def test_slurm_before_19_05_has_gres() -> None:
    found = option_values(make_plan(at=site(slurm=Slurm(version="18.08.8", pyxis="0.4.0"))))
    assert found["--gres"] == "gpu:8"
    assert "--gpus-per-node" not in found


def test_mpi_needs_a_plugin_of_slurm() -> None:
    with pytest.raises(SpecError, match="Slurm has no PMIx plugin"):
        make_plan(NCCL_TEST, at=site(slurm=Slurm(pmix=())))
    assert option_values(make_plan(NCCL_TEST, at=site(slurm=Slurm(pmix=("pmix_v3", "pmix_v4")))))["--mpi"] == "pmix_v4"
    unknown = make_plan(NCCL_TEST, at=site(slurm=Slurm()))
    assert option_values(unknown)["--mpi"] == "pmix"
    assert any("whether Slurm has PMIx is not known" in line for line in unknown.warnings)
    assert find_clients(Slurm(), machine(mpi_list=LIST_20)).slurm.pmix == ()


@pytest.mark.parametrize(("enroot", "fine"), [("3.4.0", False), ("4.0.0", True), ("", True)])
def test_old_enroot_does_not_pull_by_digest(enroot: str, fine: bool) -> None:
    image = torch_image(squashfs="", reference=f"docker://registry.example/team/net@sha256:{'0' * 64}")
    at = site(slurm=Slurm(enroot=enroot, pyxis="0.20.0"))
    if fine:
        assert option_values(make_plan(image=image, at=at))["--container-image"].startswith(
            "registry.example#team/net@"
        )
    else:
        with pytest.raises(SpecError, match=r"enroot 3\.4\.0 does not pull by digest"):
            make_plan(image=image, at=at)


def test_a_partition_that_the_cluster_does_not_have() -> None:
    ask = machine(**{"format_%P": "debug*\ngpu\n"})
    check_partition("gpu", ask)
    check_partition("", ask)
    check_partition("gpu,debug", ask)
    with pytest.raises(SpecError, match="this cluster has no partition 'hpc'"):
        check_partition("gpu,hpc", ask)
    with pytest.raises(SpecError) as caught:
        check_partition("hpc", ask)
    assert str(caught.value) == (
        "this cluster has no partition 'hpc'\n"
        "hint: its partitions are: debug, gpu; write partition: NAME into site.yaml, or type --partition"
    )
    with pytest.raises(SpecError, match="no partition is named, and this cluster has no default one"):
        check_partition("", machine(**{"format_%P": "debug\ngpu\n"}))
    check_partition("hpc", machine())  # no Slurm here
    check_partition("hpc", machine(**{"format_%P": "slurm_load_partitions: Unable to contact slurm controller"}))


def test_versions_are_compared_as_numbers() -> None:
    assert older("0.9.0", "0.15.0")
    assert not older("0.15", "0.15")


@pytest.mark.parametrize(("command", "doubted"), [
    (["./a.out"], True), (["env", "A=1", "/opt/app/solver", "-x"], True), (["hostname"], False),
    (["./train.py"], False), (["ucx_perftest"], False),
])  # fmt: skip
def test_a_program_of_its_own_in_an_image_for_mpi_is_doubted(command: list[str], doubted: bool) -> None:
    image = LaunchImage("mine", "cpu", "amd64", {}, {}, ("openmpi",))
    assert may_be_mpi(command, image) == doubted
    assert not may_be_mpi(command, LaunchImage("mine", "cpu", "amd64", {}, {}, ("openmpi", "torch")))

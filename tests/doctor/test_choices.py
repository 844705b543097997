"""Checks that a site leaves out, and failures that it lets drain a node."""

from __future__ import annotations

import pytest

from envbuild.doctor.examination import examine, unknown_checks
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.main import main
from envbuild.doctor.model import NOT_RUN
from tests.support.node_files import NEED, Node, result_of

pytestmark = pytest.mark.unit


def test_a_check_that_is_left_out_is_not_run_and_drains_no_node(node: Node) -> None:
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    whole = node.examine()
    assert health_lines(whole, "nhc")
    found = examine(node.host(), NEED, ["rdma-ports", "nvlink"])
    result = result_of(found, "rdma-ports")
    assert (result.status, result.group, result_of(found, "nvlink").status) == (NOT_RUN, "network", NOT_RUN)
    assert health_lines(found, "nhc") == [] and len(found.results) == len(whole.results)


def test_hardware_alone_can_drain(node: Node) -> None:
    node.program("srun", "echo '  --help'; echo '  --usage'")
    (node.root / "dev/infiniband/uverbs1").unlink()
    assert health_lines(node.examine(), "healthcheck")
    assert health_lines(node.examine(), "healthcheck", only_hardware=True) == []
    node.write_port("mlx5_1", state="1: DOWN", physical="2: Polling")
    lines = health_lines(node.examine(), "healthcheck", only_hardware=True)
    assert [line.split(":")[0] for line in lines[:-1]] == ["rdma-ports"]
    assert "verbs-devices" not in lines[-1]


def test_names_of_checks_are_those_of_reports(node: Node) -> None:
    assert unknown_checks(["files", *(result.check for result in node.examine().results)]) == []
    assert unknown_checks(["rdma_ports"]) == ["rdma_ports"]


@pytest.mark.parametrize("options", [["--without", "rdma_ports"], ["--only-hardware"]])
def test_the_single_file_refuses_the_same(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(options, {}, "0")
    assert (error.value.code, options[0] in capsys.readouterr().err) == (2, True)

"""Files that do not answer: a pass ends, and names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from envbuild.doctor import file_reader
from envbuild.doctor.facts import storage
from envbuild.doctor.file_reader import FileReader, NoAnswerError
from envbuild.doctor.health_check import health_lines
from envbuild.doctor.host import Host, device_of
from envbuild.doctor.model import ADMINISTRATOR, HARDWARE, MINOR, PASS
from envbuild.doctor.silent_files import unanswered
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "LIMIT", 0.5)


def replace_by_fifo(node: Node, path: str) -> None:
    """Replace a file by one whose reader waits for ever."""
    (node.root / path).unlink()
    os.mkfifo(node.root / path)


@pytest.mark.parametrize(("path", "device"), [
    ("sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error", "/sys/class/infiniband/mlx5_1"),
    ("proc/driver/nvidia/gpus/0000:43:00.0/information", "/proc/driver/nvidia/gpus/0000:43:00.0"),
    ("sys/bus/pci/devices/0000:43:00.0/class", "/sys/bus/pci/devices/0000:43:00.0"),
])  # fmt: skip
def test_a_device_whose_file_does_not_answer_drains_the_node(path: str, device: str, node: Node) -> None:
    replace_by_fifo(node, path)
    found = node.examine()
    result = result_of(found, "files")
    assert (result.severity, result.detail) == (HARDWARE, f"{device} does not answer")
    assert any("does not answer" in line for line in health_lines(found, "healthcheck"))
    assert result_of(found, "nvidia-driver").status == PASS


def test_a_device_is_read_once(node: Node) -> None:
    replace_by_fifo(node, "sys/class/infiniband/mlx5_1/fw_ver")
    lines: list[str] = []
    host = Host(str(node.root), {}, notice=lines.append)
    for _ in range(3):
        assert host.read("/sys/class/infiniband/mlx5_1/fw_ver").fault == "it does not answer"
        assert host.names("/sys/class/infiniband/mlx5_1/ports") == []
    assert lines == ["/sys/class/infiniband/mlx5_1/fw_ver does not answer"]
    assert host.text("/sys/class/infiniband/mlx5_0/fw_ver")


def test_a_file_system_whose_server_is_gone_is_a_failure(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    host = node.host()

    def wait(name: str, path: str) -> None:
        raise NoAnswerError(path)

    monkeypatch.setattr(host.files, "call", wait)
    assert storage.file_system(host, "/home/me") is None
    (result,) = unanswered(host)
    assert (result.severity, result.detail) == (ADMINISTRATOR, "/home/me does not answer")
    monkeypatch.undo()


def test_what_any_user_can_have_made_drains_no_node(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's file system in the place of a folder that root has not used yet, whose program is stopped."""
    host, folder = node.host(), "/tmp/enroot-data/user-0"
    (node.root / "tmp").mkdir(exist_ok=True)
    call = host.files.call

    def wait(name: str, path: str) -> Any:
        if "user-0" in path:
            raise NoAnswerError(path)
        return call(name, path)

    monkeypatch.setattr(host.files, "call", wait)
    for mode, severity in ((0o1777, MINOR), (0o755, ADMINISTRATOR)):
        (node.root / "tmp").chmod(mode)
        (node.root / "tmp/enroot-data").mkdir(exist_ok=True)
        host.silent.clear()
        assert storage.file_system(host, folder) is None
        (result,) = unanswered(host)
        assert result.severity == severity
    monkeypatch.undo()


def test_errors_of_files_are_those_of_the_system(tmp_path: Path) -> None:
    reader = FileReader()
    with pytest.raises(FileNotFoundError):
        reader.call("read", str(tmp_path / "missing"))
    with pytest.raises(NotADirectoryError):
        reader.call("names", "/dev/null")
    (tmp_path / "large").write_bytes(b"x" * (1 << 21))
    assert len(reader.call("read", str(tmp_path / "large"))) == file_reader.MAX_TEXT
    reader.close()
    assert reader.call("exists", str(tmp_path))  # it starts again
    reader.close()


def test_a_reader_that_is_left_behind_holds_no_output(tmp_path: Path) -> None:
    """The program that reads this one's output waits until each process has closed it."""
    read, write = os.pipe()
    reader = FileReader()
    assert reader.call("exists", str(tmp_path))
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)
    reader.close()


def test_the_folder_of_a_device() -> None:
    assert device_of("/sys/class/infiniband/mlx5_3/ports/1/state") == "/sys/class/infiniband/mlx5_3"
    assert device_of("/dev/nvidia7") == "/dev/nvidia7"

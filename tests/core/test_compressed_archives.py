"""Compression that takes far more memory than real archives need: xz, and methods of zip archives."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from envbuild.build.engines.prepare_inputs import unpack_archive
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError, SpecError
from envbuild.core.limited_xz import CHUNK
from envbuild.lock.python.project_metadata import read_wheel
from envbuild.spec.local_wheels import LocalWheel
from tests.support.foreign_images import noise
from tests.support.tar_headers import member, write

pytestmark = pytest.mark.unit


def test_an_xz_archive_takes_no_more_memory_than_real_ones_request(tmp_path: Path) -> None:
    content = b"".join(member(f"file-{number}") for number in range(3)) + bytes(1024)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 30}]
    large = write(tmp_path / "large.tar.xz", lzma.compress(content, filters=filters))
    with pytest.raises(tarfile.ReadError, match="Memory usage limit"):
        BoundedTarFile.open(large, mode="r:xz")
    with pytest.raises(InputError, match="cannot be unpacked"):
        (tmp_path / "out").mkdir()
        unpack_archive(large, "large.tar.xz", tmp_path / "out")
    parts = lzma.compress(content[:700], preset=9) + bytes(8) + lzma.compress(content[700:])
    for packed in (parts, lzma.compress(content, lzma.FORMAT_ALONE, preset=9)):
        for mode in ("r", "r:xz"):
            with BoundedTarFile.open(write(tmp_path / "a.tar.xz", packed), mode=mode) as found:
                assert found.getnames() == [f"file-{number}" for number in range(3)]
    with pytest.raises(tarfile.ReadError):
        BoundedTarFile.open(write(tmp_path / "cut.tar.xz", lzma.compress(noise(5000, 1))[:1000]), mode="r:xz")


@pytest.mark.parametrize("padding", [0, 4, CHUNK - 4, CHUNK, 3 * CHUNK])
def test_the_padding_of_xz_streams_has_any_length(tmp_path: Path, padding: int) -> None:
    content = member("one") + member("two") + bytes(1024)
    first = lzma.compress(content[:512])
    for more in (padding, padding + -len(first) % CHUNK):
        path = write(tmp_path / "a.tar.xz", first + bytes(more) + lzma.compress(content[512:]) + bytes(more))
        with BoundedTarFile.open(path, mode="r:xz") as read:
            assert read.getnames() == ["one", "two"]


def test_a_file_of_an_xz_archive_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for number in range(3):
            found = tarfile.TarInfo(f"{number}")
            found.size = 300_000
            archive.addfile(found, io.BytesIO(noise(300_000, number)))
    with path.open("rb") as file, BoundedTarFile.open(fileobj=file) as read:
        members = read.getmembers()
        for number in (2, 0, 1, 0):
            part = read.extractfile(members[number])
            assert part and part.read() == noise(300_000, number)
        assert not file.closed


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_archive_of_a_method_that_is_unpacked_whole_is_refused(tmp_path: Path, method: int) -> None:
    """The size that a member states does not matter: 1.6 kB of bzip2 took 4 GB of memory."""
    path = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a-1.dist-info/METADATA", "Name: a\nVersion: 1\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="in a way that no wheel is"):
        unpack_archive(path, path.name, tmp_path / "out")
    with pytest.raises(SpecError, match="in a way that no wheel is"):
        read_wheel(path, LocalWheel(str(path), path.name, "a", "1", "", 0), "3.12")

"""Members of wheels by byte ranges: what is read, what it costs, and what is refused."""

from __future__ import annotations

import io
import itertools
import os
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.errors import InputError
from envbuild.matrix.collect import remote_wheel
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.net import range_file as module
from envbuild.net.range_file import MalformedFileError
from tests.support.examples import examples
from tests.support.wheel_server import Parts, listed, make_wheel, serve_parts, wheels

pytestmark = pytest.mark.unit

NAME = "demo-1.0-cp313-cp313-manylinux_2_28_x86_64.whl"
LIBRARY = os.urandom(3_000_000)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a wheel of 9 MB, of which one member in three is of interest."""
    members = {"demo/first.so": LIBRARY, "demo/lib.so": LIBRARY[::-1], "demo/last.so": LIBRARY[1:]}
    folder = tmp_path_factory.mktemp("wheel")
    return make_wheel(folder, NAME, requires=("torch==2.8.0",), requires_python=">=3.9", members=members).read_bytes()


def served(server: Parts, content: bytes, *ways: int | str) -> str:
    server.files[f"/{NAME}"] = content
    server.ways = list(ways)
    return f"{server.url}/{NAME}"


def test_one_member_costs_no_more_than_itself(content: bytes) -> None:
    with serve_parts() as server:
        source = wheels()
        with source.open(listed(served(server, content))) as wheel:
            assert wheel.read("demo/lib.so") == LIBRARY[::-1]
            assert "demo/first.so" in wheel.names()
        assert len(LIBRARY) < source.tally.received < len(LIBRARY) + 300_000
        assert source.tally.requests == len(server.asked) <= 4


def test_metadata_is_one_request(content: bytes) -> None:
    with serve_parts() as server:
        source = wheels()
        found = source.metadata(listed(served(server, content)))
        assert (found.requires, found.requires_python) == (("torch==2.8.0",), ">=3.9")
        assert found.sha256 == Metadata.of(_metadata(content)).sha256
        assert server.asked == ["bytes=-65536"]


def test_a_small_file_is_smaller_than_the_first_request(tmp_path: Path) -> None:
    with serve_parts() as server:
        path = make_wheel(tmp_path, NAME, requires=("torch",))
        assert wheels().metadata(listed(served(server, path.read_bytes()))).requires == ("torch",)


def test_folder(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    source = wheels()
    for place in (str(tmp_path / NAME), (tmp_path / NAME).as_uri()):
        with source.open(listed(place)) as wheel:
            assert wheel.read("demo/last.so") == LIBRARY[1:]
    assert source.tally.requests == 0


def test_server_without_ranges_is_named_with_a_way_out(content: bytes) -> None:
    with serve_parts() as server, pytest.raises(InputError, match="does not support HTTP ranges") as caught:
        wheels().metadata(listed(served(server, content, "whole")))
    assert "mirrors: {python:" in caught.value.hint
    assert caught.value.where == NAME


def test_server_without_ranges_from_the_end(content: bytes) -> None:
    with serve_parts() as server:
        with wheels().open(listed(served(server, content, "no-suffix"))) as wheel:
            assert wheel.read("demo/lib.so") == LIBRARY[::-1]
        assert server.asked[:2] == ["bytes=-65536", "bytes=0-0"]


@pytest.mark.slow_unit
@pytest.mark.parametrize("ways", [(503, ""), (503, 429, ""), ("short", ""), ("", "short", "")])
def test_second_try(content: bytes, ways: tuple[int | str, ...]) -> None:
    with serve_parts() as server, wheels().open(listed(served(server, content, *ways))) as wheel:
        assert wheel.read("demo/first.so") == LIBRARY


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ((503,), "HTTP 503"),
        ((404,), "HTTP 404"),
        ((403,), "HTTP 403"),
        (("short",), "broke off"),
        (("", "long"), "more bytes"),
        (("", "other"), "other bytes"),
        (("grow",), "size changed"),
    ],
)
def test_bad_answers(content: bytes, ways: tuple[int | str, ...], words: str) -> None:
    with (
        serve_parts() as server,
        pytest.raises(InputError, match=words),
        wheels().open(listed(served(server, content, *ways))) as wheel,
    ):
        wheel.read("demo/first.so")


def test_connection_refused() -> None:
    with pytest.raises(InputError, match="connection refused"):
        wheels().metadata(listed(f"http://127.0.0.1:9/{NAME}"))


# --- archives with wrong metadata


def archive(**members: bytes) -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return bytearray(stream.getvalue())


def read(content: bytes, member: str = "lib", most: int = 1 << 20) -> bytes:
    with serve_parts() as server, wheels().open(listed(served(server, bytes(content)))) as wheel:
        return wheel.read(member, most)


def test_a_file_that_is_not_an_archive() -> None:
    for content in (b"x" * 1000, b"x" * 100_000, b"PK\x05\x06" + bytes(18), bytes(archive(lib=b"1"))[:-30]):
        with pytest.raises(InputError, match="cannot be read"):
            read(content)


def test_huge_central_directory_is_not_fetched() -> None:
    content = bytearray(bytes(40_000_000) + archive(lib=b"1"))
    struct.pack_into("<II", content, len(content) - 10, 30_000_000, 1000)  # size and offset of the directory
    with serve_parts() as server:
        source = wheels()
        with pytest.raises(InputError, match="read at once"), source.open(listed(served(server, bytes(content)))):
            pass
        assert source.tally.received < 1_000_000


def test_size_that_is_claimed() -> None:
    content = archive(lib=b"1" * 1000)
    at = content.rindex(b"PK\x01\x02")
    for claim, words in (
        (5_000_000, "claims 5000000 bytes"),
        (2000, "states 2000|CRC|two headers that differ"),
        (10, "CRC|states 10|two headers"),
    ):
        struct.pack_into("<I", content, at + 24, claim)
        with pytest.raises(InputError, match=words):
            read(content)


def test_bomb_is_bounded() -> None:
    with pytest.raises(InputError, match="claims 50000000 bytes"):
        read(archive(lib=bytes(50_000_000)))


def test_damaged_member() -> None:
    content = archive(lib=os.urandom(5000))
    content[1000:1010] = bytes(10)
    with pytest.raises(InputError, match=r"CRC|invalid|incorrect|bytes where"):
        read(content)


def test_member_there_twice_or_not() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr(zipfile.ZipInfo("lib"), b"1")
        made.writestr(zipfile.ZipInfo("lib"), b"2")
    with pytest.raises(InputError, match="2 members are named lib"):
        read(stream.getvalue())
    with pytest.raises(InputError, match="0 members are named other"):
        read(archive(lib=b"1"), "other")


def test_compression_of_no_wheel() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("lib", b"1" * 100)
    with pytest.raises(InputError, match="no wheel is"):
        read(stream.getvalue())
    content = archive(lib=b"1")
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # encrypted
    with pytest.raises(InputError, match="no wheel is"):
        read(content)


def test_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 50)  # in place of the 65,535 that the old end record can count
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w") as made:
        for number in range(60):
            made.writestr(zipfile.ZipInfo(f"{number}"), b"")
        with made.open(zipfile.ZipInfo("lib"), "w", force_zip64=True) as member:
            member.write(b"1" * 10)
    content = path.read_bytes()
    assert b"PK\x06\x06" in content
    assert read(content) == b"1" * 10


def test_stored_member_larger_than_a_step() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("lib", LIBRARY * 3)
        made.writestr("after", bytes(100_000))
    assert read(stream.getvalue(), most=1 << 24) == LIBRARY * 3


def test_two_metadata_files(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, NAME, members={"other-1.0.dist-info/METADATA": b""})
    with pytest.raises(InputError, match="2 files are its METADATA"):
        wheels().metadata(listed(path))


@examples(150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.slow_unit
def test_any_damage_is_an_input_error(tmp_path: Path, data: st.DataObject) -> None:
    """For any change in an archive: the right bytes, or an InputError."""
    content = archive(before=b"a" * 50, lib=bytes(range(256)) * 4, after=b"b")
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / NAME
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) - 5, 60]))])
    try:
        with wheels().open(listed(path)) as wheel:
            assert wheel.read("lib") == bytes(range(256)) * 4
    except InputError as error:
        assert NAME in str(error)


# --- sdists


def sdist(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as made:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def test_package_info_near_the_beginning_costs_little() -> None:
    text = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: torch>=2.0.0\n"
    with serve_parts() as server:
        source = wheels()
        server.files["/demo-1.0.tar.gz"] = sdist({"demo-1.0/PKG-INFO": text, "demo-1.0/data": LIBRARY})
        found = source.metadata(listed(f"{server.url}/demo-1.0.tar.gz"))
        assert found.requires == ("torch>=2.0.0",)
        assert source.tally.received < 500_000


def test_sdist_without_package_info(tmp_path: Path) -> None:
    for content, words in (
        (sdist({"demo-1.0/a/PKG-INFO": b"", "demo-1.0/x": b"1"}), "no PKG-INFO"),
        (b"no archive", "cannot be read"),
        (sdist({"demo-1.0/x": LIBRARY})[:50_000], "cannot be read|no PKG-INFO"),
    ):
        path = tmp_path / "demo-1.0.tar.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            wheels().metadata(listed(path))
        with serve_parts() as server, pytest.raises(InputError, match=words):
            server.files["/demo-1.0.tar.gz"] = content
            wheels().metadata(listed(f"{server.url}/demo-1.0.tar.gz"))


def test_a_malformed_file_becomes_an_input_error() -> None:
    assert not issubclass(MalformedFileError, InputError)  # only `Wheels.open` may convert it
    with pytest.raises(InputError, match=r"demo.*: as it says"), serve_parts() as server:
        served(server, bytes(archive(lib=b"1")))
        with wheels().open(listed(f"{server.url}/{NAME}")):
            raise MalformedFileError("as it says")


def _metadata(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return opened.read("demo-1.0.dist-info/METADATA")


def test_metadata_takes_a_time_that_grows_with_it_alone() -> None:
    """600,000 names of headers took ten hours, and requirements of 11 kB a minute."""
    names = ("".join(letters) for letters in itertools.product("abcdefghijklmnopqrstuvwxyz0123456789", repeat=4))
    head = b"Name: x\nRequires-Python: >=3.9\nRequires-Dist: torch\n"
    many = head + b"".join(b"%s:\n" % name.encode() for name in itertools.islice(names, 80_000))
    began = time.process_time()
    assert Metadata.of(many).requires == ("torch",)
    assert time.process_time() - began < 10
    for more in (b"x: y\n" * 200_000, b"Requires-Dist: torch[%s]\n" % (b"a," * 5000)):
        with pytest.raises(MalformedFileError, match="its metadata has"):
            Metadata.of(head + more)
    described = Metadata.of(head + b"\nRequires-Dist: not a header\n" + b"x" * (1 << 20))
    assert (described.requires, described.requires_python) == (("torch",), ">=3.9")


@pytest.mark.parametrize("form", ["gz", "bz2"])
def test_an_sdist_that_is_a_bomb(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """862 bytes were a gigabyte, and took more than an hour."""
    monkeypatch.setattr(remote_wheel, "UNPACKED", 1 << 22)
    large = io.BytesIO()
    with tarfile.open(fileobj=large, mode=f"w:{form}") as made:  # type: ignore[call-overload]
        member = tarfile.TarInfo("demo-1.0/big")
        member.size = 64 << 20
        made.addfile(member, io.BytesIO(bytes(member.size)))
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(large.getvalue())
    words = "its PKG-INFO is not near its beginning" if form == "gz" else "cannot be read"
    began = time.process_time()
    with pytest.raises(InputError, match=words):
        wheels().metadata(listed(path))
    assert time.process_time() - began < 10


def test_a_sparse_file_of_a_folder_takes_no_memory(tmp_path: Path) -> None:
    """A file of 4 kB that states a directory of 6 GB."""
    size = 6 << 30
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, size, 0))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, size, 1))
        file.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    with pytest.raises(InputError, match="bytes must be read at once"):
        wheels().metadata(listed(path))

"""Package lists, Release files and dpkg's database that apt takes, and that no Debian makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.lock.deb822 import installed_names, parse_fields
from envbuild.lock.debian.apt import release_date
from envbuild.lock.debian.package_lists import Package, PackageLists
from envbuild.lock.debian.resolve import locked_files
from envbuild.lock.debian.version_order import version_key
from envbuild.lock.missing_inputs import InvalidInputError
from tests.support.debian_archive import stanza

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("date", "found"),
    [
        ("Tue, 24 Nov 2026 10:00:00 UTC", "2026-11-24T10:00:00+00:00"),
        ("Tue, 24 Nov 2026 10:00:00 -0000", "2026-11-24T10:00:00+00:00"),
        ("Tue, 31 Feb 2026 10:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Tue, 20 Feb 0900 10:00:00 GMT", None),
        ("yesterday", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
        ("Tue, 24 Nov 2026 10:00:00 UTC\ndate: Wed, 25 Nov 2026 10:00:00 UTC", None),
    ],
)
def test_a_date_of_no_calendar_is_none(date: str, found: str | None, tmp_path: Path) -> None:
    (path := tmp_path / "Release").write_text(f"Origin: a\nDate: {date}\n")
    value = release_date(path)
    assert (value.isoformat() if value else None) == found


def test_a_version_with_many_digits_has_an_order() -> None:
    """A lock that has it is compared with the next one."""
    assert version_key("9" * 5000) > version_key("9" * 4999) > version_key("2")
    assert version_key("1:1") > version_key("9" * 5000) and version_key("1.007") == version_key("1.7")
    assert version_key("9" * 5000 + ":1") > version_key("9:1") and version_key("00:1") == version_key("1")


def test_a_list_with_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    (path := tmp_path / "Packages").write_bytes(b"Package: \xff\xfe\n\n" + stanza("one").encode())
    lists = PackageLists([("debian:trixie/main", path)])
    assert lists.names() == {"\ufffd\ufffd", "one"}
    assert [package.version for package in lists.of("one")] == ["1.0"]


def test_continuation_lines() -> None:
    assert parse_fields(" of nothing\nA: 1\n 2\n\t3\nB: 4\nA: 5\n") == {"A": "5", "B": "4"}
    assert parse_fields("A: 1\n 2\n\t3\n") == {"A": "1\n 2\n\t3"}


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_line_of_a_list_ends_where_apt_ends_it(end: str) -> None:
    """The text of one field of a package must not be read as other fields: the lock would name another file than apt
    chose."""
    text = f"Package: evil\nDescription: x{end}Filename: ./other.deb{end}Package: libc6\nVersion: 1\n"
    fields = parse_fields(text)
    assert (fields["Package"], fields["Version"], "Filename" in fields) == ("evil", "1", False)
    assert installed_names(f"Package: evil\nDescription: x{end}Status: install ok installed\n") == frozenset()


def test_a_database_with_a_stanza_without_a_package() -> None:
    whole = "Package: a\nStatus: install ok installed\n\n"
    with pytest.raises(ValueError, match="it has a stanza without a package, after a"):
        installed_names(whole + "Status: install ok installed\nVersion: 1\n\n")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Filename", "pool/.."),
        ("Filename", "../../tmp/evil_1_amd64.deb"),
        ("Filename", "/tmp/evil_1_amd64.deb"),
        ("Filename", ""),
        ("Size", "-5"),
        ("Size", "9" * 20),
        ("Size", "many"),
        ("Filename", "pool/main/o/one/$(id).deb"),
        ("Filename", "pool/main/o/one/a b.deb"),
        ("Package", "lib`id`"),
        ("Package", "lib;id"),
        ("Package", "-o"),
        ("Version", "1$(id)"),
        ("Version", "1:" + "9" * 5000),
    ],
)
def test_a_package_without_a_usable_name_version_file_or_size_is_refused(field: str, value: str) -> None:
    package = Package(parse_fields(stanza("one")), "debian:trixie/main")
    (file,) = locked_files([package])
    assert (file.path, file.size) == ("pool/main/o/one/one_1.0_amd64.deb", 1000)
    with pytest.raises(InvalidInputError, match=r"debian:trixie/main lists .* with the file .* is not valid") as caught:
        locked_files([replace(package, fields={**package.fields, field: value})])
    assert "mirrors: {debian:" in caught.value.hint

"""Lock files: the round trip, damage, and what they must not contain."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from yaml import YAMLError

from envbuild.core.errors import LockError
from envbuild.core.plain_yaml import load_plain
from envbuild.core.text import first_hidden
from envbuild.lock.diff import describe_changes
from envbuild.lock.entry_grammar import NAME, VERSION
from envbuild.lock.lock_head import read_head
from envbuild.lock.lockfile import dump_lock, parse_lock, read_lock, write_lock
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile, UnitLock, VenvRule, lock_digest
from envbuild.net.origin_kinds import ORIGIN_KINDS
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
SHA = "0123456789abcdef" * 4
TEXT = st.text(alphabet=string.ascii_letters + string.digits + "+-._~:@ é'\"#", min_size=1, max_size=20)
NAMES = st.text(alphabet=string.ascii_lowercase + string.digits + "+-._~", min_size=3, max_size=20)
PACKAGES = st.from_regex(NAME, fullmatch=True)
VERSIONS = st.sampled_from(["1.10", "1e3", "0x1f", "1:30.0", "2026-01-02", "007"]) | st.from_regex(
    VERSION, fullmatch=True
)
ORIGINS = st.builds("{}:{}".format, st.sampled_from(ORIGIN_KINDS), st.from_regex(VERSION, fullmatch=True))
C = "github:o/c@" + "1" * 40
IMAGES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True).filter(lambda name: ".." not in name)
DIGESTS = st.text(alphabet="0123456789abcdef", min_size=64, max_size=64)
SIZES = st.integers(0, 1 << 40)
WORDS = st.sampled_from(["1.10", "1e3", "yes", "no", "null", "0x1f", "1:30:00", "2026-01-02", "~", "007"]) | TEXT


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    names = draw(st.lists(NAMES, unique=True, max_size=6))
    debian = {
        f"{name}.deb": DebianFile(
            f"{name}.deb",
            draw(PACKAGES),
            draw(VERSIONS),
            "debian:trixie/main",
            f"pool/{name}",
            draw(SIZES),
            draw(DIGESTS),
        )
        for name in names
    }
    python = {name: PythonFile(name, draw(PACKAGES), draw(VERSIONS), draw(SIZES), draw(DIGESTS)) for name in names}
    sources = {name: SourceFile(name, draw(ORIGINS), draw(DIGESTS), draw(SIZES)) for name in names}
    part = st.lists(st.sampled_from(names), unique=True).map(tuple) if names else st.just(())
    packages = part.map(lambda chosen: tuple(f"{name}.deb" for name in chosen))
    unit = st.builds(
        UnitLock,
        debian=packages,
        requested=st.lists(WORDS).map(tuple),
        essential=packages,
        python=part,
        sdists=part,
        sources=part,
    )
    return Lock(
        image=draw(IMAGES), inputs=draw(WORDS), base=draw(WORDS),
        arch=draw(st.sampled_from(["amd64", "arm64"])), python=draw(WORDS),
        epoch=draw(st.integers(0, 1 << 34)),
        tools={**draw(st.dictionaries(WORDS, WORDS, max_size=3)), "envbuild": draw(VERSIONS), "uv": draw(VERSIONS)},
        versions=draw(st.dictionaries(WORDS, WORDS, max_size=3)),
        debian=debian, python_files=python, sources=sources, units=draw(st.dictionaries(NAMES, unit, max_size=4)),
        waivers=tuple(draw(st.lists(st.dictionaries(WORDS, WORDS, max_size=2), max_size=2))),
    )  # fmt: skip


SMALL = Lock(
    image="demo", inputs=f"sha256:{SHA}", base="debian:13", arch="amd64", python="3.10",
    epoch=1, tools={"envbuild": "1", "uv": "1.0"}, versions={},
    debian={"a_1_all.deb": DebianFile("a_1_all.deb", "a", "1:1", "debian:trixie/main", "pool/a_1_all.deb", 5, SHA)},
    python_files={"b-1-py3-none-any.whl": PythonFile("b-1-py3-none-any.whl", "b", "1", 5, SHA)},
    sources={"c.tar.gz": SourceFile("c.tar.gz", "github:o/c@v1", SHA)},
    units={"base": UnitLock(debian=("a_1_all.deb",), requested=("a",), essential=("a_1_all.deb",)), "venv": UnitLock()},
)  # fmt: skip


@given(locks())
def test_round_trip(lock: Lock) -> None:
    text = dump_lock(lock)
    assert parse_lock(text, Path("demo.lock")) == lock
    assert dump_lock(parse_lock(text, Path("demo.lock"))) == text


def test_order_of_dictionaries_does_not_matter(tmp_path: Path) -> None:
    more = replace(SMALL.debian["a_1_all.deb"], file="0_1_all.deb")
    one = replace(SMALL, debian={**SMALL.debian, more.file: more})
    two = replace(SMALL, debian={more.file: more, **SMALL.debian})
    assert dump_lock(one) == dump_lock(two)
    write_lock(one, tmp_path / "demo.lock")
    assert (tmp_path / "demo.lock").read_bytes().endswith(b"\n")
    assert read_lock(tmp_path / "demo.lock") == two
    assert [path.name for path in tmp_path.iterdir()] == ["demo.lock"]


def test_the_text_names_the_command_to_refresh_it_and_no_address() -> None:
    text = dump_lock(SMALL)
    assert text.startswith("# Lock of the image demo")
    assert "envbuild lock demo --upgrade" in text
    assert "://" not in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 2", "it has format 2, and this envbuild reads format 1"),
        ("schema: 1", "x: 1", "it has no schema"),
        ("epoch: 1", "epoch: soon", "epoch is not a number"),
        ("epoch: 1", "epoch: 99999999999999", "epoch is not a time"),
        ("epoch: 1", "epoch: -1", "epoch is not a time"),
        ("epoch: 1", "releases: {'debian:trixie/main': soon}\nepoch: 1", "releases: the date of debian:trixie/main"),
        ("epoch: 1", "releases: {x: '9999-12-31T23:59:59Z'}\nepoch: 1", "releases: the date of x"),
        ("epoch: 1", "releases: {x: '2026-02-31T00:00:00Z'}\nepoch: 1", "releases: the date of x"),
        (f"    sha256: {SHA}\n", "", "is missing"),
        (f"    sha256: {SHA}\n", "    sha256: 12\n", "sha256"),
        ("    size: 5", "    size: five", "'size' is not a number"),
        ("    - a_1_all.deb", "    - b_1_all.deb", "names b_1_all.deb, which is not listed"),
        ("    requested:", "    unknown:", "unknown"),
        ("python: '3.10'", "python: 3.10", "'python' is not text"),
        ("units:", "units: [", "damaged"),
        ("  a_1_all.deb:", "  ../a_1_all.deb:", "not"),
        ("  envbuild: '1'\n", "", "'envbuild' is missing"),
        ("  uv: '1.0'\n", "", "'uv' is missing"),
        ("    version: '1:1'\n", f"    version: '{'1' * 5000}'\n", "is not the version of a package"),
        ("  uv: '1.0'", "  uv: ../1", "is not the version of a package"),
        ("arch: amd64", "arch: x/../../y", "arch is none of amd64, arm64"),
        ("a_1_all.deb", "Packages", "'Packages' is not the file name of a package"),
        ("image: demo", "image: ../demo", "cannot be the name of an image"),
        ("image: demo", "image: /etc/demo", "cannot be the name of an image"),
        ("image: demo", "image: a..b", "cannot be the name of an image"),
        ("image: demo", "image: ''", "cannot be the name of an image"),
    ],
)
def test_damage(old: str, new: str, message: str) -> None:
    text = dump_lock(SMALL)
    assert old in text
    with pytest.raises(LockError, match="(?s)damaged.*" + message if message != "damaged" else message) as caught:
        parse_lock(text.replace(old, new), Path("images/demo.lock"))
    assert caught.value.exit_code == 4
    assert "envbuild lock demo" in caught.value.hint


@pytest.mark.parametrize(
    "kind", ["docker.image.rootfs.foreign.diff.tar.gzip", "oci.image.layer.nondistributable.v1.tar"]
)
def test_a_lock_with_a_foreign_layer_is_refused(kind: str) -> None:
    base = BaseImage("x", SHA, SHA, ((SHA, 1, f"application/vnd.{kind}"),), "debian:13")
    with pytest.raises(LockError, match="layer 1 is a foreign layer"):
        parse_lock(dump_lock(replace(SMALL, base_image=base)), Path("images/demo.lock"))


def test_a_venv_of_the_base_is_a_key_only_where_there_is_one() -> None:
    """A lock without one keeps its text and its digest, by which older artifacts are named."""
    base = BaseImage("x", SHA, SHA, (), "debian:13")
    plain = replace(SMALL, base_image=base)
    assert "venv" not in yaml.safe_load(dump_lock(plain))["base_image"]
    extended = replace(SMALL, base_image=replace(base, venv=VenvRule.EXTENDED))
    assert parse_lock(dump_lock(extended), Path("demo.lock")) == extended
    assert lock_digest(extended) != lock_digest(plain)
    value = dataclasses.asdict(plain)
    del value["releases"], value["base_image"]["venv"]
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert lock_digest(plain) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(LockError, match="damaged"):
        parse_lock(dump_lock(extended).replace("venv: extended", "venv: kept"), Path("demo.lock"))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\0", "schema: 1", "schema: 1\ndebian: 5", "- " * 5000])
def test_not_a_lock(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text(text)
    with pytest.raises(LockError):
        read_lock(tmp_path / "x.lock")


BOMB = "schema: 1\na0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 10)
)


@pytest.mark.parametrize("text", ["schema: 1\na: " + "[" * 1000, BOMB, "schema: 1\na: " + "- " * 500, "#" * (5 << 20)])
def test_a_text_that_takes_much_memory_is_refused(text: str, tmp_path: Path) -> None:
    """Nesting overflows the stack of the parser, aliases and merge keys multiply; a lock has neither."""
    path = tmp_path / "demo.lock"
    path.write_text(text)
    with pytest.raises(LockError):
        read_lock(path)
    with pytest.raises(LockError):
        parse_lock(text, path)
    assert read_head(path) == ("", {}, {})


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 15 + "1" + "]" * 15, "a: [[1], [2], {b: '*&<<'}]", "a: '&'\nb: " + "x" * 900]
)
def test_unusual_texts_of_small_depth_are_read(text: str) -> None:
    assert load_plain(text)["a"]


def test_a_deep_text_is_refused_before_it_is_composed() -> None:
    for text in ("[" * 200_000, "{a: " * 200_000, "- " * 200_000, "".join(" " * n + "-\n" for n in range(1500))):
        with pytest.raises((ValueError, YAMLError)):
            load_plain(text)


@pytest.mark.parametrize("value", ['!!int ""', '!!float ""', '!!int "-"', "!x 1", "! 1", "!!python/object:x.Y {}"])
def test_a_tag_is_refused(tmp_path: Path, value: str) -> None:
    """PyYAML's reader of numbers fails with IndexError on an empty text."""
    path = tmp_path / "demo.lock"
    path.write_text(dump_lock(SMALL).replace(f"epoch: {SMALL.epoch}", f"epoch: {value}"))
    assert value in path.read_text()
    with pytest.raises(LockError, match=r"damaged: it has a tag in line \d+"):
        read_lock(path)
    assert read_head(path) == ("", {}, {})


def test_no_lock(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="there is no lock") as caught:
        read_lock(tmp_path / "demo.lock")
    assert caught.value.hint == "envbuild lock demo"


def test_each_change_has_one_line() -> None:
    new = replace(
        SMALL,
        debian={"a_2_all.deb": replace(SMALL.debian["a_1_all.deb"], file="a_2_all.deb", version="2")},
        python_files={"n-3-py3-none-any.whl": PythonFile("n-3-py3-none-any.whl", "n", "3", 5, SHA)},
        sources={"c.tar.gz": replace(SMALL.sources["c.tar.gz"], sha256="f" * 64)},
    )
    assert describe_changes(SMALL, new) == [
        "a 1:1 → 2",
        "- b 1",
        "+ n 3",
        "source c.tar.gz github:o/c@v1: other content",
    ]
    assert describe_changes(SMALL, SMALL) == []


@pytest.mark.parametrize("text", ["1\u202e2", "1\u200b", "1\x1b[31m", "1\xad", "1\n2", "1\r"])
def test_a_text_that_reads_as_another_is_not_written_into_a_lock(text: str, tmp_path: Path) -> None:
    entry = replace(SMALL.debian["a_1_all.deb"], version=text)
    with pytest.raises(LockError, match=r"debian.a_1_all.deb.version holds (control|invisible) character U\+"):
        write_lock(replace(SMALL, debian={entry.file: entry}), tmp_path / "demo.lock")
    assert not (tmp_path / "demo.lock").exists()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"file": ".."}, "debian file '..': not a file name"),
        ({"size": -5}, "debian file a_1_all.deb: the size is not a number of bytes"),
        ({"sha256": "0"}, "debian file a_1_all.deb: sha256 is not 64 hexadecimal digits"),
    ],
)
def test_what_no_lock_can_have_is_not_written(entry: dict[str, Any], reason: str, tmp_path: Path) -> None:
    odd = replace(SMALL.debian["a_1_all.deb"], **entry)
    with pytest.raises(LockError, match=re.escape(reason)):
        write_lock(replace(SMALL, debian={odd.file: odd}, units={}), tmp_path / "demo.lock")
    assert not (tmp_path / "demo.lock").exists()


@pytest.mark.parametrize("text", ['"1.0\\u202E"', "1.0\u202e", '"1.0\\x1B"', '"1.0\\u2028"', "1.0\u200b"])
def test_a_lock_with_a_text_that_reads_as_another_is_refused(text: str) -> None:
    with pytest.raises(LockError, match=r"damaged: tools.uv holds (control|invisible) character U\+"):
        parse_lock(dump_lock(SMALL).replace("'1.0'", text), Path("demo.lock"))
    with pytest.raises(LockError, match=r"damaged: tools holds (control|invisible) character U\+"):
        parse_lock(dump_lock(SMALL).replace("uv: '1.0'", f"{text}: x"), Path("demo.lock"))


@pytest.mark.parametrize("text", ["'1.0\n\n    x'", "1.0\n\n    x", '"1.0\n\n    x"'])
def test_a_lock_with_a_text_of_several_lines_is_refused(text: str) -> None:
    with pytest.raises(LockError, match=r"damaged: tools.uv holds control character U\+000A"):
        parse_lock(dump_lock(SMALL).replace("'1.0'", text), Path("demo.lock"))


@pytest.mark.parametrize("size", [".inf", "-1", "true", "'12'", "1" + "0" * 30, "1.5"])
def test_a_size_is_a_number_of_bytes(size: str) -> None:
    base = BaseImage("x", SHA, SHA, ((SHA, 77777, "application/vnd.oci.image.layer.v1.tar"),), "debian:13")
    text = dump_lock(replace(SMALL, base_image=base))
    sizes = [text.replace("77777", size), re.sub(r"(?m)^(    size: )\d+$", rf"\g<1>{size}", text)]
    assert text not in sizes
    for damaged in sizes:
        with pytest.raises(LockError, match="size"):
            parse_lock(damaged, Path("demo.lock"))


def test_variables_of_a_base_image_may_have_any_text() -> None:
    base = BaseImage("x", SHA, SHA, (), "debian:13", env={"PS1": "\x1b[31m\n", "OTHER": "\u200d\u202e"})
    lock = replace(SMALL, base_image=base)
    assert parse_lock(dump_lock(lock), Path("demo.lock")) == lock
    assert not any(first_hidden(line) for line in dump_lock(lock).split("\n"))  # for who reads it


@pytest.mark.parametrize("line", ["? " * 79, "- " * 79, "-", "a:", "[]"])
def test_a_text_of_many_values_is_refused_before_it_is_read(line: str) -> None:
    """Compressed, 4 MiB of them have 20 kB; their values took 1.5 GB, and most of a minute."""
    with ends_within(20), pytest.raises(ValueError, match="too many values"):
        load_plain(f"{line}\n" * ((3 << 20) // (len(line) + 1)))


@pytest.mark.parametrize("text", ["- " * 30 + "a", "? " * 30 + "a", "a:\n  - - " + "- " * 30 + "a"])
def test_the_depth_of_one_line_is_limited(text: str) -> None:
    with pytest.raises(ValueError, match="nested deeper"):
        load_plain(text)
    assert load_plain("- - a\n- b: c\n") == [["a"], {"b": "c"}]


@pytest.mark.parametrize("text", ["a" + ":0" * 300 + ".0", "a: 1" + ":0" * 300 + ".0", "a: 2020-99-99", "- !!int ''"])
def test_a_value_that_the_parser_cannot_make_is_no_traceback(text: str) -> None:
    with pytest.raises(LockError):
        parse_lock(f"schema: 1\n{text}\n", Path("demo.lock"))
    with pytest.raises(ValueError, match="month must be"):
        load_plain("schema: 1\na: 2020-99-99\n")


@pytest.mark.parametrize("end", ["", ".0"])
def test_a_long_number_in_base_60_is_refused_before_it_is_computed(end: str) -> None:
    """It takes the square of its length."""
    with ends_within(5), pytest.raises(ValueError, match="base 60"):
        load_plain(f"schema: 1\nepoch: 1{':1' * 180_000}{end}\n")
    assert load_plain("a: 1:30:00\nb: 'aa:bb:cc:dd:ee:ff'\n") == {"a": 5400, "b": "aa:bb:cc:dd:ee:ff"}


def test_many_keys_of_which_one_occurs_twice_are_read_in_time() -> None:
    """Each was searched in all of them: `show` of a squashfs file of 450 kB took more than ten minutes."""
    text = "{" + ",".join(f"k{number}" for number in range(190_000)) + ",k189999}"
    with ends_within(60), pytest.raises(ValueError, match="'k189999' twice"):
        load_plain(text)


@pytest.mark.parametrize(
    ("table", "file", "change"),
    [
        ("debian", "a_1_all.deb", {"path": "../private"}),
        ("debian", "a_1_all.deb", {"path": "/etc/shadow"}),
        ("debian", "a_1_all.deb", {"archive": 'apt:x": [https://evil.example/], "python:'}),
        ("debian", "a_1_all.deb", {"name": "a; touch x #"}),
        ("debian", "a_1_all.deb", {"version": "1 $(touch x)"}),
        ("python_files", "b-1-py3-none-any.whl", {"name": "--upgrade"}),
        ("python_files", "b-1-py3-none-any.whl", {"origin": "pip:../../private"}),
        ("sources", "c.tar.gz", {"origin": "file:../../private"}),
        ("sources", "c.tar.gz", {"origin": "/etc/shadow"}),
        ("sources", "c.tar.gz", {"origin": "github:o/c@--output=/home/x/.ssh/authorized_keys", "git": True}),
        ("sources", "c.tar.gz", {"origin": C, "git": True, "submodules": {"part": "vendor:../private@" + "1" * 40}}),
        ("sources", "c.tar.gz", {"origin": C, "git": True, "submodules": {"part": "github:o/p@--output=x"}}),
        ("sources", "c.tar.gz", {"origin": C, "git": True, "submodules": {"../part": C}}),
    ],
)
def test_a_lock_that_leads_out_of_its_archives_is_refused(table: str, file: str, change: dict[str, Any]) -> None:
    """It may be of another user's image: a mirror in a folder would lead to any file, a hint to any command."""
    entries = getattr(SMALL, table)
    text = dump_lock(replace(SMALL, **{table: {file: replace(entries[file], **change)}}))
    with pytest.raises(LockError, match=r"damaged: .* is not (a path in a|an origin|the (name|version) of)"):
        parse_lock(text, Path("demo.lock"))


@pytest.mark.parametrize("path", ["/home/x/.ssh/id_rsa", "../other-1-py3-none-any.whl", "x-1-py3-none-any.whl/.."])
def test_a_wheel_of_a_project_is_the_file_that_it_is_named(path: str) -> None:
    name = "x-1-py3-none-any.whl"
    own = PythonFile(name, "x", "1", 5, SHA, f"spec:../wheels/{name}")
    lock = replace(SMALL, python_files={name: own})
    assert parse_lock(dump_lock(lock), Path("demo.lock")) == lock
    lock = replace(SMALL, python_files={name: replace(own, origin=f"spec:{path}")})
    with pytest.raises(LockError, match="is not its path in a project"):
        parse_lock(dump_lock(lock), Path("demo.lock"))


@pytest.mark.parametrize("more", ["sha256: " + "a" * 64, "schema: 1"])
def test_a_key_that_is_in_a_mapping_twice_is_refused(more: str) -> None:
    """Who reads the lock sees the first one, and the last one was used."""
    text = dump_lock(SMALL)
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if line.lstrip("- ").startswith("sha256:")), 0)
    indent = " " * (len(lines[at]) - len(lines[at].lstrip("- ")))
    lines.insert(at + 1 if more.startswith("sha256") else len(lines), (indent if more.startswith("sha") else "") + more)
    with pytest.raises(LockError, match="twice in one mapping"):
        parse_lock("\n".join(lines) + "\n", Path("demo.lock"))


@pytest.mark.parametrize(
    "files",
    [[], ["other"], ["uv", "other"], ["sdist"], ["old"]],
)
def test_the_tools_of_a_build_are_the_wheel_of_uv(files: list[str]) -> None:
    """They are unpacked outside of the box."""
    uv = PythonFile("uv-1.0-py3-none-any.whl", "uv", "1.0", 5, SHA)
    listed = {
        "uv": uv,
        "other": replace(uv, file="other-1.0-py3-none-any.whl", name="other"),
        "sdist": replace(uv, file="uv-1.0.tar.gz"),
        "old": replace(uv, file="uv-0.9-py3-none-any.whl", version="0.9"),
    }

    def text(*names: str) -> str:
        unit = UnitLock(python=tuple(listed[name].file for name in names))
        python = {file.file: file for file in listed.values()}
        return dump_lock(replace(SMALL, python_files=python, sources={}, units={"tools": unit}))

    assert parse_lock(text("uv"), Path("demo.lock")).units["tools"].python == (uv.file,)
    with pytest.raises(LockError, match=r"unit 'tools' is not the wheel of uv 1\.0 alone"):
        parse_lock(text(*files), Path("demo.lock"))


@pytest.mark.parametrize("origin", ["git:host.example/f", "oci:host.example/f", "github:o/r@v1", "file:x", "mirror:x"])
def test_packages_are_of_archives_and_indexes(origin: str) -> None:
    """A lock of another user would name any host."""
    package, wheel = SMALL.debian["a_1_all.deb"], PythonFile("a-1-py3-none-any.whl", "a", "1", 5, SHA, origin)
    for lock in (
        replace(SMALL, debian={package.file: replace(package, archive=origin)}),
        replace(SMALL, python_files={wheel.file: wheel}, units={}),
    ):
        with pytest.raises(LockError, match="is not an origin here: its kind is none of"):
            parse_lock(dump_lock(lock), Path("demo.lock"))

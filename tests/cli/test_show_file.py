"""Metadata shown of a squashfs file: every line, and no control characters."""

from __future__ import annotations

import json
import os

import pytest

from envbuild.cli.show_file import show_file
from envbuild.core.errors import SpecError
from envbuild.squashfs.read.superblock import check_image, describe_superblock
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.diff import diff_images
from envbuild.verify.contents.metadata import parse_environment, parse_start_script, read_image_texts
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from tests.support.image_pair import BEFORE, SITE, image
from tests.support.packs import file

pytestmark = pytest.mark.unit


def test_show_every_line(tmp_path):
    path = image(tmp_path / "a.sqsh", BEFORE)
    found = show_file(path)
    lines = found.text.splitlines()
    assert lines[0].startswith(f"{path}: ") and lines[0].endswith("36 inodes, zstd level 3, block 131072")
    digest = found.data["lock"]
    assert lines[1:] == [
        "  image small for target cpu, made by envbuild from the lock inside",
        f"  lock      {digest[7:19]}: envbuild show {path} --cat etc/envbuild/lock.yaml",
        "  starts    '/bin/bash' '-l' in /work space",
        "  PATH      /bin",
        "  label     io.envbuild.target cpu",
        "  label     org.opencontainers.image.title small",
        "  contains  1.7 MB unpacked: 20 directories, 15 files, 1 hard link, 1 symlink",
        "  packages  2 of Debian, 1 of Python",
        "components",
        "  gone 1",
        "  ucx 1.19",
        "largest folders",
        f"     1.0 MB  {SITE.decode()}numpy",
        "   700.1 kB  opt/ucx",
        f"     9.0 kB  {SITE.decode()}nvidia/nccl",
        "     5.0 kB  bin",
        *lines[17:22],
        "largest files",
        f"     1.0 MB  {SITE.decode()}numpy/core.so",
        "   400.0 kB  opt/ucx/lib/libucp.so",
        "   300.0 kB  opt/ucx/lib/same",
        f"     9.0 kB  {SITE.decode()}nvidia/nccl/lib/libnccl.so.2",
        "     5.0 kB  bin/sh",
        *lines[28:],
    ]
    assert found.data["packages"] == {"debian": {"libc6": "2.41", "zlib1g": "1.3"}, "python": {"numpy": "2.0"}}
    assert found.data["locked"]["debian"] == {"base-files": "13", "libc6": "2.41"}
    assert found.data["env"] == {"LANG": "C", "PATH": "/bin"}
    assert found.data["start"] == {"command": "'/bin/bash' '-l'", "workdir": "/work space", "path": "/bin"}
    assert read_image_texts(path, "lock.yaml", "sbom.cdx.json").keys() == {"lock.yaml"}


def test_show_of_a_file_repeats_what_its_recipes_remark(tmp_path):
    document = b'{"image": "x", "remarks": ["script: /opt/words is made\\n by commands", 3]}'
    text = show_file(image(tmp_path / "a.sqsh", [file(b"etc/envbuild/resolution.json", document)])).text
    assert "\n  note      script: /opt/words is made\\n by commands\n" in text


def test_show_of_an_image_without_records(tmp_path):
    lines = show_file(image(tmp_path / "a.sqsh", [file(b"x", b"1")])).text.splitlines()
    assert lines[1:3] == [
        "  origin not recorded: not built by envbuild",
        "  starts    not recorded: no /etc/rc",
    ]


def test_control_characters_in_an_image_do_not_reach_the_terminal(tmp_path):
    layer = [
        file(b"etc/rc", b"# evil \x1b]0;title\x07\nexec \x1b[2J\n"),
        file(b"etc/envbuild/resolution.json", b'{"image": ["\x1b"], "versions": ["odd"]}'),
        file(b"etc/envbuild/lock.yaml", b"schema: 99"),
        file(b"etc/envbuild/export.json", b'{"image": 1, "repairs": "x", "compression": {"level": "\\u001b"}}'),
        file(b"etc/environment", b"PATH=\x1b[31m\xff\n"),
        file(b"\x1b[2J", b"1"),
    ]
    text = show_file(image(tmp_path / "a.sqsh", layer)).text
    assert "\x1b" not in text and "\x07" not in text
    assert "lock      not readable: the lock is damaged: it has format 99" in text
    names = [str(image(tmp_path / f"{number}.sqsh", part)) for number, part in enumerate((layer, [file(b"q", b"")]))]
    assert "\x1b" not in diff_images(*names, None, files=True).text  # type: ignore[arg-type]


def test_an_image_that_was_converted(tmp_path):
    document = {
        "image": {"config": "sha256:" + "7" * 64, "architecture": "amd64", "created": 1, "layers": ["sha256:1", "2"]},
        "notes": ["layer 2 was empty"],
        "compression": {"codec": "zstd", "library": "zstd-1.5.7", "level": 3, "block": 131072},
        "options": {"keep_owners": False},
        "writer": 1,
        "repairs": ["dropped device nodes: 1 (dev/null)"],
    }
    layer = [file(b"etc/envbuild/export.json", json.dumps(document).encode())]
    found = show_file(image(tmp_path / "a.sqsh", layer))
    assert found.text.splitlines()[1:6] == [
        "  converted by envbuild from an image that was made elsewhere",
        f"  contents  config sha256:{'7' * 64}, architecture amd64, 2 layers",
        "  written   library zstd-1.5.7, level 3, block 131072, writer 1",
        "  note      layer 2 was empty",
        "  repaired  dropped device nodes: 1 (dev/null)",
    ]
    assert found.data["export"] == document


@pytest.mark.parametrize(
    "script,expected",
    [
        ("", {"provenance": "", "labels": {}, "workdir": "", "command": ""}),
        (
            '# enroot-provenance: docker://a#b:c\n# k v w\n\ncd "/w" && unset OLDPWD || exit 1\n'
            "if x; then\n  exec 'e' \"$@\"\nelse\n  exec 'e' 'c'\nfi\n# exec later\n",
            {"provenance": "docker://a#b:c", "labels": {"k": "v w"}, "workdir": "/w", "command": "'e' 'c'"},
        ),
        ("exec '/bin/sh'\n", {"provenance": "", "labels": {}, "workdir": "", "command": "'/bin/sh'"}),
        ("# only\n# labels", {"provenance": "", "labels": {"only": "", "labels": ""}, "workdir": "", "command": ""}),
    ],
)
def test_start_of(script, expected):
    assert parse_start_script(script) == expected


def test_environment():
    assert parse_environment("A=1\n  B=x=y\n#C=2\nno sign\nA=2\n") == {"A": "2", "B": "x=y"}


def test_a_fifo_in_the_place_of_an_image_is_refused(tmp_path):
    """And not waited for: another user may have put it there."""
    path = tmp_path / "x.sqsh"
    os.mkfifo(path)
    with pytest.raises(SpecError, match="it is not a regular file"):
        find_squashfs_file(str(path))
    for read in (SquashTree, check_image, describe_superblock):
        with pytest.raises(OSError, match="is not a regular file"):
            read(path)


@pytest.mark.parametrize("name", ["registry.example/team/images:mine", "localhost/a:1", "127.0.0.1:5000/team/images"])
def test_an_image_of_a_registry_without_its_prefix_has_a_hint(name: str) -> None:
    """`pull` and `publish --to` take a reference without one."""
    with pytest.raises(SpecError) as caught:
        find_squashfs_file(name)
    assert caught.value.hint == f"for an image of a registry write docker://{name}"


@pytest.mark.parametrize("name", ["./registry.example", "../a", "/no/such.example/a", "images/mine.sqsh"])
def test_a_path_has_no_hint_of_a_registry(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        find_squashfs_file(name)
    assert caught.value.hint == "envbuild list shows the built images"

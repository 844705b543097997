"""`envbuild diff` and `envbuild show FILE` on images made for it: every line of the text, the data, the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packmaker import file, folder, hard, pack, symlink

from envbuild.diff import Side, diff_images, sections
from envbuild.errors import SpecError
from envbuild.image import inside, squashfs_file
from envbuild.lock.lockfile import DebianFile, Lock, PythonFile, SourceFile, UnitLock, dump_lock, parse_lock
from envbuild.showfile import show_file
from envbuild.squashfs import write_image
from envbuild.within import environment, start_of

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
SITE = b"opt/venv/lib/python3.13/site-packages/"
SHA = "0" * 64
RC = """\
# io.envbuild.target cpu
# org.opencontainers.image.title small

mkdir -p "/work space" 2> /dev/null
cd "/work space" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec "$@"
else
    exec '/bin/bash' '-l'
fi
"""


def debian(name: str, version: str) -> DebianFile:
    return DebianFile(f"{name}.deb", name, version, "debian:trixie/main", f"pool/{name}.deb", 1, SHA)


def lock_text(ucx: str, numpy: str, commit: str) -> bytes:
    debians = {item.file: item for item in (debian("base-files", "13"), debian("gcc", "14"), debian("libc6", "2.41"))}
    python = PythonFile(f"numpy-{numpy}.whl", "NumPy", numpy, 1, SHA)
    source = SourceFile("ucx.tar", f"github:openucx/ucx@{commit}", SHA)
    units = {
        "base": UnitLock(debian=("libc6.deb",), essential=("base-files.deb",)),
        "venv": UnitLock(python=(python.file,)),
        "build-ucx": UnitLock(debian=("gcc.deb",), sources=("ucx.tar",)),
    }
    lock = Lock(
        image="small", inputs="sha256:" + SHA, base="debian:13", arch="amd64", python="3.13", epoch=1, tools={},
        versions={"ucx": ucx}, debian=debians, python_files={python.file: python}, sources={"ucx.tar": source},
        units=units,
    )  # fmt: skip
    return dump_lock(lock).encode()


def resolution(**versions: str) -> bytes:
    return json.dumps({"image": "small", "target": "cpu", "versions": versions}).encode()


def status(**versions: str) -> bytes:
    """/var/lib/dpkg/status, with one package that was removed."""
    gone = "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
    texts = (f"Package: {name}\nStatus: install ok installed\nVersion: {v}\n" for name, v in versions.items())
    return (gone + "\n".join(texts)).encode()


BEFORE = [
    folder(b"bin"),
    file(b"bin/sh", b"x" * 5000, 0o755),
    file(b"etc/environment", b"LANG=C\nPATH=/bin\n"),
    file(b"etc/envbuild/lock.yaml", lock_text("1.19", "2.0", "a" * 40)),
    file(b"etc/envbuild/resolution.json", resolution(ucx="1.19", gone="1")),
    file(b"etc/rc", RC.encode()),
    file(b"opt/ucx/lib/libucp.so", b"u" * 400_000),
    hard(b"opt/ucx/lib/libucp.so.0", b"opt/ucx/lib/libucp.so"),
    file(b"opt/ucx/lib/same", b"s" * 300_000),
    file(b"opt/ucx/old", b"o" * 70),
    symlink(b"opt/link", b"ucx/old"),
    file(SITE + b"numpy/core.so", b"n" * 1_000_000),
    file(SITE + b"numpy-2.0.dist-info/METADATA", b"m"),
    file(SITE + b"nvidia/nccl/lib/libnccl.so.2", b"c" * 9000),
    file(b"srv/one", b"1", 0o644, uid=3),
    file(b"srv/two", b"2", mtime=5),
    file(b"srv/is", b"a file"),
    file(b"var/lib/dpkg/status", status(libc6="2.41", zlib1g="1.3")),
]
AFTER = [
    folder(b"bin"),
    file(b"bin/sh", b"x" * 5000, 0o755),
    file(b"etc/environment", b"LANG=C.UTF-8\nPATH=/bin\nNEW=1\n"),
    file(b"etc/envbuild/lock.yaml", lock_text("1.20", "2.1", "b" * 40)),
    file(b"etc/envbuild/resolution.json", resolution(ucx="1.20", new="2")),
    file(b"etc/rc", RC.replace("'-l'", "'-i'").encode()),
    file(b"opt/ucx/lib/libucp.so", b"u" * 399_999 + b"v"),
    hard(b"opt/ucx/lib/libucp.so.0", b"opt/ucx/lib/libucp.so"),
    file(b"opt/ucx/lib/same", b"s" * 300_000),
    symlink(b"opt/link", b"ucx/lib"),
    file(SITE + b"numpy/core.so", b"n" * 1_200_000),
    file(SITE + b"numpy-2.1.dist-info/METADATA", b"m"),
    file(SITE + b"nvidia/nccl/lib/libnccl.so.2", b"c" * 9000),
    file(b"srv/one", b"1", 0o600, uid=4),
    file(b"srv/two", b"2", mtime=6),
    folder(b"srv/is"),
    file(b"srv/new\nline", b"3" * 10),
    file(b"var/lib/dpkg/status", status(libc6="2.42", zlib1g="1.3")),
]
FOREIGN = {b"etc/envbuild/lock.yaml", b"etc/envbuild/resolution.json"}


def image(place: Path, layer) -> Path:
    made = pack(place.with_suffix(".pack"), layer, block=131072)
    return write_image([made], place, epoch=1000, all_root=False).path


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[str, str]:
    place = tmp_path_factory.mktemp("pair")
    return str(image(place / "a.sqsh", BEFORE)), str(image(place / "b.sqsh", AFTER))


def body(text: str) -> list[str]:
    """Without the two lines that name the files."""
    assert text.splitlines()[0].startswith("A  ") and text.splitlines()[1].startswith("B  ")
    return text.splitlines()[2:]


def test_every_line(pair):
    found = diff_images(*pair, None, files=True)  # type: ignore[arg-type]  # files need no project
    lines = body(found.text)
    assert lines[0] == (
        "different: 3 components, 1 Python package, 1 source, 2 variables, 1 part of the start, 3 paths added, "
        "3 paths removed, 11 paths changed, 1 path with another time only, 1.7 MB → 1.9 MB unpacked"
    )
    assert lines[1:17] == [
        "components",
        "  - gone 1",
        "  + new 2",
        "  ~ ucx 1.19 → 1.20",
        "Python packages",
        "  ~ numpy 2.0 → 2.1",
        "sources",
        f"  ~ ucx.tar github:openucx/ucx@{'a' * 40} → github:openucx/ucx@{'b' * 40}",
        "environment",
        "  ~ LANG C → C.UTF-8",
        "  + NEW 1",
        "start",
        "  ~ command '/bin/bash' '-l' → '/bin/bash' '-i'",
        "folders",
        "   +200.0 kB  opt/venv/lib/python3.13/site-packages/numpy  1.0 MB → 1.2 MB, 1 changed",
        "       -70 B  opt/ucx  700.1 kB → 700.0 kB, 1 removed, 2 changed",
    ]
    paths = lines[lines.index("paths") + 1 :]
    size = {name: len(content) for name, content in ((m.path, c) for m, c in [*BEFORE, *AFTER])}
    lock, before = size[b"etc/envbuild/lock.yaml"], len(BEFORE[3][1])
    assert lock == before  # the text of a lock with another version is as long
    assert paths == [
        f"  ~ etc/envbuild/lock.yaml: content {lock} bytes → {lock} bytes",
        f"  ~ etc/envbuild/resolution.json: content {len(BEFORE[4][1])} bytes → {len(AFTER[4][1])} bytes",
        "  ~ etc/environment: content 17 bytes → 29 bytes",
        f"  ~ etc/rc: content {len(RC)} bytes → {len(RC)} bytes",
        "  ~ opt/link: target ucx/old → ucx/lib",
        "  ~ opt/ucx/lib/libucp.so: content 400000 bytes → 400000 bytes",
        "  ~ opt/ucx/lib/libucp.so.0: content 400000 bytes → 400000 bytes",
        "  - opt/ucx/old: file, 70 B",
        f"  ~ {SITE.decode()}numpy/core.so: content 1000000 bytes → 1200000 bytes",
        f"  - {SITE.decode()}numpy-2.0.dist-info: directory",
        f"  - {SITE.decode()}numpy-2.0.dist-info/METADATA: file, 1 B",
        f"  + {SITE.decode()}numpy-2.1.dist-info: directory",
        f"  + {SITE.decode()}numpy-2.1.dist-info/METADATA: file, 1 B",
        "  ~ srv/is: kind file → directory",
        "  + srv/new\\nline: file, 10 B",
        "  ~ srv/one: mode 0644 → 0600, owner 3:0 → 4:0",
        "  t srv/two: time 5 → 6",
        f"  ~ var/lib/dpkg/status: content {size[b'var/lib/dpkg/status']} bytes → {size[b'var/lib/dpkg/status']} bytes",
    ]


def test_the_data(pair):
    data = diff_images(*pair, None).data  # type: ignore[arg-type]
    assert not data["equal"]
    assert data["components"] == {"added": {"new": "2"}, "removed": {"gone": "1"}, "changed": {"ucx": ["1.19", "1.20"]}}
    assert data["debian"] == {} and data["base"] == {}  # as the locks say; what builds use does not count
    assert data["files"]["fields"] == {"content": 8, "kind": 1, "mode": 1, "owner": 1, "target": 1, "time": 1}
    assert data["folders"]["opt/ucx"] == {"before": 700_070, "after": 700_000, "changed": 2, "removed": 1}
    assert len(data["paths"]) == 17 + 1
    assert data["before"]["image"] == "small" and data["before"]["squashfs"]["codec"] == "zstd"
    json.dumps(data)


def test_images_of_others_are_compared_by_what_is_installed(tmp_path):
    """No lock inside: dpkg's own list, and the folders of metadata that Python packages have."""
    layers = [[item for item in layer if item[0].path not in FOREIGN] for layer in (BEFORE, AFTER)]
    names = [str(image(tmp_path / f"{number}.sqsh", layer)) for number, layer in enumerate(layers)]
    data = diff_images(*names, None).data  # type: ignore[arg-type]
    assert data["debian"] == {"added": {}, "removed": {}, "changed": {"libc6": ["2.41", "2.42"]}}
    assert data["python"] == {"added": {}, "removed": {}, "changed": {"numpy": ["2.0", "2.1"]}}
    assert data["components"] == data["sources"] == {}
    one_lock = diff_images(names[0], str(image(tmp_path / "c.sqsh", BEFORE)), None).data  # type: ignore[arg-type]
    assert one_lock["debian"] == one_lock["python"] == {}
    assert one_lock["components"]["added"] == {"gone": "1", "ucx": "1.19"}


def test_how_a_file_is_compressed_is_no_difference(tmp_path):
    made = pack(tmp_path / "a.pack", BEFORE, block=4096, codec="gzip", level=9)
    one = write_image([made], tmp_path / "a.sqsh", epoch=1000, all_root=False).path
    found = diff_images(str(one), str(image(tmp_path / "b.sqsh", BEFORE)), None)  # type: ignore[arg-type]
    assert found.data["equal"]
    # the root, folders that no layer names, and the members
    assert body(found.text) == ["equal: 37 paths with the same content, 1.7 MB"]


def test_few_paths_are_told_without_being_asked_for(tmp_path):
    names = [
        str(image(tmp_path / f"{number}.sqsh", [file(b"f%d" % at, b"x" * at * number) for at in range(1, count)]))
        for number, count in ((1, 5), (2, 5))
    ]
    assert body(diff_images(*names, None).text)[-4:] == [  # type: ignore[arg-type]
        f"  ~ f{at}: content {at} bytes → {2 * at} bytes" for at in range(1, 5)
    ]
    many = str(image(tmp_path / "many.sqsh", [file(b"f%d" % at, b"") for at in range(30)]))
    lines = body(diff_images(names[0], many, None).text)  # type: ignore[arg-type]
    assert lines[-1] == f"  every path: envbuild diff --files {names[0]} {many}"
    assert lines[0] == "different: 26 paths added, 4 paths changed, 10 B → 0 B unpacked"


def test_hard_links_and_attributes(tmp_path):
    one = [file(b"a", b"1", xattrs={b"user.x": b"1"}), hard(b"b", b"a")]
    other = [file(b"a", b"1", xattrs={b"user.x": b"2"}), file(b"b", b"1", xattrs={b"user.x": b"2"})]
    names = [str(image(tmp_path / f"{number}.sqsh", layer)) for number, layer in enumerate((one, other))]
    fields = [row["fields"] for row in diff_images(*names, None).data["paths"]]  # type: ignore[arg-type]
    assert fields == [{"attributes": ["user.x", "user.x"], "links": ["2", "1"]}] * 2


# show
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
        "  holds     1.7 MB unpacked: 20 directories, 15 files, 1 hard link, 1 symlink",
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
    assert inside(path, "lock.yaml", "sbom.cdx.json").keys() == {"lock.yaml"}


def test_show_what_says_nothing(tmp_path):
    lines = show_file(image(tmp_path / "a.sqsh", [file(b"x", b"1")])).text.splitlines()
    assert lines[1:3] == [
        "  it does not say where it came from: envbuild did not make it",
        "  starts    it does not say: there is no /etc/rc",
    ]


def test_what_an_image_says_cannot_steer_a_terminal_or_break_show(tmp_path):
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
    assert "lock      does not read: the lock is damaged: it has format 99" in text
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
    assert start_of(script) == expected


def test_environment():
    assert environment("A=1\n  B=x=y\n#C=2\nno sign\nA=2\n") == {"A": "2", "B": "x=y"}


# the command line
def envbuild(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "envbuild", *arguments]
    environ = {**os.environ, "COLUMNS": "120", **env}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False)


def test_exit_codes(pair, tmp_path):
    one, other = pair
    assert envbuild("diff", one, one).returncode == 0
    done = envbuild("diff", one, other)
    assert (done.returncode, done.stderr) == (1, b"") and done.stdout.splitlines()[2].startswith(b"different: ")
    data = json.loads(envbuild("diff", "--json", "--files", one, other).stdout)
    assert data["equal"] is False and len(data["paths"]) == 18
    damaged = tmp_path / "x.sqsh"
    damaged.write_bytes(Path(one).read_bytes()[:1000])
    for arguments, code in (
        (("diff", one, str(damaged)), 7),
        (("show", str(damaged)), 7),
        (("diff", one, str(tmp_path / "none.sqsh")), 2),
        (("diff", one, "no-such-image"), 2),
        (("diff", one), 2),
    ):
        done = envbuild(*arguments)
        assert (done.returncode, done.stdout) == (code, b"") and b"Traceback" not in done.stderr
    assert b"0 equal, 1 different" in envbuild("diff", "--help").stdout


def test_locks_are_compared():
    """Of two images that are not made."""
    one, other = (
        parse_lock(lock_text(*said).decode(), Path("x.lock"))
        for said in (("1.19", "2.0", "a" * 40), ("1.20", "2.1", "b" * 40))
    )
    found = sections(Side("a", None, one), Side("b", None, other))
    assert {name: part["changed"] for name, part in found.items() if part} == {
        "components": {"ucx": ["1.19", "1.20"]},
        "python": {"numpy": ["2.0", "2.1"]},
        "sources": {"ucx.tar": [f"github:openucx/ucx@{'a' * 40}", f"github:openucx/ucx@{'b' * 40}"]},
    }
    assert not any(sections(Side("a", None, one), Side("b", None, one)).values())


def test_an_image_that_is_not_made(pair, tmp_path):
    """A shipped spec with a lock; the store is empty."""
    environ = {"ENVBUILD_STORE": str(tmp_path)}
    same = envbuild("diff", "cpu-ucx", "cpu-ucx", **environ)
    assert (same.returncode, same.stderr) == (0, b"")
    assert same.stdout.decode().splitlines() == [
        "A  cpu-ucx: its lock; it is not made",
        "B  cpu-ucx: its lock; it is not made",
        "equal: the same components, packages and sources",
        "files",
        "  not compared: cpu-ucx is not made; next: envbuild make cpu-ucx",
    ]
    mixed = envbuild("diff", "cpu-ucx", pair[0], **environ)
    assert mixed.returncode == 1
    lines = mixed.stdout.decode().splitlines()
    assert lines[0] == "A  cpu-ucx: its lock; it is not made"
    assert lines[-1] == "  not compared: cpu-ucx is not made; next: envbuild make cpu-ucx"
    assert "  + gone 1" in lines


def test_one_file_of_an_image(pair):
    done = envbuild("show", pair[0], "--cat", "etc/rc")
    assert (done.returncode, done.stdout) == (0, RC.encode())
    assert envbuild("show", pair[0], "--cat", "opt/link").stdout == b"o" * 70  # links are followed
    for arguments in ((pair[0], "--cat", "etc"), (pair[0], "--cat", "none"), ("cpu-ucx", "--cat", "etc/rc")):
        done = envbuild("show", *arguments)
        assert (done.returncode, done.stdout) == (2, b"") and b"hint: " in done.stderr
    data = json.loads(envbuild("show", pair[0], "--json").stdout)
    assert data["origin"]["image"] == "small" and data["squashfs"]["inodes"] == 36


def test_files_are_read_where_no_store_can_be_written(pair):
    """As on a compute node: neither command makes anything."""
    environment = {**os.environ, "ENVBUILD_STORE": "/proc/no/store"}
    for words, code in ((("show", str(pair[0])), 0), (("diff", *map(str, pair)), 1), (("store", "du"), 0)):
        done = subprocess.run(
            [sys.executable, "-m", "envbuild", *words], capture_output=True, text=True, check=False, env=environment
        )
        assert (done.returncode, done.stderr) == (code, ""), done.stderr


@pytest.mark.parametrize("name", ["docker://app:1", "oci:layout", "docker-archive:a.tar", "docker-daemon:app:1"])
def test_images_of_other_places_are_exported_first(name):
    with pytest.raises(SpecError, match="no squashfs file yet") as caught:
        squashfs_file(name)
    assert f"envbuild export {name} --to squashfs" in caught.value.hint

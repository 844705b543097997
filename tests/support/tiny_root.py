"""A tiny Debian-less root, plans made of it, and a driver that builds them in another process or as another user.

The root is one .deb made of the host's own shell and coreutils, so that these tests need no network: it is the base's
seed."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

from envbuild.build.engines.base import BuildOptions, BuildResult  # noqa: E402
from envbuild.build.engines.embedded.engine import Embedded  # noqa: E402
from envbuild.build.plan.units import Blob, Input, Plan, Product, Unit  # noqa: E402
from envbuild.build.steps import Step  # noqa: E402
from envbuild.core.console import SilentReporter  # noqa: E402
from envbuild.core.errors import EnvbuildError  # noqa: E402
from envbuild.core.store.store import Store  # noqa: E402
from envbuild.core.store.use import in_use  # noqa: E402
from envbuild.oci.config import ImageConfig  # noqa: E402

EPOCH = 1_700_000_000
PROGRAMS = """
sh cat comm cut find sort xargs grep ls mkdir rm rmdir mv ln cp touch chmod chown id env sleep setsid stat dd mknod
mkfifo true false head tail setcap sync readlink printf test wc kill hostname uname setfattr stty prlimit
"""
DEB = "tinyroot_1_all.deb"


def tar_bytes(entries: Sequence[tuple[tarfile.TarInfo, bytes]], mode: str) -> bytes:
    """Return an archive: the same bytes in every process. The gzip of tarfile has the time in its header."""
    if mode == "w:gz":
        return gzip.compress(tar_bytes(entries, "w:"), mtime=0)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for info, content in entries:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, link: str = "", uid: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.mtime, info.uid, info.gid = kind, mode, link, EPOCH - 1000, uid, uid
    return info


def ar(members: Mapping[str, bytes]) -> bytes:
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
        parts.append(content + (b"\n" if len(content) % 2 else b""))
    return b"".join(parts)


def make_deb(control: str, entries: Sequence[tuple[tarfile.TarInfo, bytes]], form: str = "gz") -> bytes:
    """Return a .deb whose two archives are compressed as `form` (gz, xz, or "" for none)."""
    suffix = f".{form}" if form else ""
    return ar(
        {
            "debian-binary": b"2.0\n",
            f"control.tar{suffix}": tar_bytes([(entry("./control", mode=0o644), control.encode())], f"w:{form}"),
            f"data.tar{suffix}": tar_bytes(entries, f"w:{form}"),
        }
    )


def host_files(programs: str = PROGRAMS) -> Iterator[tuple[str, Path]]:
    """Yield (place in the root, file of the host) of the programs and of all libraries that they load."""
    libraries: dict[str, Path] = {}
    for name in programs.split():
        path = shutil.which(name)
        if path is None:
            continue
        yield f"usr/bin/{name}", Path(path).resolve()
        libraries |= loaded_libraries(Path(path))
    for place, path in libraries.items():
        yield place.removeprefix("/"), path


def loaded_libraries(program: Path) -> dict[str, Path]:
    """Return place → file of the libraries that a program, or a library, of the host loads."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout.splitlines()
    words = [next((word for word in line.split() if word.startswith("/")), "") for line in lines]
    return {word: Path(word).resolve() for word in words if word}


def tiny_deb() -> bytes:
    """Return the root as a .deb: programs, libraries, a few files to change, one of them owned by another user."""
    folders: list[str] = []
    files: list[tuple[tarfile.TarInfo, bytes]] = []
    for place, path in host_files():
        folders += [str(parent) for parent in reversed(Path(place).parents) if str(parent) != "."]
        files.append((entry(f"./{place}"), path.read_bytes()))
    files += [
        (entry("./bin", tarfile.SYMTYPE, link="usr/bin"), b""),
        (entry("./etc/passwd", mode=0o644), b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"),
        (entry("./etc/group", mode=0o644), b"root:x:0:\nuser:x:1000:\n"),
        (entry("./etc/issue", mode=0o644), b"tiny\n"),
        (entry("./etc/other", mode=0o600, uid=1000), b"other\n"),
        (entry("./data/one", mode=0o644), b"one\n"),
        (entry("./data/two", mode=0o644), b"two\n"),
        (entry("./data/sub/deep", mode=0o644), b"deep\n"),
        (entry("./data/hard", tarfile.LNKTYPE, link="./data/one"), b""),
    ]
    folders += ["etc", "opt", "data", "data/sub", "var", "var/tmp", "var/log", "usr", "usr/sbin", "root"]
    made = [(entry(f"./{name}", tarfile.DIRTYPE), b"") for name in dict.fromkeys(folders)]
    return make_deb("Package: tinyroot\nVersion: 1\nArchitecture: all\nDescription: tests\n", [*made, *files])


def add(store: Store, name: str, content: bytes) -> Blob:
    """Put content into the store."""
    with tempfile.NamedTemporaryFile(dir=store.tmp, delete=False) as file:
        file.write(content)
    return Blob(name, store.add_blob(Path(file.name)), len(content))


_deb: list[bytes] = []


def base(store: Store) -> Unit:
    """Return the unit of the tiny root."""
    if not _deb:
        shared = os.environ.get("ENVBUILD_TEST_DEB")  # made once, so that every process has the same bytes
        _deb.append(Path(shared).read_bytes() if shared else tiny_deb())
    debs = Input("debs", "debian", (add(store, DEB, _deb[0]),))
    return Unit(
        "base",
        "tiny root",
        (Step("chown 1000 /etc/issue", "change an owner"),),
        inputs=(debs,),
        seed=(DEB,),
        epoch=EPOCH,
    )


def unit(name: str, *commands: str, lowers: Sequence[str] = ("base",), **rest: object) -> Unit:
    values: dict[str, object] = {
        "steps": tuple(Step(command) for command in commands),
        "lowers": tuple(lowers),
        "epoch": EPOCH,
    }
    return Unit(name, name, **(values | rest))  # type: ignore[arg-type]


def plan(store: Store, *units: Unit) -> Plan:
    return Plan("test", (base(store), *units), ImageConfig(), EPOCH)


def build(store: Store, *units: Unit, reporter: SilentReporter | None = None, **options: object) -> BuildResult:
    """Build the tiny root and `units` in this process."""
    return Embedded(packs=()).build(plan(store, *units), store, reporter or SilentReporter(), BuildOptions(**options))  # type: ignore[arg-type]


EVERYTHING = """
mkdir -p /opt/things && cd /opt/things
echo file > file; chmod 640 file; chown 1000:1000 file
mkfifo fifo; ln -s ../nowhere link; ln file hard; mkdir -m 1777 sticky; chmod 4755 . ; touch secret; chmod 0 secret
dd if=/dev/zero of=sparse bs=1 count=1 seek=1000000 2>/dev/null
printf x > "$(printf 'odd\\nname')"; printf y > "$(printf 'raw\\377byte')"
long=long/dddddddddd/$(printf "%0110d" 0); mkdir -p $long
echo l > $long/fff
cp /usr/bin/true true; setcap cap_net_raw+ep true
rm /data/two; rm -r /data/sub; mkdir /data/sub; echo new > /data/sub/new
chmod 644 /etc/issue; echo log > /var/log/x.log; touch /etc/passwd-
"""


def plans(name: str, store: Store) -> Plan:
    """Return the plan of a name, for other processes."""
    if name == "everything":
        return plan(
            store,
            unit("everything", EVERYTHING),
            unit("upon", "echo more > /opt/things/more", lowers=("base", "everything")),
        )
    if name == "box":
        from tests.support.box_plan import box_units

        return plan(store, *box_units(store))
    if name == "compiled":
        from tests.support.compiled_unit import compiling, toolchain

        return plan(store, toolchain(store), compiling(store))
    quiet = "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 300\" & "
    if name == "endless":
        return plan(store, unit("one", f"{quiet} sleep 300"), unit("two", f"{quiet} sleep 300"))
    if name == "slow":
        return plan(
            store,
            unit("one", f"{quiet} mkdir /opt/one; for i in 1 2 3 4; do echo $i > /opt/one/$i; sleep 0.1; done"),
            unit(
                "two",
                f"{quiet} mkdir /opt/two; rm /data/two; for i in 1 2 3 4; do echo $i > /opt/two/$i; sleep 0.1; done",
            ),
            unit("three", "cat /opt/one/4 > /opt/three; sleep 0.2", lowers=("base", "one", "two")),
        )
    if name == "fails":
        return plan(store, unit("bad", "echo kept > /opt/mark; exit 3"))
    raise KeyError(name)


def main() -> None:
    """Run ``tiny_root.py PLAN STORE [OPTION…]``: build, print the result as JSON."""
    name, folder, *options = sys.argv[1:]
    reporter = SilentReporter()
    try:
        store = Store.open(Path(folder))
        with in_use(store, reporter):
            built = Embedded(packs=()).build(
                plans(name, store),
                store,
                reporter,
                BuildOptions(workers=2, shell_on_fail="shell" in options, rebuild="rebuild" in options),
            )
        probe = Embedded().probe(store)
        answer = {
            "layers": [layer.diff_id for layer in built.layers],
            "built": built.built,
            "reused": built.reused,
            "detail": probe.detail,
        }
    except EnvbuildError as error:
        answer = {"error": str(error), "code": error.exit_code}
    print(json.dumps(answer | {"reported": reporter.lines}), flush=True)


__all__ = ["Product", "add", "base", "build", "make_deb", "plan", "plans", "unit"]

if __name__ == "__main__":
    main()

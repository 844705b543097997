"""Layers that try to leave their image, to use up memory, or to confuse their reader."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from tarfile import TarInfo

from tests.support import tars
from tests.support.link_chains import chain
from tests.support.local_registry import file, folder, hardlink, special, symlink, tar
from tests.support.tars import END, header, octal, pax

GIGA = 1 << 30
Entry = tuple[TarInfo, bytes]


@dataclass(frozen=True, slots=True)
class HostileLayers:
    """Layers above a good image, bottom first. `refused`: an export refuses them; else it writes them inside."""

    name: str
    tars: tuple[bytes, ...]
    refused: bool = True


def base256(number: int, width: int = 12) -> bytes:
    """Return a number of a header in GNU tar's form for large and negative ones."""
    return ((number & (1 << 8 * width) - 1) | 0x80 << 8 * (width - 1)).to_bytes(width, "big")


def one(name: str, *entries: Entry, refused: bool = True) -> HostileLayers:
    return HostileLayers(name, (tar(*entries),), refused)


def raw(name: str, *parts: bytes, refused: bool = True) -> HostileLayers:
    return HostileLayers(name, (b"".join(parts) + END,), refused)


def hostile_layers(outside: str) -> list[HostileLayers]:
    """Return all of them. `outside`: a folder of this machine, which has the file ``secret``."""
    return [*paths(outside), *hard_links(outside), *marks(outside), *numbers(), *extended_headers(), *damage()]


def paths(outside: str) -> list[HostileLayers]:
    up = "../" * 30
    links = {
        f"{count}-links": [symlink(name, target) for name, target in chain(count, outside).items()]
        for count in (40, 41, 61)
    }
    return [
        one("up", file("../new", b"x")),
        one("up-and-out", file(f"a/{up}{outside}/new", b"x")),
        one("absolute", file(f"{outside}/new", b"x"), refused=False),
        one("absolute-folder", folder(outside, 0o777), refused=False),
        one("through-link", symlink("l", outside), file("l/new", b"x"), refused=False),
        one("through-relative-link", symlink("l", up + outside), file("l/sub/new", b"x"), refused=False),
        HostileLayers("link-then-file", (tar(symlink("l", outside)), tar(file("l/secret", b"x"))), False),
        one("link-of-link", symlink("l", "/"), symlink("m", f"l{outside}"), file("m/new", b"x"), refused=False),
        one("link-replaced", symlink("l", outside), file("l", b"x"), refused=False),
        one("proc", file("proc/self/cwd/new", b"x"), refused=False),
        one("40-links", *links["40-links"], file("z0/new", b"x"), refused=False),
        one("41-links", *links["41-links"], file("z0/new", b"x")),
        one("61-links", *links["61-links"], file("z0/new", b"x")),
        one("circle", symlink("l", "m"), symlink("m", "l"), file("l/new", b"x")),
        one("link-to-itself", symlink("l", "l"), file("l/new", b"x")),
        one("empty-link", special("l", b"2", "")),
        one("etc-and-rc", symlink("etc", outside), symlink("etc/rc", f"{outside}/secret"), refused=False),
        one("root-is-a-file", file("./", b"")),
        one("root-is-a-link", symlink(".", outside)),
        raw("root-is-a-file-in-other-words", header(b"////", b"0")),
        one("root-has-other-modes", folder("./", 0o7777), refused=False),
        one("long-name", file("n" * 256, b"x")),
        one("long-path", file("/".join(["p" * 200] * 30), b"x")),
        one("deep", file("/".join(["d"] * 1200), b"x"), refused=False),
        one("deep-and-hidden", file("/".join(["d"] * 1200), b"x"), file(".wh.d"), refused=False),
        raw("nul-in-a-name", pax((b"path", b"a\0../../b")), header()),
        raw("nul-in-a-target", pax((b"linkpath", b"a\0b")), header(kind=b"2")),
    ]


def hard_links(outside: str) -> list[HostileLayers]:
    return [
        one("hard-link-out", hardlink("stolen", f"{outside}/secret")),
        one("hard-link-up", hardlink("stolen", f"{'../' * 30}{outside}/secret")),
        one("hard-link-through-link", symlink("l", outside), hardlink("stolen", "l/secret")),
        one("hard-link-to-link", symlink("l", f"{outside}/secret"), hardlink("again", "l"), refused=False),
        one("hard-link-to-folder", folder("d"), hardlink("again", "d")),
        one("hard-link-to-root", hardlink("again", "/")),
        one("hard-link-to-itself", hardlink("again", "again")),
        one("hard-links-in-a-circle", hardlink("a", "b"), hardlink("b", "a")),
        one("write-through-hard-link", symlink("l", f"{outside}/secret"), hardlink("m", "l"), file("m", b"x"),
            refused=False),
    ]  # fmt: skip


def marks(outside: str) -> list[HostileLayers]:
    return [
        one("mark-of-the-folder-above", file(".wh...")),
        one("mark-of-the-folder", file(".wh..")),
        one("mark-of-nothing", file("a/.wh.")),
        one("mark-above-all", file("../.wh.secret")),
        one("mark-out", file(f"{outside}/.wh.secret"), refused=False),
        one("mark-through-link", symlink("l", outside), file("l/.wh.secret"), file("l/.wh..wh..opq"), refused=False),
        HostileLayers("mark-through-lower-link", (tar(symlink("l", outside)), tar(file("l/.wh.secret"))), False),
        HostileLayers("opaque-through-lower-link", (tar(symlink("l", outside)), tar(file("l/.wh..wh..opq"))), False),
        one("files-below-a-mark", folder(".wh.d"), file(".wh.d/new", b"x"), refused=False),
        one("names-of-aufs", folder(".wh..wh.plnk"), file(".wh..wh.plnk/1.2", b"x"), refused=False),
        one("mark-is-a-link", symlink(".wh.x", outside), refused=False),
        one("overlay-of-the-host", special("x", b"3"), refused=False),
    ]


def numbers() -> list[HostileLayers]:
    return [
        *(
            raw(f"size-{size}", header(size=base256(size)))
            for size in (-1, 1 << 40, 1 << 62, (1 << 94) - 1)
        ),
        raw("size-in-junk", header(size=b"0x10\0\0\0\0\0\0\0\0")),
        raw("size-in-text", header(size=b"many bytes\0\0")),
        raw("size-of-a-folder", header(b"d/", b"5", size=octal(7 * GIGA)), refused=False),
        raw("size-of-a-link", header(b"l", b"2", size=octal(GIGA), link=b"x"), refused=False),
        raw("owner-below-zero", header(uid=base256(-2, 8))),
        raw("owner-too-large", header(uid=base256(1 << 40, 8))),
        raw("mode-in-junk", header(mode=b"rwxr-xr\0")),
        raw("time-below-zero", header(mtime=base256(-(1 << 40))), refused=False),
        raw("time-far-away", header(mtime=base256(1 << 60)), refused=False),
        raw("device-too-large", header(b"d", b"3", device=b"7777777\0" * 2)),
        raw("sparse-without-end", pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"s"), (b"GNU.sparse.realsize", b"%d" % (1 << 62))), tars.file(b"x", b"0\n")),
        raw("sparse-backwards", tars.old_sparse(real=b"00000000001\0")),
        raw("sparse-with-many-parts", pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"s"), (b"GNU.sparse.realsize", b"9")), tars.file(b"x", b"9" * 500_000 + b"\n")),
    ]  # fmt: skip


def extended_headers() -> list[HostileLayers]:
    million = b"x" * ((1 << 20) - 100)
    large = header(b"PaxHeaders/x", b"x", size=octal(2 * GIGA))
    value = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return [
        raw("claims-two-gigabytes", large),
        raw("claims-two-gigabytes-in-a-record", tars.file(b"PaxHeaders/x", b"2147483648 path=x\n", b"x"), header()),
        raw("claims-a-long-name", header(b"././@LongLink", b"L", size=octal(2 * GIGA))),
        raw("claims-a-long-target", header(b"././@LongLink", b"K", size=base256(1 << 50))),
        raw("many-large-headers", *([pax((b"comment", million)), tars.file(b"f")] * 40), refused=False),
        raw("header-of-a-header", pax((b"path", b"a")), pax((b"path", b"b")), header()),
        raw("many-headers-for-all", *([pax((b"comment", b"x" * 900), kind=b"g")] * 500), header(), refused=False),
        raw("header-for-nothing", pax((b"path", b"x"))),
        raw("length-too-small", tars.file(b"PaxHeaders/x", b"3 path=x\n", b"x"), header()),
        raw("length-below-zero", tars.file(b"PaxHeaders/x", b"-9 path=x\n", b"x"), header()),
        raw("no-equals-sign", tars.file(b"PaxHeaders/x", b"9 pathxx\n", b"x"), header()),
        raw("path-up", pax((b"path", b"../../new")), header()),
        raw("size-in-a-record", pax((b"size", b"%d" % (1 << 70))), header()),
        raw("size-below-zero-in-a-record", pax((b"size", b"-1")), header()),
        raw("time-in-words", pax((b"mtime", b"noon")), header()),
        raw("attributes-of-overlay", pax((b"SCHILY.xattr.trusted.overlay.redirect", b"/"),
            (b"SCHILY.xattr.user.overlay.redirect", b"/etc"), (b"SCHILY.xattr.user.overlay.opaque", b"y"),
            (b"SCHILY.xattr.user.overlay.whiteout", b"y")), header(b"d/", b"5")),
        raw("all-capabilities", pax((b"SCHILY.xattr.security.capability", value)), tars.file(b"f", b"x"),
            refused=False),
        raw("large-attribute", pax((b"SCHILY.xattr.user.a", b"x" * 100_000)), tars.file(b"f", b"x")),
    ]  # fmt: skip


def damage() -> list[HostileLayers]:
    whole = tar(file("a", b"x" * 3000), file("b", b"y"))
    return [
        HostileLayers("cut-in-data", (whole[:2000],)),
        HostileLayers("cut-in-a-header", (whole[:300],)),
        HostileLayers("no-tar", (b"hello" * 500,)),
        HostileLayers("more-after-its-end", (whole + tar(file("c")),)),
        HostileLayers("sum-is-wrong", (whole[:20] + b"\1" + whole[21:],)),
        raw("backup", header(b"d", b"D")),
        raw("several-volumes", header(b"m", b"M")),
        HostileLayers("nothing", (b"",), False),
        HostileLayers("zeros-alone", (bytes(10240),), False),
        HostileLayers("the-same-layer-three-times", (whole,) * 3, False),
    ]

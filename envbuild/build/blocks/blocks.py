"""Building blocks of envbuild's own, for recipes: a source unpacked, a prefix by autotools or CMake, a wheel.

Every one begins with a title (hpccm's comment), works in a fixed folder and leaves nothing of the build behind that no
program links: pip's and hpccm's random folders, debug information and libtool's archives would get into the product."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.build.blocks import hpccm
from envbuild.build.blocks.git_shim import git_without_history
from envbuild.build.blocks.patches import apply_patches
from envbuild.build.steps import INPUTS, WORK
from envbuild.spec.recipe import VENV, Archive, Git, GitProject, PipSource

# Debug information holds build paths and makes a library ten times its size.
NO_DEBUG = {"CFLAGS": "-g0 -O2", "CXXFLAGS": "-g0 -O2"}
# Upstream tarballs belong to their maker's user id, which a namespace with few ids cannot give to a file.
UNPACK = {"TAR_OPTIONS": "--no-same-owner"}


def folder(source: Git | Archive) -> str:
    """Return where `source` is unpacked."""
    return f"{WORK}/{source.name}"


def source(source: Git | Archive, *, patches: Sequence[Path] = ()) -> list[Any]:
    """Unpack a tarball of /run/envbuild/archives into `folder(source)`, without its one top folder; then apply
    `patches` (`apply_patches`)."""
    target = shlex.quote(folder(source))
    tarball = shlex.quote(f"{INPUTS}/archives/{source.file}")
    return [
        hpccm.comment(f"{source.name}: the source"),
        hpccm.shell(
            commands=[
                f"mkdir -p {target}",
                f"tar -xf {tarball} -C {target} --strip-components=1 --no-same-owner",
                *([f"cd {target}", *apply_patches(patches, _version(source))] if patches else []),
            ]
        ),
    ]


def autotools(
    source: Git | Archive,
    prefix: str,
    *,
    title: str = "",
    bootstrap: str = "",
    configure: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    static: bool = False,
    patches: Sequence[Path] = (),
) -> list[Any]:
    """Return ``configure && make && make install`` of `source` into `prefix` (hpccm's generic_autotools), then `tidy`.

    `bootstrap` makes the configure script (``./autogen.sh``), `before` are further commands ahead of it, in the source
    folder; `after` run in the prefix; `make` are words for both make calls; `static` keeps static libraries.
    `patches` are applied before all of them (`apply_patches`)."""
    top = source.file.removesuffix(".tar") if isinstance(source, Git) else _top(source.file)
    block = hpccm.generic_autotools(
        package=source.file,
        directory=top,
        prefix=prefix,
        preconfigure=[*apply_patches(patches, _version(source)), *before, *([bootstrap] if bootstrap else [])],
        configure_opts=list(configure),
        postinstall=[*after, tidy(prefix, static=static)],
        comment=False,
    )
    variables = {**NO_DEBUG, **UNPACK, **environment}
    return [hpccm.environment(variables=variables), hpccm.comment(title or f"{source.name}: build"), block]


def cmake(
    source: Git | Archive,
    prefix: str,
    *,
    title: str = "",
    options: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    after: Sequence[str] = (),
    static: bool = False,
    patches: Sequence[Path] = (),
) -> list[Any]:
    """Return ``cmake && cmake --build --target install`` of `source` into `prefix` (hpccm's generic_cmake), then
    `tidy`. `patches` are applied first (`apply_patches`)."""
    top = source.file.removesuffix(".tar") if isinstance(source, Git) else _top(source.file)
    block = hpccm.generic_cmake(
        package=source.file,
        directory=top,
        prefix=prefix,
        preconfigure=apply_patches(patches, _version(source)),
        cmake_opts=["-DCMAKE_BUILD_TYPE=Release", *options],
        postinstall=[*after, tidy(prefix, static=static)],
        comment=False,
    )
    variables = {**NO_DEBUG, **UNPACK, **environment}
    return [hpccm.environment(variables=variables), hpccm.comment(title or f"{source.name}: build"), block]


def tidy(prefix: str, *, static: bool = False) -> str:
    """Return the command that takes out of a prefix what only a build of it needs: libtool's archives (they hold the
    paths of the build), static libraries, symbols that no program links."""
    where = shlex.quote(prefix)
    names = "-name '*.la'" if static else r"\( -name '*.la' -o -name '*.a' \)"
    return (
        f"find {where} {names} -delete && "
        f"find {where} -type f \\( -name '*.so*' -o -perm -100 \\) -exec sh -c "
        '\'for file; do case "$(head -c 4 "$file" | tail -c 3)" in ELF) strip --strip-unneeded "$file" || exit 1;; '
        "esac; done' sh {} +"
    )


def python_wheel(
    project: str | PipSource,
    *,
    git: Git | GitProject | None = None,
    environment: Mapping[str, str] = {},
    before: Sequence[str] = (),
    settings: Sequence[str] = (),
    subfolder: str = "",
    patches: Sequence[Path] = (),
) -> list[Any]:
    """Compile the one sdist of `project`, or `git` (its `subfolder`), into a wheel in /run/envbuild/out, with the
    packages that the unit's venv has.

    A `PipSource` names the sdist by its project; a text is the beginning of the file's name (``flash_attn``).

    `patches` are applied to the whole source (`apply_patches`); `before` are commands in the source folder; `settings`
    are words for the build backend (PEP 517 config settings, ``--build-option=--cpp_ext``). The folder is fixed and
    debug information is off: pip's random build folder would get into the binary otherwise. A setup.py that calls
    ``git submodule update`` finds a git (`git_without_history`).
    """
    shim, tools = git_without_history()
    name = project.name if isinstance(project, PipSource) else project
    target = f"{WORK}/{name}"
    sdist = project.found if isinstance(project, PipSource) else f"{INPUTS}/sdists/{project}-*.tar.gz"
    tarball = f"{INPUTS}/archives/{git.file}" if git else sdist
    version = _version(git) if git else project.requirement if isinstance(project, PipSource) else project
    where = f"{target}/{subfolder}" if subfolder else target
    words = "".join(f" --config-setting={shlex.quote(word)}" for word in settings)
    return [
        hpccm.comment(f"{name}: wheel from {'its repository' if git else 'its source distribution'}"),
        hpccm.environment(
            variables={"CFLAGS": "-g0", "CXXFLAGS": "-g0", "PATH": f"{tools}:{VENV}/bin:$PATH", **environment}
        ),
        hpccm.shell(
            commands=[
                *shim,
                f"mkdir -p {target} {INPUTS}/out",
                f"tar -x{'' if git else 'z'}f {tarball} -C {target} --strip-components=1 --no-same-owner",
                *([f"cd {target}", *apply_patches(patches, version)] if patches else []),
                f"cd {where}",
                *before,
                f'"$UV" build --wheel --no-build-isolation --python {VENV}/bin/python{words} --out-dir {INPUTS}/out .',
            ]
        ),
    ]


def _version(source: Git | GitProject | Archive) -> str:
    """Return the source as an error names it."""
    if isinstance(source, Archive):
        return source.origin
    return f"{source.origin} {source.tag or source.commit[:12]}"


def _top(file: str) -> str:
    """Return the folder that a release tarball unpacks to, by the custom that it has the tarball's name."""
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tar"):
        if file.endswith(suffix):
            return file.removesuffix(suffix)
    return file

"""The files that enroot and pyxis need inside an image, from its run-time configuration.

`enroot import` writes /etc/rc (the start script), /etc/rc.local, /etc/environment and /etc/fstab from an image's OCI
configuration. An image of envbuild contains the same files, so that it starts as an imported one does. A setting that
enroot would silently change, drop or fail on (`envbuild.spec.enroot_rules`) is refused; all findings are reported
together. Third-party images are repaired instead (`envbuild.export.enroot_repair`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from envbuild.core.errors import EnvbuildError, Finding, SpecError, VerifyError
from envbuild.core.text import escaped
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind, Member
from envbuild.spec.enroot_rules import (
    PATH_FILE,
    RESERVED,
    SHELL_ACTIVE,
    first_substitution,
    has_shell_syntax,
    is_valid_variable,
    path_script,
    shell_quote,
    strips_quotes,
)
from envbuild.squashfs.pack.index import DIR, FILE
from envbuild.squashfs.write.merge import MergedTree

RC_LOCAL = "# Sourced by /etc/rc before the command runs.\n# pyxis replaces this file.\n"


@dataclass(frozen=True, slots=True)
class Additions:
    """Members to put on top of an image, with their content, and one line for each repair."""

    extra: tuple[tuple[Member, bytes], ...]
    messages: tuple[str, ...] = ()


def configure(config: ImageConfig, tree: MergedTree, epoch: int) -> Additions:
    """Return the members that `tree` needs to start under enroot according to `config`.

    `epoch`: the time of the added files, in seconds.

    Raises SpecError with every finding when enroot cannot represent `config`, VerifyError when only the tree is at
    fault.
    """
    findings = [*check_env(config), *check_words(config), *check_home(config, tree), *check_workdir(config, tree)]
    missing = list(check_shell(tree))
    if findings or missing:
        kind: type[EnvbuildError] = SpecError if findings else VerifyError
        raise kind.of([*findings, *missing])
    texts = {
        "etc/environment": "".join(f"{name}={value}\n" for name, value in config.env.items()),
        "etc/fstab": "",
        "etc/rc": start_script(config),
        "etc/rc.local": RC_LOCAL,
    }
    messages = []
    path = config.env.get("PATH")
    # an image of the project contains the file already: its glue unit writes it, for imports from a registry
    has_path_file = tree.lookup(PATH_FILE.encode()) is not None
    if path is not None and not has_path_file and tree.lookup(b"etc/profile") is not None:
        texts[PATH_FILE] = path_script(path)
        messages.append(f"PATH would be lost to /etc/profile: added /{PATH_FILE}")
    extra = [
        (Member(name.encode(), Kind.FILE, 0o644, mtime=epoch, size=len(text.encode())), text.encode())
        for name, text in texts.items()
    ]
    workdir = posixpath.normpath(config.workdir or "/").strip("/")
    if workdir and tree.lookup(workdir.encode()) is None:
        extra.append((Member(workdir.encode(), Kind.DIR, 0o755, mtime=epoch), b""))
        messages.append(f"created the working directory /{workdir}")
    return Additions(tuple(extra), tuple(messages))


def start_script(config: ImageConfig, first: str = "") -> str:
    """Return the text of /etc/rc: labels as comments, the lines `first`, the working directory, then the entrypoint
    with the given command or the image's own."""
    labels = "".join(f"# {name} {value}\n" for name, value in sorted(config.labels.items()))
    comments = labels + "\n" if labels else ""
    workdir = config.workdir or "/"
    # between double quotes, as enroot writes it, unless the shell would interpret something in it
    folder = shell_quote(workdir) if has_shell_syntax(workdir) else f'"{workdir}"'
    entrypoint = [shell_quote(word) for word in config.entrypoint]
    with_arguments = " ".join([*entrypoint, '"$@"'])
    command = " ".join([*entrypoint, *map(shell_quote, config.cmd)]) or shell_quote("/bin/sh")
    return (
        f"{comments}{first}"
        f"mkdir -p {folder} 2> /dev/null\n"
        f"cd {folder} && unset OLDPWD || exit 1\n"
        "\n"
        "if [ -s /etc/rc.local ]; then\n"
        "    . /etc/rc.local\n"
        "fi\n"
        "\n"
        "if [ $# -gt 0 ]; then\n"
        f"    exec {with_arguments}\n"
        "else\n"
        f"    exec {command}\n"
        "fi\n"
    )


def check_env(config: ImageConfig) -> Iterator[Finding]:
    """Yield the variables that would not arrive in a container unchanged."""
    for name, value in config.env.items():
        where = f"ENV {name}" if is_valid_variable(name) else f"ENV {name!a}"
        if not is_valid_variable(name):
            yield Finding("enroot drops a variable with this name", where, "use letters, digits and '_' only")
        elif name.startswith(RESERVED):
            yield Finding("enroot drops variables that begin with ENROOT_", where, "set it in the job instead")
        if "\n" in value or "\0" in value:
            yield Finding(
                "its value has a line break or NUL; enroot would read the rest as other variables",
                where,
                "put it on one line",
            )
        if found := first_substitution(value):
            yield Finding(
                f"enroot replaces {found} at start, by the job's value or nothing", where, "write the value itself"
            )
        if strips_quotes(value):
            yield Finding("its value begins and ends with a quote, which enroot strips", where, "leave the quotes out")


def check_words(config: ImageConfig) -> Iterator[Finding]:
    """Yield the labels that would become lines of the start script, and commands that no shell can represent."""
    for name, value in config.labels.items():
        if any(sign in name + value for sign in "\n\r\0"):
            yield Finding(
                "a line break in it would become a command of /etc/rc",
                f"LABEL {escaped(name)}",
                "put it on one line",
            )
    if any("\0" in word for word in config.cmd):
        yield Finding("a word of the command holds NUL", "CMD")


def check_home(config: ImageConfig, tree: MergedTree) -> Iterator[Finding]:
    """Yield a HOME that enroot could not enter."""
    home = config.env.get("HOME")
    if home is None:
        return
    node = tree.lookup(home.encode()) if home.startswith("/") else None
    if node is None or node.kind != DIR:
        yield Finding(
            f"{home!r} is not a directory of the image; enroot would fail to start", "ENV HOME", "leave HOME out"
        )


def check_workdir(config: ImageConfig, tree: MergedTree) -> Iterator[Finding]:
    """Yield a working directory that the start script could not name or enter."""
    workdir, where = config.workdir or "/", "WORKDIR"
    if not workdir.startswith("/"):
        yield Finding(f"{workdir!r} is not an absolute path", where, f"use /{workdir}")
        return
    if any(sign in workdir for sign in SHELL_ACTIVE + "\n\0"):
        yield Finding(f"{workdir!r} holds a sign that the shell would interpret in /etc/rc", where, "use a plain path")
        return
    path = posixpath.normpath(workdir).strip("/")
    node = tree.lookup(path.encode())
    if path.startswith("dev/"):
        yield Finding(f"{workdir!r} is hidden by the host's /dev", where, "use another path")
    elif node is not None and node.kind != DIR:
        yield Finding(f"{workdir!r} is not a directory in the image", where, "use another path")


def check_shell(tree: MergedTree) -> Iterator[Finding]:
    """Yield a missing /bin/sh: without it neither enroot nor pyxis can start anything."""
    shell = tree.lookup(b"bin/sh")
    if shell is None or shell.kind != FILE:
        yield Finding(
            "the image has no /bin/sh; enroot and pyxis cannot start it", "/bin/sh", "use a base that has a shell"
        )
    elif not shell.mode & 0o111:
        yield Finding("the image's /bin/sh is not executable", "/bin/sh", "use a base that has a shell")

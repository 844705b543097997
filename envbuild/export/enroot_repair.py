"""The files that enroot and pyxis need inside a third-party image, and the repairs of its configuration.

Where `enroot import` would continue, so does this. A setting that would differ from Docker is passed in another way, or
left out, and each repair is logged in one line. Only an image that could not start at all is refused. The rules of
enroot are those of `envbuild.spec.enroot_rules`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from envbuild.core.errors import EnvbuildError, Finding, InputError, VerifyError
from envbuild.core.text import escaped
from envbuild.export import enroot
from envbuild.export.enroot import Additions
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind, Member
from envbuild.spec.enroot_rules import (
    PATH_FILE,
    drops_name,
    first_substitution,
    has_shell_syntax,
    path_script,
    shell_quote,
    strips_quotes,
)
from envbuild.squashfs.pack.index import DIR, FILE
from envbuild.squashfs.write.merge import MergedTree, Node

ENV_FILE = "etc/profile.d/zz-envbuild-env.sh"
MOUNTED = ("dev", "proc", "sys")  # of the host
EMPTY = ("tmp", "var/run", "var/lock")  # an empty file system of the memory is mounted over them
REPLACED = ("etc/rc", "etc/rc.local", "etc/environment", "etc/fstab")
# Of a path of a configuration: bytes as PATH_MAX of Linux, those of a name, and folders; each is read from the root.
LONGEST, LONGEST_NAME, DEEPEST = 4096, 255, 256
MOST_VOLUMES = 100
QUOTED = 200  # characters of a path in a message
AGAIN = "make an image of it that has another one: printf 'FROM IMAGE\\n{}\\n' | docker build -t NEW -"


@dataclass(slots=True)
class _Repair:
    """One image while it is repaired.

    `messages`: a line for each repair.
    `exports`: variables for the login shell.
    `folders`: to be created, each with its message.
    `created_at_start`: folders to be created at each start.
    """

    config: ImageConfig
    tree: MergedTree
    messages: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    exports: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    created_at_start: list[str] = field(default_factory=list)

    def node(self, path: str) -> Node | None:
        return self.tree.lookup(path.encode(errors="surrogatepass"))

    def has_room(self, path: str) -> bool:
        """Return whether `path` is a folder or can become one: every existing part of it is a folder."""
        if len(path.encode(errors="surrogatepass")) >= LONGEST or path.count("/") >= DEEPEST:
            return False
        parts = path.split("/")
        if any(len(part.encode(errors="surrogatepass")) > LONGEST_NAME for part in parts):
            return False
        for count in range(1, len(parts) + 1):
            node = self.node("/".join(parts[:count]))
            if node is None:
                return True
            if node.kind != DIR:
                return False
        return True

    def add_folder(self, path: str, what: str) -> None:
        """Ensure that a folder exists."""
        if path and self.node(path) is None and not self.inside(path, (*MOUNTED, *EMPTY)):
            self.folders[path] = f"created the {what} /{path}"

    def inside(self, path: str, folders: tuple[str, ...]) -> str:
        """Return the first of `folders` that `path` is below, also by a symbolic link (/run and /var/run), or ""."""
        above = [path[:at] for at, sign in enumerate(path) if sign == "/"]
        nodes = [node for node in map(self.node, above) if node is not None]
        for folder in folders:
            node = self.node(folder)
            if folder in above or any(node is other for other in nodes):
                return folder
        return ""


def quoted(text: str) -> str:
    """Return a text of a configuration as messages show it."""
    return ascii(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def repair(config: ImageConfig, tree: MergedTree, epoch: int) -> Additions:
    """Return the members that `tree` needs to start under enroot according to `config`, and a line for each
    difference from Docker.

    Raises InputError with every finding when the image could not start, VerifyError when only the tree is at fault.
    """
    work = _Repair(config, tree)
    env = sort_environment(work)
    labels = {join_lines(key): join_lines(value) for key, value in config.labels.items()}
    work.messages += [
        f"LABEL {join_lines(key)}: line breaks became blanks" for key in config.labels if has_line_breaks(config, key)
    ]
    workdir = working_directory(work)
    for name, words in (("ENTRYPOINT", config.entrypoint), ("CMD", config.cmd)):
        if any("\0" in word for word in words):
            work.findings.append(
                Finding("an argument contains NUL, which no program can receive", name, AGAIN.format(name))
            )
    fstab = "".join(fstab_lines(work))
    missing = list(enroot.check_shell(tree))
    if work.findings or missing:
        kind: type[EnvbuildError] = InputError if work.findings else VerifyError
        raise kind.of([*work.findings, *missing])
    note_differences(work)
    found = replace(config, env=env, labels=labels, workdir=workdir)
    shell = profile_files(work)
    first = shell.pop("etc/rc", "") + "".join(
        f"mkdir -p {shell_quote(path)} 2> /dev/null\n" for path in work.created_at_start
    )
    texts = {
        "etc/environment": "".join(f"{name}={value}\n" for name, value in env.items()),
        "etc/fstab": fstab,
        "etc/rc": enroot.start_script(found, first),
        "etc/rc.local": enroot.RC_LOCAL,
        **shell,
    }
    members: dict[str, tuple[Member, bytes]] = {}
    for name, text in texts.items():
        content = text.encode(errors="surrogatepass")
        members[name] = Member(name.encode(), Kind.FILE, 0o644, mtime=epoch, size=len(content)), content
    for folder in work.folders:
        path = folder.encode(errors="surrogatepass")
        members[folder] = Member(path, Kind.DIR, 0o755, mtime=epoch), b""
    return Additions(tuple(members.values()), (*work.messages, *work.folders.values()))


def sort_environment(work: _Repair) -> dict[str, str]:
    """Return the variables that /etc/environment can represent; move the others to the login shell, or leave them
    out."""
    env: dict[str, str] = {}
    for name, value in work.config.env.items():
        where = f"ENV {escaped(name)}"
        by_shell = ""
        if drops_name(name):
            work.messages.append(f"{where}: left out, because enroot drops variables of such a name")
        elif "\0" in value:
            work.messages.append(f"{where}: left out, because its value holds NUL")
        elif name == "HOME" and not provide_home(work, value):
            work.messages.append(
                f"{where}: left out, because {quoted(value)} cannot be entered; the job's own HOME counts"
            )
        elif "\n" in value:
            by_shell = "of its line break"
        elif found := first_substitution(value):
            by_shell = f"enroot would replace {found} in it"
        elif strips_quotes(value):
            by_shell = "enroot would strip the quotes around its value"
        else:
            env[name] = value
        if by_shell:
            work.exports[name] = value
            work.messages.append(f"{where}: set by /{shell_file(work)} instead of /etc/environment, because {by_shell}")
    return env


def provide_home(work: _Repair, value: str) -> bool:
    """Return whether HOME can be entered; create it when it is missing."""
    path = posixpath.normpath(value).strip("/")
    if not value.startswith("/") or "\n" in value or not work.has_room(path) or work.inside(path, (*MOUNTED, *EMPTY)):
        return False
    work.add_folder(path, "home directory")
    return True


def working_directory(work: _Repair) -> str:
    """Return the working directory as /etc/rc names it."""
    given = work.config.workdir or "/"
    workdir = given if given.startswith("/") else f"/{given}"
    path = posixpath.normpath(workdir).strip("/")
    if "\0" in workdir or not work.has_room(path) or (work.inside(path, MOUNTED) and path != "dev/shm"):
        why = f"{quoted(given)} is not a directory of the image and cannot become one"
        work.findings.append(Finding(why, "WORKDIR", AGAIN.format("WORKDIR /")))
        return workdir
    if workdir != given:
        work.messages.append(f"WORKDIR: {quoted(given)} is taken as {quoted(workdir)}")
    if has_shell_syntax(workdir):
        work.messages.append(f"WORKDIR: {quoted(workdir)} is quoted in /etc/rc, where a shell would interpret it")
    work.add_folder(path, "working directory")
    return workdir


def fstab_lines(work: _Repair) -> Iterator[str]:
    """Yield the lines of /etc/fstab: a volume is writable in Docker, and enroot mounts it over itself."""
    if len(work.config.volumes) > MOST_VOLUMES:
        work.messages.append(f"VOLUME: only the first {MOST_VOLUMES} of {len(work.config.volumes)} are mounted")
    for given in work.config.volumes[:MOST_VOLUMES]:
        path = posixpath.normpath(f"/{given}").strip("/")  # `..` of the root is the root
        bad = any(ord(sign) < 32 for sign in given) or "\\" in given or first_substitution(given)
        if bad or not path or not work.has_room(path):
            work.messages.append(f"VOLUME {quoted(given)}: left out, because it cannot be mounted")
            continue
        if host := path if path in MOUNTED else work.inside(path, MOUNTED):
            work.messages.append(f"VOLUME {quoted(given)}: left out, because the host's /{host} is mounted there")
            continue
        if empty := work.inside(path, EMPTY):  # for a line of it, enroot would create a folder that no user can enter
            work.created_at_start.append(f"/{path}")
            work.messages.append(
                f"VOLUME {quoted(given)}: made by /etc/rc, because enroot mounts an empty /{empty} over it"
            )
            continue
        work.add_folder(path, "volume")
        target = f"/{path}".replace(" ", "\\040")
        if target != given:
            work.messages.append(f"VOLUME {quoted(given)}: written as {target} in /etc/fstab")
        yield f"${{ENROOT_ROOTFS}}{target} {target} none x-create=dir,bind,rw,nosuid,nodev\n"


def shell_file(work: _Repair) -> str:
    """Return the file that sets variables for the shell of /etc/rc.

    An image whose /etc/profile reads /etc/profile.d has that folder. Without it, only /etc/rc itself runs after the
    image's own profile.
    """
    if work.node("etc/profile") is None:
        return "etc/profile"
    folder = work.node("etc/profile.d")
    return ENV_FILE if folder is not None and folder.kind == DIR else "etc/rc"


def profile_files(work: _Repair) -> dict[str, str]:
    """Return files for the login shell that runs /etc/rc; under the name etc/rc, the lines that it begins with."""
    target = shell_file(work)
    texts = {}
    path = work.config.env.get("PATH")
    is_reset = path is not None and "PATH" not in work.exports and target != "etc/profile"
    if is_reset and path is not None and target == "etc/rc":
        work.exports["PATH"] = path
        work.messages.append("PATH would be lost to /etc/profile: /etc/rc sets it again")
    elif is_reset and path is not None and work.node(PATH_FILE) is None:
        texts[PATH_FILE] = path_script(path)
        work.messages.append(f"PATH would be lost to /etc/profile: added /{PATH_FILE}")
    if work.exports:
        lines = "".join(f"export {name}={shell_quote(value)}\n" for name, value in work.exports.items())
        about = "# Variables of the image that /etc/environment cannot hold.\n"
        texts[target] = lines if target == "etc/rc" else about + lines
    return texts


def note_differences(work: _Repair) -> None:
    """Note what remains unchanged and differs from Docker."""
    env = work.config.env
    if work.config.user.partition(":")[0] not in ("", "0", "root"):
        work.messages.append(f"USER {escaped(work.config.user)} is ignored: everything runs as the job's user")
    if env.get("NVIDIA_VISIBLE_DEVICES", "void") != "void" and "NVIDIA_DRIVER_CAPABILITIES" not in env:
        work.messages.append(
            # prose: keep (part of the image)
            "NVIDIA_DRIVER_CAPABILITIES is not set, so that enroot brings no CUDA driver: "
            "start with  export NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    for name in REPLACED:
        node = work.node(name)
        if node is not None and node.kind == FILE and node.pack is not None:
            size = node.pack.index.columns["sizes"][node.row]
            if size:
                work.messages.append(f"replaced the image's own /{name} ({size} bytes), as enroot does")
    for name in EMPTY:
        node = work.node(name)
        if node is not None and node.kind == DIR and holds_files(node):
            work.messages.append(f"what the image has in /{name} is hidden at start: enroot mounts an empty one there")


def holds_files(folder: Node) -> bool:
    """Return whether a folder contains anything but folders."""
    return any(child.kind != DIR or holds_files(child) for child in folder.children.values())


def join_lines(text: str) -> str:
    """Return a text on one line, as enroot 4.1.2 writes labels."""
    return text.replace("\r\n", " ").translate({10: " ", 13: " ", 0: " "})


def has_line_breaks(config: ImageConfig, key: str) -> bool:
    return join_lines(key) != key or join_lines(config.labels[key]) != config.labels[key]

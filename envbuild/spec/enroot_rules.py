"""The rules of enroot for an image's environment, used to refuse an image and to repair one.

enroot (4.1.2: src/docker.sh docker::configure, src/common.sh common::envsubst and envfmt) writes ``config.Env`` line by
line into /etc/environment without quoting, drops invalid names, expands ``${NAME}`` from the job, and strips a pair of
surrounding quotes. Such values are refused when a spec is read: a job must start with the values that the image was
verified with.
"""

from __future__ import annotations

import re

# enroot's own rules
RESERVED = "ENROOT_"  # enroot drops every variable of an image with this prefix
SHELL_ACTIVE = '$`"\\'  # special between double quotes, where /etc/rc has the working directory
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SUBSTITUTED = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_QUOTED = re.compile(r"""["'].*["'][ \t]*\Z""", re.DOTALL)

# Limits of the texts of a spec.
# The reader of a text → (what it would expand, the rest of the message). Every other text is literal.
EXPANDED: dict[str, tuple[tuple[str, ...], str]] = {
    # /etc/environment: enroot replaces ${NAME}, and has no escape for it; $NAME, $(…) and backticks it leaves alone
    "environment": (("${",), ": enroot would replace it with a variable of the job, or with nothing"),
    # an option that a recipe may put into a command: recipes quote, and this is the second line of defence
    "command": (("${", "$(", "`"), ": a shell would expand it, and texts of a spec are literal"),
    # the content of a file: it is copied, and neither a shell nor enroot reads it on the way
    "file": ((), ""),
}

# Under enroot the image's value beats the job's, also for variables that Slurm and the launcher set for each rank.
OF_THE_JOB = ("SLURM_", "PMI_", "PMIX_", "OMPI_COMM_")
OF_THE_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TUNABLE = ("NCCL_", "UCX_", "UCC_")

# Paths that enroot's hooks read and write as ${ENROOT_ROOTFS}/PATH on the node (4.1.2: conf/hooks/10-shadow.sh,
# 10-localtime.sh, 10-aptfix.sh; src/runtime.sh: etc/environment, etc/fstab; pyxis: etc/rc.local). A link on the way is
# followed outside of the container. Homes of users are anywhere below the root: links in the root itself count, too.
FOLLOWED = (
    b"etc",
    b"etc/passwd",
    b"etc/group",
    b"etc/login.defs",
    b"etc/default/useradd",
    b"etc/debian_version",
    b"etc/apt/apt.conf.d/enroot",
    b"var/mail",
)
FOLLOWED_TREES = (b"etc/skel", b"usr/share/zoneinfo")  # with all that is in them: cp -L, and the zone of the node
NO_ZONE = b"usr/share/zoneinfo/localtime"  # Debian's link to /etc/localtime: no zone of a node has this name
ZONE, ZONES = b"etc/localtime", "/usr/share/zoneinfo/"  # a link, and where it leads

# A file of every image for enroot.
PATH_FILE = "etc/profile.d/zz-envbuild-path.sh"


def is_valid_variable(name: str) -> bool:
    """Return whether enroot accepts `name` as the name of a variable."""
    return bool(_NAME.match(name))


def drops_name(name: str) -> bool:
    """Return whether enroot drops a variable of this name."""
    return not is_valid_variable(name) or name.startswith(RESERVED)


def first_substitution(value: str) -> str:
    """Return the first ``${NAME}`` of `value`, which enroot replaces at start by the job's value or nothing; or "".

    There is no escape for it."""
    found = _SUBSTITUTED.search(value)
    return found[0] if found else ""


def strips_quotes(value: str) -> bool:
    """Return whether enroot strips the quotes around `value`: one pair, even a mismatched one."""
    return bool(_QUOTED.match(value))


def has_shell_syntax(path: str) -> bool:
    """Return whether a shell would interpret something in `path` between double quotes."""
    return any(sign in path for sign in SHELL_ACTIVE)


def name_fault(name: str) -> str:
    """Return what is wrong with the name of a variable in a spec, or ""."""
    if not is_valid_variable(name):
        return f"'{name}' is not a variable name: use letters, digits and '_', not beginning with a digit"
    if name.startswith(RESERVED):
        return f"'{name}' has no effect: enroot drops every {RESERVED} variable of an image"
    if name == "HOME":
        return "'HOME' belongs to the job: the container does not start if that folder is missing in the image"
    if name.startswith(OF_THE_JOB) or name in OF_THE_RANK:
        return f"'{name}' belongs to the job: an image's value would hide it on every rank"
    return ""


def expansion_fault(text: str, reader: str) -> str:
    """Return what is wrong with a text of a spec for that reader of `EXPANDED`, or "".

    Texts of a spec are literal. What their reader would expand is refused.
    """
    marks, because = EXPANDED[reader]
    found = next((mark for mark in marks if mark in text), "")
    return f"contains {found}{because}" if found else ""


def env_value_fault(value: str) -> str:
    """Return what is wrong with the value of a variable in a spec, or "".

    The YAML reader refuses line ends in every text."""
    if reason := expansion_fault(value, "environment"):
        return reason
    return "begins and ends with a quote: enroot would strip both" if strips_quotes(value) else ""


def path_script(path: str) -> str:
    """Return the text of `PATH_FILE`, which sets the image's PATH in a login shell, under which /etc/rc runs."""
    return (
        f"# A login shell gets another PATH from /etc/profile: this is the image's.\nexport PATH={shell_quote(path)}\n"
    )


def shell_quote(word: str) -> str:
    """Return a word quoted for any POSIX shell (dash does not understand bash's quoting of control characters)."""
    return "'" + word.replace("'", "'\\''") + "'"

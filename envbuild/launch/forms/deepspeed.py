"""DeepSpeed's launcher over pdsh, typed in the container of the first node: a host file with slots, no scheduler."""

from __future__ import annotations

import re

from envbuild.core.errors import Finding, SpecError
from envbuild.launch.clients import older
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.programs import starts_ranks
from envbuild.launch.quoting import in_own_shell, shell_command
from envbuild.launch.ssh_server import PACKAGE
from envbuild.launch.steps import FIXED_PORT, variable_lines

KIND = Kind(hosts=True)
PLAIN = re.compile(r"[\w@%+=:,./^-]*", re.ASCII)  # signs that all releases, and any shell, pass on
PDSH = re.compile("%[hnu%]")  # replaced by pdsh (pdsh(1)): the host, its number, the user
QUOTED = "0.16.5"  # the first known release that writes other values in double quotes (multinode_runner.py, add_export)
NO_SERVER = f"# this image has no SSH server: add {PACKAGE} to debian-packages: of its spec, or start the host's"


def write(plan: Plan) -> Written:
    """Return the script: host file, variables for all nodes, the launcher."""
    known = plan.image.layers or plan.image.versions
    if known and not plan.image.has("deepspeed", "deeperspeed"):
        raise SpecError(f"{plan.image.name} contains no DeepSpeed", hint="add layer deepspeed, or use --as torchrun")
    hosts = plan.request.hosts or ("localhost",)
    slots = [f"{host} slots={plan.workers}" for host in hosts]
    if plan.nodes > 1:
        check_values(plan)
    port = next((item.value for item in plan.env if item.name == "MASTER_PORT"), FIXED_PORT)
    launcher = list(plan.command)
    if not starts_ranks(plan.command):
        launcher = ["deepspeed", "--hostfile", "HOSTFILE", "--master_port", port, *plan.command]
    variables = [f"{item.name}={item.value}" for item in plan.env if plan.nodes > 1]
    text = [
        "# in a container on the first node; on each node a container of the same image answers to ssh",
        NO_SERVER if plan.nodes > 1 and plan.image.ssh_server is False else "",
        "hostfile=$(mktemp)  # NAME slots=N",
        "trap 'rm -f \"$hostfile\"' EXIT",
        f"printf '%s\\n' {shell_command(slots)} > \"$hostfile\"",
        *variable_lines(plan),
        # DeepSpeed passes on to other nodes the variables of this file alone
        '[ ! -e "$HOME/.deepspeed_env" ] || cp -n "$HOME/.deepspeed_env" "$HOME/.deepspeed_env.before"'
        if variables
        else "",
        # private, also in the place of one that others can read
        f"(umask 077; printf '%s\\n' {shell_command(variables)} > \"$HOME/.deepspeed_env.new\")" if variables else "",
        'mv -f "$HOME/.deepspeed_env.new" "$HOME/.deepspeed_env"' if variables else "",
        'export DLTS_HOSTFILE="$hostfile" PDSH_RCMD_TYPE=ssh DSHPATH="$PATH"',
        shell_command(launcher).replace("--hostfile HOSTFILE", '--hostfile "$hostfile"', 1),
    ]
    return Written(in_own_shell(filter(None, text)))


def check_values(plan: Plan) -> None:
    """Raise SpecError with each variable whose value another node would get changed: pdsh and its shell read it in a
    command, without quotes or in double quotes, and its white space at both ends is lost."""
    release = plan.image.versions.get("deepspeed", "")
    quoted = bool(release) and not older(release, QUOTED)

    def arrives(value: str) -> bool:
        if PDSH.search(value):
            return False
        return bool(PLAIN.fullmatch(value)) or (quoted and value == value.strip() and not set(value) & set('"$`\\\n'))

    why = "DeepSpeed's launcher does not quote its value for pdsh and the shells of other nodes"
    hint = "use --as sbatch, or set it in the program"
    if findings := [Finding(f"{item.name}: {why}", hint=hint) for item in plan.env if not arrives(item.value)]:
        raise SpecError.of(findings)

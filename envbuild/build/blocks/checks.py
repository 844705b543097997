"""Verify lines and build commands that several recipes share.

Nothing here imports hpccm: recipes use it at the top of their file, and `envbuild list` must not pay for that."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envbuild.core.text import hidden_characters
from envbuild.spec.recipe import VENV, Check, RecipeEnv

PYTHON = f"{VENV}/bin/python"
CUOBJDUMP = "/opt/cuda/bin/cuobjdump"
# Links libcuda.so.1 and libnvidia-ml.so.1 to the toolkit's stubs: with it on LD_LIBRARY_PATH modules that need the
# driver load on a machine without one.
STUB_DRIVER = "/opt/cuda/lib64/stubs/driver"


def imports(name: str, modules: Sequence[str], *, show: str = "", expect: str = "") -> Check:
    """Return the check that `modules` import beside torch, which has to be loaded first: they find libtorch through it.
    `show` is a Python expression whose value must match `expect`; each requires the other."""
    if bool(show) != bool(expect):
        raise ValueError(f"{name}: show and expect require each other")
    program = f"import torch, {', '.join(modules)}; print({show or repr('imported')})"
    title = f"{name}: imports beside torch" if len(modules) < 3 else f"{name}: {len(modules)} modules import"
    return beside_torch(title, program, expect or "imported")


def beside_torch(name: str, program: str, expect: str) -> Check:
    """Return the check that runs a Python program, which must begin with ``import torch``, and compares what it prints
    with `expect`. Several such checks of an image share one import of torch."""
    check = Check(name, f"{PYTHON} -c {shlex.quote(program)}", expect)
    if torch_program(check) != program:
        raise ValueError(f"{name}: the program must begin with import torch")
    return check


def torch_program(check: Check) -> str:
    """Return the program of a check that `beside_torch` made, "" of another one."""
    start = f"{PYTHON} -c "
    if not check.command.startswith(start):
        return ""
    try:
        words = shlex.split(check.command)
    except ValueError:  # a quote that is not closed
        return ""
    whole = len(words) == 3 and check.command == start + shlex.quote(words[2])
    return words[2] if whole and re.match(r"import torch\b", words[2]) else ""


def cubins(name: str, modules: Sequence[str], env: RecipeEnv, sm: str = "") -> Check:
    """Return the check that every one of the extension `modules` (dotted names) holds machine code for the target's GPU
    and for no other. `sm` ("80") where that is another number than the target's: sm_86 runs code for sm_80."""
    arch = sm or env.target.sm_arch
    files = " ".join(f"{env.site_packages}/{module.replace('.', '/')}.*so" for module in modules)
    return Check(
        f"{name}: code for sm_{arch} and nothing else",
        # a pattern that matches nothing is passed on unchanged, and cuobjdump fails
        f'for file in {files}; do echo "$file"; {CUOBJDUMP} --list-elf "$file" || exit 1; done',
        cubins_alone(arch),
    )


def only_this_gpu(name: str, files: Sequence[str], env: RecipeEnv) -> Check:
    """Return the check that each of `files` (paths; patterns of the shell) holds machine code for the target's GPU, and
    none of them such code for another one or PTX. `name` is whose they are."""
    each = f'echo "$file"; {CUOBJDUMP} --list-elf "$file" || exit 1; {CUOBJDUMP} --list-ptx "$file" 2>/dev/null'
    return Check(
        f"{name}: code for sm_{env.target.sm_arch} and nothing else",
        # a pattern that matches nothing is passed on unchanged, and cuobjdump fails
        f"for file in {' '.join(files)}; do {each}; done; true",
        cubins_alone(env.target.sm_arch),
    )


def cubins_alone(sm: str) -> str:
    """Return the pattern for the name of each file with what `cuobjdump` lists of it: machine code for this GPU, no
    other, and no PTX."""
    return rf"\A(?:/\S+\n(?:ELF file +\d+: \S*\.sm_{re.escape(sm)}[af]?\.cubin(?:\n|\Z))+)+\Z"


def two_ranks(program: str, *, options: str = "", environment: str = "") -> str:
    """Return the command that runs a Python program (a path) as two ranks on this machine, by torchrun."""
    prefix = f"{environment} " if environment else ""
    # with underscores: torch before 2.0 takes no other form
    return f"{prefix}{VENV}/bin/torchrun --standalone --nproc_per_node 2 {program}{f' {options}' if options else ''}"


# Runs a program as two ranks, forks of this process, which has imported torch: an import takes two CPU seconds. Ends
# one rank when the other fails: it would wait for it.
TWO_RANKS = """
import torch
import os, runpy, signal, socket, sys, time
with socket.create_server(("127.0.0.1", 0)) as free:
    both = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE="2")
running, failed = [], False
for rank in "01":
    child = os.fork()
    if not child:
        os.environ.update(both, RANK=rank, LOCAL_RANK=rank)
        torch.set_num_threads(1)
        sys.argv[:] = WORDS
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    running.append(child)
while running and not failed:
    time.sleep(0.05)
    for child in list(running):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            running.remove(child)
            failed = failed or status != 0
for child in running:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
sys.exit(failed)
""".strip()


def two_ranks_beside_torch(name: str, program: str, expect: str, *, source: str = "") -> Check:
    """Return the check that runs a Python program (a path), which imports torch, as two ranks on this machine, without
    torchrun: its agent and each rank would import torch. `source`: the text of the program, where no file of the image
    has it."""
    write = f"with open({program!r}, 'w') as file:\n    file.write({source!r})\n" if source else ""
    first, _, rest = TWO_RANKS.replace("WORDS", repr([program])).partition("\n")
    return beside_torch(name, f"{first}\n{write}{rest}", expect)


def two_ranks_alone(program: str, *, options: str = "", environment: str = "") -> str:
    """Return the command that does the same in an interpreter of its own: with `options`, or an `environment` that the
    loader reads."""
    start = f"{environment} {PYTHON} /tmp/ranks.py {program} {options}".strip()
    return f"{written('/tmp/ranks.py', TWO_RANKS.replace('WORDS', 'sys.argv[1:]'))} && {start}"


def written(path: str, text: str) -> str:
    """Return the command that writes a small text, one word of printf a line: it is readable in a Containerfile,
    where a here-document would end the instruction. A line end is added where the last line has none.

    Characters that are not shown, a carriage return or a form feed for example, are written as escapes: readers of a
    Containerfile take some of them for the end of a line, or for a blank."""
    lines, form = text.removesuffix("\n").split("\n"), "%s"
    if found := hidden_characters(text, "\n\t"):
        form = "%b"
        escapes = {ord(sign): "".join(f"\\0{byte:03o}" for byte in sign.encode()) for sign in found}
        lines = [line.translate({ord("\\"): r"\\", **escapes}) for line in lines]
    words = " \\\n        ".join(shlex.quote(line) for line in lines)
    return f"printf '{form}\\n' \\\n        {words} > {shlex.quote(path)}"

"""The line with which a finished file starts, at the end of make, export and pull."""

from __future__ import annotations

from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.launch.programs import MPI_LAYERS, usual_plugin
from envbuild.launch.shared_path import is_shared
from envbuild.net.site import Site

RECORD = b"etc/envbuild/resolution.json"
LIMIT = 1 << 20


def start_lines(path: Path, site: Site, again: str, *, chosen: bool, width: int = 9) -> str:
    """Return the lines that start a squashfs file on compute nodes; with MPI, if the image contains it and the site
    does not state that its Slurm has no PMIx. A folder of this machine alone is not named.

    again: the command that writes the file, to which -o is added.
    chosen: whether the user named the path, and so knows who reads it. width: of the titles.
    """
    folder = Path(site.images) if site.images else None
    within = folder is not None and path.absolute().is_relative_to(folder)
    copy, file = "", path
    if not (chosen or within or is_shared(path)):
        place = shell_word(folder / path.name) if folder else f"/a/shared/folder/{shell_word(path.name)}"
        copy = f"{again} -o {place}"
        if folder is None:
            todo = "write images: /a/shared/folder, which compute nodes read, into site.yaml, then:"
            return f"  {'start:':{width}} {todo} {copy}"
        path = folder / path.name
    image = f"--container-image={shell_word(path)}"
    lines = [("copy:", copy)] if copy else []
    lines.append(("start:", f"srun {image} --pty bash"))
    plugins = site.slurm.pmix
    if plugins != () and records_mpi(file):
        lines.append(("MPI:", f"srun --mpi={usual_plugin(plugins or ('pmix',))} -n 2 {image} CMD"))
    return "\n".join(f"  {title:{width}} {line}" for title, line in lines)


def records_mpi(path: Path) -> bool:
    """Return whether the image of a file was built with MPI, as its records in the file state."""
    from envbuild.core.json_text import record_value
    from envbuild.squashfs.read.tree import SquashTree  # not all of the metadata: a `make` without work is short

    try:
        with SquashTree(path) as tree:
            value = record_value((tree.read(RECORD, LIMIT) or b"{}").decode(errors="replace"))
    except (EnvbuildError, OSError, ValueError, RecursionError):
        return False
    order = value.get("order") if isinstance(value, dict) else None
    return isinstance(order, list) and any(name in MPI_LAYERS for name in order)

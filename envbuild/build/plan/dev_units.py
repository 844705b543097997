"""Project folders (`dev:` of a spec) in a plan: a unit with the content of each, and what installs it into the venv.

The unit contains /opt/dev/NAME alone, so it is based on nothing but the base, and an edit of the code rebuilds it and
the glue. The small files that make it a package of the venv (a path file, the metadata, the programs) are files of the
glue: they are the same whether the folder is copied or mounted."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from envbuild.build.plan.units import Blob, Input, Unit
from envbuild.build.steps import INPUTS, Step
from envbuild.lock.unit_names import BASE
from envbuild.spec.dev_project import DevContent, DevProject
from envbuild.spec.recipe import VENV

SCRIPT = """\
#!{venv}/bin/python
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({function}())
"""


def dev_unit(content: DevContent, epoch: int) -> Unit:
    """Return the unit with the content of a project folder."""
    project = content.project
    tar = Blob(f"{project.name}.tar", content.sha256, content.size)
    command = f"rm -rf {project.place} && mkdir -p {project.place} && cp -r {INPUTS}/project/. {project.place}/"
    return Unit(
        name=unit_name(project),
        title=f"{project.label}: copy of the project folder",
        lowers=(BASE,),
        inputs=(Input("project", "tree", (tar,)),),
        steps=(Step(command, f"{project.label}: copy of the project folder"),),
        keep=(project.place,),
        epoch=epoch,
    )


def unit_name(project: DevProject) -> str:
    return f"dev-{project.name}"


def venv_files(projects: Sequence[DevProject], site: str) -> dict[str, str]:
    """Return path (without the first slash) → content of the files that install the projects into the venv; `site` is
    its folder of packages."""
    found: dict[str, str] = {}
    for project in projects:
        own = {f"{site}/_envbuild_dev_{project.name}.pth": f"{project.import_path}\n"}
        own |= {program_path(name): text for name, text in programs(project).items()}
        if project.metadata.version:
            info = f"{site}/{project.name.replace('-', '_')}-{project.metadata.version}.dist-info"
            own |= {f"{info}/{name}": text for name, text in dist_info(project).items()}
            own[f"{info}/RECORD"] = record(own, f"{info}/RECORD", site)
        found |= own
    return {path.lstrip("/"): text for path, text in found.items()}


def install_command(projects: Sequence[DevProject]) -> str:
    """Return the command of the glue before its files are copied: a program of another package is not replaced."""
    paths = [program_path(name) for project in projects for name in project.scripts]
    if not paths:
        return ""
    return (
        f"for path in {' '.join(paths)}; do if [ -e $path ] || [ -L $path ]; then "
        'echo "the script $path of a project of dev belongs to another package, too: rename it" >&2; '
        "exit 1; fi; done && "
    )


def mode_command(projects: Sequence[DevProject]) -> str:
    """Return the command of the glue after its files are copied."""
    paths = [program_path(name) for project in projects for name in project.scripts]
    return f" && \\\n    chmod 755 {' '.join(paths)}" if paths else ""


def program_path(name: str) -> str:
    return f"{VENV}/bin/{name}"


def programs(project: DevProject) -> dict[str, str]:
    """Return the texts of the programs of a project."""
    found = {}
    for name, reference in project.metadata.programs.items():
        module, _, function = reference.partition("[")[0].strip().partition(":")
        first = function.partition(".")[0]
        found[name] = SCRIPT.format(venv=VENV, module=module, first=first, function=function)
    return found


def dist_info(project: DevProject) -> dict[str, str]:
    """Return the files of the metadata of an editable installation (PyPA, "Recording installed projects")."""
    stated = project.metadata
    head = ["Metadata-Version: 2.1", f"Name: {stated.title}", f"Version: {stated.version}"]
    groups: dict[str, list[str]] = {}
    for group, name, reference in stated.entry_points:
        groups.setdefault(group, []).append(f"{name} = {reference}\n")
    points = "\n".join(f"[{group}]\n{''.join(lines)}" for group, lines in groups.items())
    origin = {"dir_info": {"editable": True}, "url": f"file://{project.place}"}
    return {
        "METADATA": "".join(f"{line}\n" for line in (*head, *(f"Requires-Dist: {text}" for text in stated.requires))),
        "INSTALLER": "envbuild\n",
        "direct_url.json": json.dumps(origin, sort_keys=True) + "\n",
        **({"entry_points.txt": points} if points else {}),
    }


def record(files: Mapping[str, str], own: str, site: str) -> str:
    """Return the RECORD of files; `own` is its own path, which has no digest."""
    lines = []
    for path, text in sorted(files.items()):
        content = text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{relative(path, site)},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{relative(own, site)},,\n"])


def relative(path: str, site: str) -> str:
    """Return a path below `site`, or of a program of the venv, as RECORD has it."""
    return path.removeprefix(f"{site}/") if path.startswith(f"{site}/") else f"../../../bin/{path.rpartition('/')[2]}"

"""``envbuild importer …``: the program that pyxis starts for images of registries."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

importer_app = typer.Typer(
    help="Importer of pyxis: `srun --container-image=REGISTRY/REPOSITORY:TAG` fetches only packs that the node lacks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
SiteFile = Annotated[
    Path | None, typer.Option("--site", metavar="FILE", help="A site.yaml, instead of the user's own.")
]


@importer_app.command("get")
def importer_get(
    uri: Annotated[str, typer.Argument(metavar="URI", show_default=False, help="docker://REGISTRY/REPOSITORY:TAG")],
    site: SiteFile = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Where no registry answers, start what was last imported for this tag."),
    ] = False,
) -> None:
    """Print the path of an image's squashfs file. In a job step it remains until `release`."""
    from envbuild.core.console import WarningReporter
    from envbuild.core.store.leases import JobStep
    from envbuild.publish.pyxis_importer import import_image
    from envbuild.spec.workspace import open_site

    step = JobStep.of(os.environ)
    with open_site(site, WarningReporter()) as workspace:  # pyxis prints stderr of failures alone
        path = import_image(uri, workspace, step, offline=offline)
    typer.echo(str(path))


@importer_app.command("release")
def importer_release(site: SiteFile = None) -> None:
    """End the use of the files of this job step. It may be repeated."""
    from envbuild.core.store.leases import JobStep, release_step
    from envbuild.core.store.store import Store
    from envbuild.core.store.store_folders import check_former_group
    from envbuild.spec.workspace import read_site_file

    if step := JobStep.of(os.environ):
        store = Store(read_site_file(site).store)
        check_former_group(store.root)  # of another user, it may lead to any folder of this one
        release_step(store, step)


@importer_app.command("script")
def importer_script(
    site: SiteFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Pass --offline to `get`.")] = False,
) -> None:
    """Print the program to name in plugstack.conf. No variable of the job changes which Python it starts.

    \b
      envbuild importer script --site /etc/envbuild/site.yaml > /usr/local/libexec/envbuild-importer
      chmod 755 /usr/local/libexec/envbuild-importer
      # plugstack.conf:  required /usr/lib/slurm/spank_pyxis.so importer=/usr/local/libexec/envbuild-importer
    """
    from envbuild.core.errors import EngineError
    from envbuild.core.programs import run_program
    from envbuild.core.shell import shell_word
    from envbuild.spec.workspace import read_site_file

    if site:
        read_site_file(site)
    if run_program([sys.executable, "-I", "-c", "import envbuild"], cwd="/").returncode:
        raise EngineError(
            f"{sys.executable} finds envbuild through PYTHONPATH or its folder alone, which jobs lack",
            hint="install it into an environment that all nodes see: python3 -m venv /opt/envbuild && "
            "/opt/envbuild/bin/pip install envbuild",
        )
    own = f" --site {shell_word(site.absolute())}" if site else ""
    get = f"{own}{' --offline' if offline else ''}"
    python = f"exec {shell_word(sys.executable)} -I -m envbuild importer"
    typer.echo(
        "#!/bin/sh\n"
        "# Importer of pyxis, printed by envbuild importer script: IMPORTER get URI | IMPORTER release\n"
        "case $1 in\n"
        f'get) {python} get{get} -- "$2" ;;\n'
        f"release) {python} release{own} ;;\n"
        'esac\necho "usage: $0 get URI | $0 release" >&2\nexit 2'
    )

"""``envbuild launch``: the command, script or file that starts an image as a job."""

from __future__ import annotations

from typing import Annotated

import typer

from envbuild.cli.options import Json, complete_image, one_of, show, show_data
from envbuild.launch.forms import DEFAULT, FORMS

HOSTS = "Names of the nodes, where no scheduler knows them: a,b."


def launch_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|REF",
            show_default=False,
            help="A spec's name, a squashfs file, or docker://NAME:TAG.",
            autocompletion=complete_image,
        ),
    ],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="The command of each rank.")] = None,
    nodes: Annotated[int, typer.Option("-N", "--nodes", help="Number of nodes.")] = 1,
    form: Annotated[
        str, typer.Option("--as", help=f"What to write: {', '.join(FORMS)}.", autocompletion=one_of(*FORMS))
    ] = DEFAULT,
    submit: Annotated[bool, typer.Option("--submit", help="Start the job instead of printing it.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the owner and the reason of each variable and option.")
    ] = False,
    env: Annotated[
        list[str], typer.Option("-e", "--env", metavar="NAME=VALUE", help="Set a variable of the job; repeatable.")
    ] = [],  # noqa: B006
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="Why -e replaces the values of target and site.")
    ] = "",
    mount: Annotated[
        list[str], typer.Option("--mount", metavar="SRC[:DST[:ro]]", help="Mount a folder of the nodes; repeatable.")
    ] = [],  # noqa: B006
    tasks_per_node: Annotated[int, typer.Option(min=0, help="Ranks on a node (0: one for each GPU).")] = 0,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs on a node (0: all).")] = 0,
    cpus_per_task: Annotated[int, typer.Option(min=0, help="CPUs of a rank (0: from the target or the site).")] = 0,
    time: Annotated[str, typer.Option("--time", metavar="TIME", help="Time limit of the Slurm job, as 04:00:00.")] = "",
    partition: Annotated[str, typer.Option(help="Partition of Slurm; default: that of site.yaml.")] = "",
    job_name: Annotated[str, typer.Option("--name", help="Name of the job; default: that of the image.")] = "",
    hosts: Annotated[str, typer.Option("--hosts", metavar="NAME,…", help=HOSTS)] = "",
    hostfile: Annotated[str, typer.Option("--hostfile", metavar="FILE", help="The same, one name a line.")] = "",
    mpi: Annotated[
        bool | None, typer.Option("--mpi/--no-mpi", help="Whether the command starts with MPI (default: found out).")
    ] = None,
    compile_first: Annotated[
        bool, typer.Option("--compile", help="Run the compile step of the target first (Trainium).")
    ] = False,
    target: Annotated[str, typer.Option(help="Target of an image that records none.")] = "",
    as_json: Json = False,
) -> None:
    """Print the command, script or file that starts an image as a job, or start it.

    It is composed of image, target, site and command line, in this order. Nothing is printed that the clients of the
    site lack (slurm: in site.yaml; it need not state what the programs here answer).

    \b
      envbuild launch h100-ucc -N 2 -- all_reduce_perf -b 16M -e 8G -f 2 -g 1
      envbuild launch h100-ucc -N 2 --as sbatch -- python train.py > job.sh
    """
    from envbuild.cli.launch_job import launch_job, parse_hosts, parse_variables, parse_words
    from envbuild.launch.model import Request
    from envbuild.launch.submit import submit as submit_launch

    request = Request(
        command=tuple(command or ()),
        nodes=nodes,
        tasks_per_node=tasks_per_node,
        gpus=gpus,
        cpus_per_task=cpus_per_task,
        time=parse_words("--time", time),
        partition=parse_words("--partition", partition),
        name=parse_words("--name", job_name),
        env=parse_variables(env),
        because=because,
        mounts=tuple(mount),
        hosts=parse_hosts(hosts, hostfile),
        mpi=mpi,
        compile=compile_first,
        target=target,
    )
    launch, data, text = launch_job(name, form, request, explain=explain)
    if submit:
        raise typer.Exit(submit_launch(launch))
    if as_json or explain:
        show(data, as_json, text)
    else:
        show_data(launch.written.text)

"""``envbuild launch``: what the command line states, and what the command prints."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from envbuild.core.errors import Finding, SpecError
from envbuild.core.paths import expand_home
from envbuild.core.regular_file import read_bounded
from envbuild.core.text import first_hidden
from envbuild.core.yaml_reader import short
from envbuild.launch.explain import explain as explain_plan
from envbuild.launch.explain import plan_data
from envbuild.launch.launch import Launch, launch_image
from envbuild.launch.model import Request
from envbuild.spec.workspace import read_workspace

HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?"

MAX_HOSTS = 4 << 20  # bytes of a file with the names of nodes


def launch_job(name: str, form: str, request: Request, *, explain: bool) -> tuple[Launch, dict[str, Any], str]:
    """Return the launch, its data and its text. Raises as `launch_image`."""
    request = replace(request, root=os.geteuid() == 0)
    launch = launch_image(name, form, request, read_workspace(names=[name]))
    data = {"as": form, "text": launch.written.text, **plan_data(launch.plan, slurm=launch.slurm)}
    return launch, data, explain_plan(launch.plan, slurm=launch.slurm) if explain else launch.written.text


def parse_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Return the variables of ``-e NAME=VALUE``. Raises SpecError with every mistake."""
    findings = [Finding(f"-e {short(pair)}: no value", hint="type -e NAME=VALUE") for pair in pairs if "=" not in pair]
    names = [pair.partition("=")[0] for pair in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    findings += [Finding(f"-e {short(name)} is given twice", hint="leave out one") for name in twice]
    if findings:
        raise SpecError.of(findings)
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def parse_words(option: str, value: str) -> str:
    """Return the value of an option of Slurm. Raises SpecError for one with a control character."""
    if first_hidden(value):
        raise SpecError(f"{option} {short(value)!r} contains a control character", hint="write it on one line")
    return value


def parse_hosts(listed: str, file: str) -> tuple[str, ...]:
    """Return the names of hosts. Raises SpecError for one that is not a name, or is there twice."""
    if listed and file:
        raise SpecError("--hosts and --hostfile both name the nodes", hint="leave out one")
    names = [name for name in re.split(r"[,\s]+", listed) if name]
    if file:
        try:
            lines = read_bounded(expand_home(file), MAX_HOSTS).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
            raise SpecError(
                f"--hostfile {file} cannot be read: {why}", hint="name a file with one host a line"
            ) from None
        names = [words[0] for line in lines if (words := line.partition("#")[0].split())]
    for name in names:
        if not re.fullmatch(HOST, name):
            raise SpecError(f"'{short(name)}' is not the name of a host", hint="type --hosts NAME,NAME")
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise SpecError(f"host '{twice}' is named twice", hint="name each host once: a node has one container")
    return tuple(names)

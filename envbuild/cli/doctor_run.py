"""``envbuild doctor``: one pass over this machine, for a target, an image, or neither."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import EngineError, InputError, SpecError, VerifyError
from envbuild.doctor.examination import Examination, examine
from envbuild.doctor.host import Host
from envbuild.doctor.job_log import LogReading, read_log_file
from envbuild.doctor.log_results import log_results
from envbuild.doctor.main import missing_folder, mount_command, print_line
from envbuild.doctor.model import Need
from envbuild.doctor.report_text import report_text


@dataclass(frozen=True, slots=True)
class HostComparison:
    """An image compared with this machine: the answer for ``--json``, its text and its exit code."""

    data: Mapping[str, Any]
    text: str
    code: int


def examine_host(need: Need | None = None, without: Collection[str] = ()) -> Examination:
    """Return what one pass over this machine found. Raises EngineError without /proc and /sys."""
    host = Host(environ=with_store(os.environ), notice=print_line)
    if missing := missing_folder(host):
        raise EngineError(f"{missing} cannot be read", hint=mount_command(missing))
    return examine(host, need or Need(), without)


def with_store(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the store that the site configures; as it is where a site file is wrong, which the
    commands that use the store report."""
    from envbuild.spec.workspace import store_folder

    try:
        return {**environ, "ENVBUILD_STORE": str(store_folder())}
    except (SpecError, InputError):
        return dict(environ)


def need_of(target: str) -> Need:
    """Return what a target expects. Raises SpecError for an unknown one."""
    from envbuild.spec.project import Project
    from envbuild.spec.target import load_target
    from envbuild.spec.workspace import with_site_drivers
    from envbuild.verify.node_need import node_need

    return node_need(load_target(target, with_site_drivers(Project.find()))) if target else Need()


def examine_for(target: str, image: str, log: str, without: Collection[str] = ()) -> Examination:
    """Return one pass for a target, with the comparison with an image and the faults of a log. Without a target, the
    image's is used."""
    need = need_of(target)
    reading = read_job_log(log) if log else None
    if not image:
        found = examine_host(need, without)
    else:
        from envbuild.matrix.facts.compile import load_fact_table
        from envbuild.spec.project import Project
        from envbuild.verify.host_comparison import image_results
        from envbuild.verify.host_image import read_host_image
        from envbuild.verify.node_need import node_need

        known = read_host_image(image)
        if not target and known.target:
            need = node_need(known.target)
        found = examine_host(need, without)
        matrix = load_fact_table(Project.of(image).facts())
        found = found.with_results(image_results(found.facts, known, matrix, target))
    return found.with_log(log_results(reading, need)) if reading else found


def read_job_log(path: str) -> LogReading:
    """Return the reading of a log. Raises SpecError for a file that cannot be read."""
    try:
        return read_log_file(path, print_line)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", hint="--log FILE: the output of a job") from error


def compare_with_host(image: str) -> HostComparison:
    """Return an image compared with this machine."""
    found = examine_for("", image, "")
    return HostComparison(found.data(), report_text(found), VerifyError.exit_code if found.serious else 0)

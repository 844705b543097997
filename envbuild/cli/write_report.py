"""``envbuild report``: the image that the command line names, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

from envbuild.cli.check_images import check_image
from envbuild.core.errors import Finding, PublishError, SpecError
from envbuild.core.judged_links import is_folder
from envbuild.core.paths import expand_home
from envbuild.core.store.json_files import new_file_mode, write_atomic
from envbuild.core.yaml_reader import one_of, short
from envbuild.report.file_report import report_file
from envbuild.report.forms import FORMS
from envbuild.report.known_image import MatrixAnswer
from envbuild.report.model import Report
from envbuild.report.project_report import report_project_image
from envbuild.spec.workspace import read_workspace
from envbuild.verify.contents.squashfs_path import find_squashfs_file


def check_form(form: str, output: str) -> None:
    """Raise SpecError for an unknown form, and for an output that is not a file or a folder."""
    findings = []
    if form not in FORMS:
        findings.append(Finding(f"--to {short(form)} is not known", hint=one_of(form, FORMS, "the forms are")))
    path = expand_home(output) if output else None
    if output.endswith("/") and path and not path.is_dir():
        findings.append(Finding(f"-o {short(output)}: there is no such folder", hint="create it, or name a file"))
    elif path and path.exists() and not (path.is_file() or path.is_dir()):
        findings.append(Finding(f"-o {short(output)} is not a file", hint="name a file, or leave out -o for stdout"))
    if findings:
        raise SpecError.of(findings)


def make_report(name: str) -> Report:
    """Return the report of NAME or FILE. Raises SpecError for a spec with mistakes, VerifyError for a damaged file."""
    workspace = read_workspace(names=[name])
    if file := find_squashfs_file(name):
        return report_file(file, workspace)
    found = check_image(name)
    return report_project_image(name, workspace, MatrixAnswer(found.answer, found.title, found.refusals))


def write_report(output: str, file_name: str, text: str) -> Path:
    """Write the text into the file or folder `output`, whole or not at all; return its path. Raises PublishError."""
    path = expand_home(output)
    if output.endswith("/") or is_folder(path):
        path = path / file_name.replace("/", "-")
    try:
        write_atomic(path, lambda file: file.write(text.encode()), new_file_mode())
    except OSError as error:
        raise PublishError(
            f"-o {output} cannot be written: {error.strerror}", hint="name a file in a folder that you can write to"
        ) from None
    return path.absolute()

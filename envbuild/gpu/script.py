"""The checks as one file: a Python program (>= 3.8) that an image or a machine runs without envbuild."""

from __future__ import annotations

from pathlib import Path

from ..doctor.program_text import package_sources, program_text
from .model import Job, job_data

PACKAGE = "envbuild_checks"
# The modules of the doctor that these import; the package above both is empty.
SHARED = ("model", "process_tree", "processes", "log_signs", "program_text")
LEFT_OUT = ("script.py", "__main__.py")
MODULE = f"{PACKAGE}.gpu.main"
# The program writes itself again for its own processes: standard input, which it may be read from, is at its end then.
AGAIN = f"importlib.import_module('{PACKAGE}.doctor.program_text').program_text"
ARGUMENTS = f"""JOB, VERSION, {AGAIN}('', {{}}, SOURCES, '{MODULE}', "{{}}, ''")"""

TITLE = """envbuild {version}: checks of GPUs for the image {image}.

One file for Python >= 3.8, without packages. It writes one file with evidence, and changes nothing.

    python3 THIS_FILE node -o gpu-evidence.json

Exit codes: 0 no check failed, 2 usage, 7 a check failed."""


def single_file(job: Job, version: str) -> str:
    """Return the program. `job`: the image and its target."""
    folder = Path(__file__).parent
    doctor = package_sources(folder.parent / "doctor", f"{PACKAGE}.doctor")
    sources = {
        PACKAGE: "",
        **{f"{PACKAGE}.doctor": doctor[f"{PACKAGE}.doctor"]},
        **{name: text for name, text in doctor.items() if name.rpartition(".")[2] in SHARED and name.count(".") == 2},
        **package_sources(folder, f"{PACKAGE}.gpu", LEFT_OUT),
    }
    title = TITLE.format(version=version, image=job.image or "without a name")
    return program_text(title, {"VERSION": version, "JOB": job_data(job)}, sources, MODULE, ARGUMENTS)

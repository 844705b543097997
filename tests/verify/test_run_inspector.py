"""The program that is sent into images: complete, small enough, and for every Python that a distribution here has."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild import inspector
from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import EngineError, VerifyError
from envbuild.inspector.report import MARK
from envbuild.verify import run_inspector

pytestmark = pytest.mark.unit

FOLDER = Path(inspector.__path__[0])
NEWER = {"removeprefix", "removesuffix", "is_relative_to", "with_stem", "pairwise", "bit_count", "batched"}


def test_every_module_travels_and_fits_into_one_argument() -> None:
    assert set(map(run_inspector.module_name, run_inspector.MODULES)) == {path.stem for path in FOLDER.glob("*.py")} - {
        "__init__"
    }
    assert len(run_inspector.inspector_program({"singles": []}).encode()) < 128 << 10


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_the_oldest_python_can_read_it(path: Path) -> None:
    oldest = min(tuple(map(int, item.python.split("."))) for item in DISTRIBUTIONS.values())
    tree = ast.parse(path.read_text(), feature_version=(oldest[0], oldest[1]))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & NEWER
    options = {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
    assert not options & {"strict", "slots", "kw_only"}
    assert "from __future__ import annotations" in path.read_text() or path.stem == "__init__"


def test_the_program_contains_the_text_of_its_files() -> None:
    program = run_inspector.inspector_program({})
    for path in FOLDER.glob("*.py"):
        if path.stem != "__init__":
            assert repr((path.stem, path.read_text())) in program


def test_options_reach_the_program() -> None:
    sent: list[str] = []

    def runner(argv: Sequence[str]) -> tuple[int, str]:
        sent.extend(argv)
        return 0, f'noise\n{MARK}{{"schema": 1}}\n'

    own = run_inspector.OwnContent(prefixes=("/opt/ucx",), folders=("/opt/ucx",), dists=("apex",))
    assert run_inspector.inspect_image(runner, own, singles=["libnccl"], cuobjdump=False) == {"schema": 1}
    options = {
        "singles": ["libnccl"],
        "cuobjdump": False,
        "prefixes": ["/opt/ucx"],
        "compiled": {"folders": ["/opt/ucx"], "dists": ["apex"]},
    }
    assert sent[:5] == [run_inspector.PYTHON, "-I", "-S", "-B", "-c"]
    assert sent[5].endswith(f".main({options!r})\n")


def test_a_failing_program_is_reported() -> None:
    def runner(argv: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-c", "raise SystemExit('no /usr')"], capture_output=True, text=True)
        return done.returncode, done.stderr

    with pytest.raises(VerifyError, match="no /usr") as caught:
        run_inspector.inspect_image(runner)
    assert "python3" in caught.value.findings[0].hint


def test_a_limit_of_the_machine_is_no_fault_of_the_image() -> None:
    program = """if True:
        import errno
        from envbuild.inspector import report
        def full(options):
            raise OSError(errno.EMFILE, "Too many open files", "/usr/bin/csplit")
        report.make_document = full
        report.main({})
    """

    def runner(argv: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        return done.returncode, done.stdout

    with pytest.raises(EngineError, match="Too many open files") as caught:
        run_inspector.inspect_image(runner)
    assert "ulimit -n" in caught.value.findings[0].hint


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 6000, "[]", "null", "{", "NaN", ""])
def test_a_report_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(VerifyError):
        run_inspector.inspect_image(lambda argv: (0, f"{MARK}{text}\n"))


@pytest.mark.parametrize("text", ["[" + "[]," * 1_100_000 + "0]", '{"a": "' + "x" * run_inspector.LARGEST + '"}'])
def test_a_report_that_would_take_much_memory_is_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="printed something else than the report"):
        run_inspector.parse_report(text)


def test_the_output_in_a_message_is_short() -> None:
    with pytest.raises(VerifyError) as caught:
        run_inspector.inspect_image(lambda argv: (1, "x" * 1_000_000))
    assert len(str(caught.value)) < 10_000

"""Requirements that the metadata of a wheel does not state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import ConflictError
from envbuild.lock.python.resolve import PythonResolution
from envbuild.lock.request import UnitRequest
from tests.support.lock_server import wheel
from tests.support.python_resolver import versions, work

pytestmark = pytest.mark.unit


@pytest.fixture
def subject(tmp_path: Path) -> PythonResolution:
    """Return an index with NumPy of both ABIs, and a pyarrow of which the later release needs the second."""
    folder = tmp_path / "wheels"
    for version in ("1.26.4", "2.5.5"):
        wheel(folder, "numpy", version)
    for version in ("25.0.1", "26.0.1"):
        wheel(folder, "pyarrow", version)
    wheel(folder, "datasets", "5.0", requires=("numpy>=1.17", "pyarrow>=21.0.0"))
    return work(tmp_path, str(folder))


def test_numpy_1_gets_the_last_pyarrow_that_works_with_it(subject: PythonResolution) -> None:
    """pyarrow 26 raises ImportError with NumPy 1, and its metadata requires no NumPy."""
    old = subject.lock({"venv": UnitRequest(python=("datasets", "numpy<2"))})
    assert versions(old, "venv") == ["datasets 5.0", "numpy 1.26.4", "pyarrow 25.0.1"]
    new = subject.lock({"venv": UnitRequest(python=("datasets",))})
    assert versions(new, "venv") == ["datasets 5.0", "numpy 2.5.5", "pyarrow 26.0.1"]


def test_numpy_1_of_a_base_image_counts(subject: PythonResolution) -> None:
    on_image = replace(subject, present={"numpy": "1.26.4"})
    assert versions(on_image.lock({"venv": UnitRequest(python=("datasets",))}), "venv") == [
        "datasets 5.0",
        "pyarrow 25.0.1",
    ]


def test_a_pyarrow_without_numpy_is_the_newest(subject: PythonResolution) -> None:
    assert versions(subject.lock({"venv": UnitRequest(python=("pyarrow",))}), "venv") == ["pyarrow 26.0.1"]


def test_a_pyarrow_that_cannot_be_older_is_an_error_with_its_cause(subject: PythonResolution) -> None:
    with pytest.raises(ConflictError) as caught:
        subject.lock({"venv": UnitRequest(python=("datasets", "numpy<2", "pyarrow>=26"))})
    assert caught.value.message == (
        "pyarrow 26.0.1 needs numpy>=2, which its metadata does not state, and the image has numpy 1.26.4"
    )
    assert caught.value.hint == "write pyarrow<26, or numpy>=2, under python-packages"

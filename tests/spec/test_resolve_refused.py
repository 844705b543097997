"""Images that cannot be, of the shipped recipes, targets and facts, beside the exact words that answer them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError
from envbuild.core.yaml_nodes import relative_path
from envbuild.lock.resolve import resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit

REFUSED = Path(__file__).parent / "refused"
CASES = sorted(path.stem for path in REFUSED.glob("err-*.yaml"))


def test_the_corpus_is_complete() -> None:
    """Each spec has its text and each text its spec."""
    assert sorted(path.stem for path in REFUSED.glob("err-*.txt")) == CASES


@pytest.mark.slow_unit
@pytest.mark.parametrize("case", CASES)
def test_message(case: str, update_golden: bool) -> None:
    project, path = Project.find(Path(__file__).parents[2]), REFUSED / f"{case}.yaml"
    with pytest.raises(EnvbuildError) as caught:
        resolve_in(load_image_spec(str(path), project), project)
    text = str(caught.value).replace(relative_path(path), "{path}") + f"\nexit {caught.value.exit_code}\n"
    stored = path.with_suffix(".txt")
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()

"""Texts that users can type: hints of recipes' own checks, where a commit is written down, whole lines."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path

import pytest

from envbuild.core.console import LineReporter
from envbuild.core.errors import SpecError
from envbuild.lock.commit_origin import commit_hints
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.resolve import resolve
from envbuild.spec.target import load_target as load_target

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
CHECKED = [*sorted((ROOT / "recipes").glob("*.py")), ROOT / "envbuild" / "spec" / "released_recipe.py"]


def spec(folder: Path, layers: str, base: str = "debian:13") -> Path:
    path = folder / "x.yaml"
    path.write_text(f"schema: 1\ntarget: h100-ib\nbase: {base}\nlayers: {layers}\n")
    return path


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.stem))
def test_every_check_of_a_recipe_has_a_hint(path: Path) -> None:
    """A ValueError is the message, then "; " and the hint."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and ast.unparse(node.exc.func) == "ValueError"
        ):
            texts = [part.value for part in ast.walk(node.exc) if isinstance(part, ast.Constant)]
            assert any("; " in str(text) for text in texts), f"{path.name}:{node.lineno}"


def test_a_runtime_flavor_of_another_provider_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        load_image_spec(str(spec(tmp_path, "{cuda: {provider: apt, flavor: runtime}}")), Project(tmp_path))
    assert error.value.message == "layer 'cuda': 'flavor: runtime' is for provider: wheels or debian, not for apt"
    assert error.value.hint == "take provider: wheels or debian, or flavor: devel"


def test_where_a_commit_is_written_down(tmp_path: Path) -> None:
    own = "1" * 40
    project = Project(tmp_path)
    (tmp_path / "recipes").mkdir()
    fixed = tmp_path / "recipes" / "fixed.py"
    fixed.write_text(
        "from dataclasses import dataclass\nfrom envbuild.sdk import Git, Recipe, RecipeEnv, Sources\n\n"
        f'SOURCE = Git("fixed", "github:demo/fixed", "{"2" * 40}", "v1")\n\n\n'
        "@dataclass(frozen=True, kw_only=True)\nclass Fixed(Recipe):\n"
        "    def sources(self, env: RecipeEnv) -> Sources:\n        return Sources(git=(SOURCE,))\n"
    )
    layers = f'{{ucx: {{provider: source}}, gdrcopy: {{version: "9.9", commit: "{own}"}}, fixed: {{}}, cuda: "13.2"}}'
    image = load_image_spec(str(spec(tmp_path, layers)), project)
    found = commit_hints(resolve(image, load_target("h100-ib", project)))
    by_name = {file.partition("-")[0]: hint.change for file, hint in found.items()}
    assert by_name["gdrcopy"] == "the commit under 'gdrcopy' in the spec"
    assert by_name["fixed"] == f"the commit in {fixed}:4:1"  # the recipe has no such options
    assert next(hint.recipe for file, hint in found.items() if file.startswith("fixed")) == f"{fixed}:4:1"
    place, _, option = by_name["ucx"].partition(", or ")
    assert option == "write version: and commit: under 'ucx' in the spec"
    file, line, _ = place.removeprefix("the commit in ").rsplit(":", 2)
    commit = next(name for name in found if name.startswith("ucx-")).removeprefix("ucx-").removesuffix(".tar")
    assert commit in Path(ROOT, file).read_text().splitlines()[int(line) - 1]


class Calls:
    """A stderr that keeps what each call writes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)

    def flush(self) -> None: ...


def test_lines_of_several_threads_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    monkeypatch.setattr(sys, "stderr", calls)
    reporter, gate = LineReporter(), threading.Barrier(4)

    def work(name: str) -> None:
        gate.wait()
        for number in range(50):
            reporter.start(f"{name} {number}", f"{name} {number}")

    threads = [threading.Thread(target=work, args=(f"source{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls.texts) == 200
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in calls.texts)

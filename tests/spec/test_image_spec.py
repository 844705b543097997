"""Valid image specs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envbuild.core.distributions import PLACE
from envbuild.core.errors import SpecError
from envbuild.spec import image_spec
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit


def options(image: ImageSpec, name: str) -> dict[str, object]:
    return vars(image.recipes[name])


def written(folder: Path, text: str, project: Project, name: str = "mine") -> ImageSpec:
    path = folder / f"{name}.yaml"
    path.write_text("schema: 1\ntarget: node\nbase: debian:13\n" + text)
    return image_spec.load_image_spec(str(path), project)


def test_every_key(small: Project) -> None:
    image = image_spec.load_image_spec("good", small)
    assert (image.name, image.target, image.base, image.python) == ("good", "node", "debian:13", "3.13")
    assert image.description == "A spec that uses what there is"
    assert list(image.recipes) == ["widget", "toolkit", "gadget", "python-things"]
    assert options(image, "toolkit") == {"version": "13.2"}
    assert options(image, "python-things")["packages"] == ("numpy", "torch>=2; python_version < '4'")
    widget = options(image, "widget")
    assert widget["mode"].value == "small"  # type: ignore[attr-defined]
    assert {key: value for key, value in widget.items() if key != "mode"} == {
        "version": "1.20",
        "jobs": 4,
        "ratio": 0.5,
        "shared": False,
        "level": "high",
        "plugins": ("a", "b"),
        "flags": {"x": "1"},
        "note": None,
    }
    assert image.env == {"GREETING": "hello world"}
    assert [item[:2] for item in image.waivers] == [("widget.toolkit-minor", "tested here")]
    assert image.where["toolkit"].endswith("images/good.yaml:10:3")
    assert image.where[PLACE].endswith("images/good.yaml:6:1")
    assert image.text == image.path.read_text()


def test_names_come_from_files(small: Project) -> None:
    image = image_spec.load_image_spec("good", small)
    assert all(recipe.name == name for name, recipe in image.recipes.items())


def test_extends(small: Project) -> None:
    """Layers are replaced whole, null removes, everything else is taken over."""
    child, parent = image_spec.load_image_spec("child", small), image_spec.load_image_spec("good", small)
    assert (child.name, child.target, child.base) == ("child", "box", "debian:13")
    assert list(child.recipes) == ["widget", "toolkit", "python-things"]
    assert options(child, "widget")["jobs"] == 2
    assert options(child, "widget")["version"] == ""
    assert child.recipes["toolkit"] == parent.recipes["toolkit"]
    assert child.env == {"MORE": "1"}
    assert [item[:2] for item in child.waivers] == [("widget.toolkit-minor", "tested there")]
    assert child.where["toolkit"].endswith("good.yaml:10:3")
    assert child.where["widget"].endswith("child.yaml:7:3")
    assert child.where[PLACE] == parent.where[PLACE]
    assert child.text == parent.text + "---\n" + child.path.read_text()


def test_extends_takes_the_spec_beside_first(tmp_path: Path, small: Project) -> None:
    written(tmp_path, "description: beside\n", small, "good")
    (tmp_path / "child.yaml").write_text("schema: 1\nextends: good\n")
    assert image_spec.load_image_spec(str(tmp_path / "child.yaml"), small).description == "beside"


def test_a_mistake_in_the_extended_file_has_its_place(tmp_path: Path, small: Project) -> None:
    (tmp_path / "low.yaml").write_text("schema: 1\ntarget: node\nbase: debian:13\nlayrs: {}\n")
    (tmp_path / "high.yaml").write_text("schema: 1\nextends: low\nlayers: {wodget: {}}\n")
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec(str(tmp_path / "high.yaml"), small)
    assert [finding.where for finding in caught.value.findings] == [
        f"{tmp_path}/high.yaml:3:10",
        f"{tmp_path}/low.yaml:4:1",
    ]


def test_only_the_required_keys(tmp_path: Path, small: Project) -> None:
    image = written(tmp_path, "layers:\nenv:\nwaivers:\n", small)
    assert (image.python, dict(image.recipes), dict(image.env), image.waivers) == ("3.13", {}, {}, ())


@pytest.mark.parametrize(
    "value",
    ["", " leading and trailing ", "$HOME and $(id) and `id`", 'an "inner" quote', '"unbalanced', "ä # ; \\ {}", "'"],
)
def test_values_that_enroot_preserves(value: str, tmp_path: Path, small: Project) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert written(tmp_path, f'env: {{TEXT: "{quoted}"}}\n', small).env == {"TEXT": value}


def test_bom_and_crlf(tmp_path: Path, small: Project) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfschema: 1\r\ntarget: node\r\nbase: debian:13\r\nlayers:\r\n  toolkit: {}\r\n")
    assert list(image_spec.load_image_spec(str(path), small).recipes) == ["toolkit"]


def test_file_names_that_cannot_name_an_image(tmp_path: Path, small: Project) -> None:
    with pytest.raises(SpecError, match="cannot be the name of an image"):
        written(tmp_path, "", small, "Mine")


def based(folder: Path, small: Project, **bases: str) -> Project:
    """Return a copy of the project with images on these bases."""
    assert small.root
    shutil.copytree(small.root, folder, dirs_exist_ok=True)
    for name, base in bases.items():
        (folder / "images" / f"{name}.yaml").write_text(f"schema: 1\ntarget: node\nbase: {base}\n")
    return Project(folder)


def test_a_base_of_the_project_has_its_python_and_distribution(small: Project, tmp_path: Path) -> None:
    image = image_spec.load_image_spec("above", based(tmp_path, small, above="good"))
    assert (image.base, image.python, image.distribution) == ("good", "3.13", "debian:13")


def test_images_that_are_based_on_each_other_are_refused(small: Project, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec("one", based(tmp_path, small, one="two", two="three", three="two"))
    assert "two → three → two" in caught.value.message
    assert caught.value.findings[0].where.endswith("images/three.yaml:3:7")


def test_a_chain_of_bases_has_a_limit(small: Project, tmp_path: Path) -> None:
    bases = {f"n{number}": f"n{number + 1}" for number in range(1000)}
    with pytest.raises(SpecError, match="more than 20 images are based on each other"):
        image_spec.load_image_spec("n0", based(tmp_path, small, **bases, n1000="good"))
    assert image_spec.load_image_spec("n990", Project(tmp_path)).python == "3.13"

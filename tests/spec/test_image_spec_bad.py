"""Every mistake that a user can make in a spec, beside its exact error message."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec import image_spec
from envbuild.spec.project import Project
from tests.support.examples import examples

pytestmark = pytest.mark.unit

BAD = Path(__file__).parent / "bad"
CASES = sorted(path.stem for path in BAD.glob("err-*.yaml"))


def test_the_corpus_is_complete() -> None:
    """Each spec has its text and each text its spec."""
    assert len(CASES) >= 40
    assert sorted(path.stem for path in BAD.glob("err-*.txt")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, small: Project, update_golden: bool) -> None:
    path = BAD / f"{case}.yaml"
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec(str(path), small)
    text = str(caught.value).replace(relative_path(path), "{path}").replace(relative_path(BAD), "{bad}") + "\n"
    stored = path.with_suffix(".txt")
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "name", ["a/b", "../good", "..", "", "Good", "-good", "go od", "good\n", "gööd", "x" * 101, "a..b"]
)
def test_a_name_is_not_a_path(name: str, small: Project) -> None:
    with pytest.raises(SpecError, match="cannot be the name of an image"):
        image_spec.load_image_spec(name, small)


def test_a_misspelt_name_has_a_hint(small: Project) -> None:
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec("god", small)
    assert str(caught.value) == "no image is called 'god'\nhint: did you mean 'good'?"


@pytest.mark.parametrize("name", ["missing.yaml", "../missing.yaml", "nul\0.yaml"])
def test_a_path_to_nothing(name: str, small: Project) -> None:
    with pytest.raises(SpecError, match=r"no such file|not a possible file name"):
        image_spec.load_image_spec(name, small)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path, small: Project) -> None:
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        image_spec.load_image_spec(str(big), small)


def test_a_folder_is_not_a_spec(tmp_path: Path, small: Project) -> None:
    (tmp_path / "x.yaml").mkdir()
    with pytest.raises(SpecError, match="not a file"):
        image_spec.load_image_spec(str(tmp_path / "x.yaml"), small)


def test_very_many_mistakes_are_truncated(tmp_path: Path, small: Project) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("schema: 1\n" + "".join(f"key{number}: 1\n" for number in range(5000)))
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec(str(path), small)
    assert len(caught.value.findings) == 101
    assert caught.value.findings[-1].message == "and more mistakes after these 100"


def only_spec_errors(text: str | bytes, folder: Path, project: Project) -> None:
    path = folder / "any.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    try:
        assert isinstance(image_spec.load_image_spec(str(path), project), image_spec.ImageSpec)
    except SpecError as error:
        assert all(finding.where for finding in error.findings)


SHARED_FIXTURES = examples(200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
KEYS = ["schema", "target", "base", "python", "layers", "env", "waivers", "extends", "description", "dev"]
WORDS = st.sampled_from(
    [*KEYS, "node", "debian:13", "good", "3.13", "widget", "toolkit", "version", "fact", "reason", "plugins", "flags"]
)
LEAVES = WORDS | st.text(max_size=8) | st.integers() | st.floats() | st.booleans() | st.none() | st.dates()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)
TOPS = st.fixed_dictionaries(
    {"schema": st.just(1), "target": st.just("node") | TREES, "base": st.just("debian:13") | TREES},
    optional=dict.fromkeys([*KEYS[3:], "more"], TREES),
)


@SHARED_FIXTURES
@given(text=st.text() | st.binary() | st.text(alphabet="[]{}:,-#&*!|>'\"%@` \n\tab1", max_size=80))
def test_any_text(text: str | bytes, tmp_path_factory: pytest.TempPathFactory, small: Project) -> None:
    only_spec_errors(text, tmp_path_factory.getbasetemp(), small)


@pytest.mark.slow_unit
@SHARED_FIXTURES
@given(tree=TOPS)
def test_any_tree(tree: object, tmp_path_factory: pytest.TempPathFactory, small: Project) -> None:
    only_spec_errors(yaml.safe_dump(tree, allow_unicode=True), tmp_path_factory.getbasetemp(), small)

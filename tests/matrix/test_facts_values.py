"""Values of components: constraints of fact files, words of a command line, and which values satisfy them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import SpecError
from envbuild.matrix.facts import values
from envbuild.matrix.facts.model import Component, Constraint, Term
from envbuild.matrix.facts.value_match import fold_name, matches
from envbuild.matrix.facts.values import InvalidValueError

pytestmark = pytest.mark.unit

TORCH = Component("torch", "version", "PyTorch", values=("2.8.0", "2.7.1", "2.7.0", "2.0.1+cu118", "2.0.1"))
PYTHON = Component("python", "version", "Python", precision=2, values=("3.13t", "3.13", "3.12"))
DRIVER = Component("driver", "version", "the driver", exact=True)
GPU = Component(
    "gpu",
    "name",
    "GPU",
    values=("H100", "A100", "RTX 4090", "RTX A6000"),
    aliases={fold_name("NVIDIA H100 80GB HBM3"): "H100", fold_name("GeForce RTX 4090"): "RTX 4090"},
)
SM = Component("sm", "sm", "compute capability")
NGC = "2.10.0a0+b4e4ee81d3"


def is_satisfied(component: Component, wanted: object, value: str | None) -> bool | None:
    return matches(component, values.parse_constraint(component, wanted), value)  # type: ignore[arg-type]


def terms(component: Component, text: str, *, asked: bool = False) -> tuple[Term, ...]:
    (only,) = values.parse_constraint(component, text, asked=asked).alternatives
    return only


@pytest.mark.parametrize(
    "component, text, value",
    [
        *((TORCH, " 2.8.0 ", "2.8.0"), (TORCH, "v2.8.0", "2.8.0"), (TORCH, "2.0.1+CU118", "2.0.1+cu118")),
        *((PYTHON, "3.11.9", "3.11"), (PYTHON, "3.13t", "3.13t"), (PYTHON, "3.15.0rc1", "3.15")),
        (DRIVER, "595.45.04", "595.45.04"),
        *((GPU, name, "H100") for name in ("H100", "h100", "NVIDIA H100 80GB HBM3", "nvidia-h100", "H100_80gb-hbm3")),
        *((GPU, name, "RTX 4090") for name in ("RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090", "geforce-rtx-4090")),
        *((SM, text, "9.0") for text in ("9.0", "90", "sm_90", "sm90", "SM_90", "compute_90")),
        *((SM, "120", "12.0"), (SM, "sm_121", "12.1"), (SM, "10.3", "10.3"), (SM, "8.6", "8.6")),
    ],
)
def test_normal(component: Component, text: str, value: str) -> None:
    assert values.normalize_value(component, text) == value
    assert values.normalize_value(component, value) == value


@pytest.mark.parametrize(
    "component, text, message",
    [
        (TORCH, "banana", "'banana' is not a version of torch; write it as 2.8.0"),
        (DRIVER, "", "'' is not a version of driver"),
        (GPU, "H10", "no gpu is called 'H10'; did you mean 'H100'?"),
        (GPU, "Voodoo", "no gpu is called 'Voodoo'; known are: H100, A100, RTX 4090, RTX A6000"),
        (GPU, "nvidia", "no gpu is called 'nvidia'; known are: H100, A100, RTX 4090, RTX A6000"),
        (SM, "hopper", "'hopper' is not a compute capability; write it as 9.0 or sm_90"),
        (SM, "9", "'9' is not a compute capability; write it as 9.0 or sm_90"),
        (SM, "sm_90a", "'sm_90a' is what code is compiled for, not what a GPU is; write 9.0"),
    ],
)
def test_no_value(component: Component, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        values.normalize_value(component, text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2.8", [Term("in", "2.8")]),
        ("2.8.*", [Term("in", "2.8")]),
        ("==2.8.*", [Term("in", "2.8")]),
        ("==2.8.0", [Term("==", "2.8.0")]),
        ("===2.8.0", [Term("==", "2.8.0")]),
        ("2.8.0+cu128", [Term("==", "2.8.0+cu128")]),
        (NGC, [Term("==", NGC)]),
        ("!=2.8.0", [Term("!=", "2.8.0")]),
        (" >= 2.1 , < 2.8 ", [Term(">=", "2.1"), Term("<", "2.8")]),
        ("~=2.8.1", [Term(">=", "2.8.1"), Term("in", "2.8")]),
        ("*", [Term("any")]),
        ("-", [Term("none")]),
    ],
)
def test_version_terms(text: str, expected: list[Term]) -> None:
    assert list(terms(TORCH, text)) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        *(("3.11.9", "in 3.11"), ("==3.11.9", "== 3.11"), (">=3.9.2", ">= 3.9"), ("<=3.9.2", "<= 3.9")),
        *(("<3.9.2", "<= 3.9"), ("<3.9.0", "< 3.9"), (">3.9.2", ">= 3.9"), ("!=3.9.7", "any "), ("~=3.9.2", ">= 3.9")),
        *((">=3.15.0rc1", ">= 3.15"), ("<3.15.0rc1", "< 3.15")),
    ],
)
def test_more_numbers_than_count(text: str, expected: str) -> None:
    """3.9 means every 3.9.x, so that it matches what any of them matches."""
    assert " ".join((terms(PYTHON, text)[0].op, terms(PYTHON, text)[0].operand)) == expected


def test_an_exact_component_is_requested_by_its_whole_version() -> None:
    assert terms(DRIVER, "525.60.13", asked=True) == (Term("==", "525.60.13"),)
    assert terms(DRIVER, "525.60.13") == (Term("in", "525.60.13"),)
    assert terms(TORCH, "2.8", asked=True) == (Term("in", "2.8"),)


@pytest.mark.parametrize(
    "wanted, meets, misses, unknown",
    [
        ("2.8", ["2.8", "2.8.0", "2.8.1", "2.8.0+cu128", "2.8.0rc1"], ["2.80", "2.7", None], [NGC]),
        ("==2.8.0", ["2.8.0", "2.8"], ["2.8.0+cu128", "2.8.1", NGC, None], []),
        ("==2.8.0+cu128", ["2.8.0+cu128"], ["2.8.0", "2.8.0+cu126", None], []),
        ("!=2.8.0", ["2.8.1", "2.8.0+cu128", NGC], ["2.8.0", "2.8", None], []),
        (">=2.8", ["2.8.0", "2.8.0+cu128", "2.10"], ["2.7.1", "2.8.0rc1", None], [NGC]),
        ("<=2.8", ["2.8.1", "2.8.0+cu128", "2.0.1"], ["2.9", None], [NGC]),
        (">2.8", ["2.9"], ["2.8.1", "2.8", None], [NGC]),
        ("<2.8", ["2.7.1", "2.8.0rc1"], ["2.8", "2.8.1", None], [NGC]),
        (">=2.1,<2.8,!=2.3.0", ["2.2", "2.3.1"], ["2.0.1", "2.8", "2.3.0", None], [NGC]),
        ([">=2.9", "2.0.1"], ["2.9", "2.0.1+cu118"], ["2.8", None], [NGC]),
        ([">=2.9", f"=={NGC}"], ["2.9", NGC], ["2.8", None], []),
        (["-", ">=2.9"], ["2.9", None], ["2.8"], [NGC]),
        ("*", ["2.8", NGC], [None], []),
        ("-", [None], ["2.8", NGC], []),
    ],
)
def test_versions(wanted: object, meets: list[str | None], misses: list[str | None], unknown: list[str]) -> None:
    for value in meets:
        assert is_satisfied(TORCH, wanted, value) is True, value
    for value in misses:
        assert is_satisfied(TORCH, wanted, value) is False, value
    for value in unknown:
        assert is_satisfied(TORCH, wanted, value) is None, value


def test_false_has_precedence_over_unknown() -> None:
    assert is_satisfied(TORCH, f">=2.8,!={NGC}", NGC) is False
    assert is_satisfied(TORCH, ">=2.8,!=2.9", NGC) is None


def test_free_threaded_python_is_another_python() -> None:
    assert is_satisfied(PYTHON, ["3.12", "3.13"], "3.13t") is False
    assert is_satisfied(PYTHON, "3.13t", "3.13t") is True
    assert is_satisfied(PYTHON, ">=3.9,<3.14", "3.13t") is True


@pytest.mark.parametrize(
    "wanted, meets, misses",
    [
        ("H100", ["H100"], ["A100", None]),
        ("nvidia h100", ["H100"], ["A100"]),
        (["a100", "geforce rtx 4090"], ["A100", "RTX 4090"], ["H100", None]),
        ("!=H100", ["A100"], ["H100", None]),
        ("!=H100,!=A100", ["RTX 4090"], ["H100", "A100", None]),
        ("RTX*", ["RTX 4090", "RTX A6000"], ["H100", None]),
        ("rtx-a*", ["RTX A6000"], ["RTX 4090"]),
    ],
)
def test_names(wanted: object, meets: list[str], misses: list[str | None]) -> None:
    assert [is_satisfied(GPU, wanted, value) for value in meets] == [True] * len(meets)
    assert [is_satisfied(GPU, wanted, value) for value in misses] == [False] * len(misses)


@pytest.mark.parametrize(
    "wanted, meets, misses",
    [
        ("9.0", ["9.0"], ["8.0", "9.1", None]),
        (">=8.0", ["8.0", "9.0", "10.0"], ["7.5"]),
        (">8.6,<10.0", ["8.9", "9.0"], ["8.6", "10.0"]),
        (["9.0", "sm_100"], ["9.0", "10.0"], ["10.3", None]),
        ({"cubins": ["80", "86"]}, ["8.0", "8.6", "8.9"], ["7.5", "9.0", None]),
        ({"cubins": ["86"]}, ["8.6", "8.9"], ["8.0"]),
        ({"cubins": ["90a"]}, ["9.0"], ["9.1", "10.0", "8.9"]),
        ({"cubins": ["100f"]}, ["10.0", "10.3"], ["11.0", "12.0", "9.0"]),
        ({"cubins": ["100"]}, ["10.0", "10.3"], ["12.0", "11.0"]),
        ({"ptx": ["90"]}, ["9.0", "10.0", "12.1"], ["8.9", None]),
        ({"ptx": ["90a"]}, ["9.0"], ["10.0"]),
        ({"cubins": ["70"], "ptx": ["80"]}, ["7.0", "7.5", "8.0", "12.0"], ["6.1"]),
    ],
)
def test_compute_capabilities(wanted: object, meets: list[str], misses: list[str | None]) -> None:
    assert [is_satisfied(SM, wanted, value) for value in meets] == [True] * len(meets)
    assert [is_satisfied(SM, wanted, value) for value in misses] == [False] * len(misses)


def test_texts_of_constraints() -> None:
    assert values.parse_constraint(TORCH, [" >=2.9 ", "2.0.1"]).text == ">=2.9 or 2.0.1"
    assert (
        values.parse_constraint(SM, {"cubins": ["70", "90a"], "ptx": ["12.0"]}).text == "sm_70, sm_90a, PTX of sm_120"
    )


@pytest.mark.parametrize(
    "component, wanted, message",
    [
        (TORCH, [], 'an empty list allows nothing; write "-" for absent'),
        (TORCH, ">=2.8,", "'>=2.8,' has nothing beside a comma; write it as 2.8.0"),
        (TORCH, ">=", "'>=' has nothing after '>='; write it as 2.8.0"),
        (TORCH, ">=banana", "'banana' is not a version of torch; write it as 2.8.0"),
        (TORCH, ">=2.0+cu118", "'2.0+cu118' has a local label, and labels have no order; write ==2.0+cu118"),
        (TORCH, ">=2.0.*", "'>=2.0.*' compares with many versions; write >=2.0"),
        (TORCH, "~=2", "'2' cannot follow ~=; write ~=X.Y, or 2 for all that begin with it"),
        (TORCH, {"cubins": ["90"]}, "'torch' cannot have keys, as only compute capabilities can; write it as 2.8.0"),
        (GPU, "~=H100", "'~=H100': gpu is a name, and names have no order; write H100 or !=H100"),
        (GPU, "X*", "no known gpu begins with 'X'; known are: H100, A100, RTX 4090, RTX A6000"),
        (SM, {"cubins": []}, 'no architecture at all; write "-" when the code runs on no GPU'),
    ],
)
def test_no_constraint(component: Component, wanted: object, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        values.parse_constraint(component, wanted)  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert caught.value.args == (caught.value.message, caught.value.hint)


@pytest.mark.parametrize(
    "word, component, wanted",
    [
        *(("torch=2.0.1", "torch", "2.0.1"), ("torch==2.0.1", "torch", "==2.0.1"), ("torch>=2.1", "torch", ">=2.1")),
        *(("torch<2.5", "torch", "<2.5"), ("torch!=2.5", "torch", "!=2.5"), ("torch>=2.1,<2.8", "torch", ">=2.1,<2.8")),
        *(("torch=>=2.1", "torch", ">=2.1"), ("apex", "apex", "*"), ("apex=-", "apex", "-")),
        *(("Torch = 2.1", "torch", "2.1"), ("gpu=RTX 4090", "gpu", "RTX 4090"), ("torch_ucc=1", "torch-ucc", "1")),
    ],
)
def test_request(word: str, component: str, wanted: str) -> None:
    assert values.split_request(word) == (component, wanted)


@pytest.mark.parametrize(
    "word, message",
    [
        ("=2", "'=2' names no component; write component=version: torch=2.8"),
        ("", "'' names no component; write component=version: torch=2.8"),
        ("torch=\n2", "'torch= 2' names no component; write component=version: torch=2.8"),
        ("torch=", "'torch=' has nothing after '='; write torch=VERSION, or torch alone"),
        ("torch>=", "'torch>=' has nothing after '>='; write torch>=VERSION, or torch alone"),
        ("torch@2.1", "'torch@2.1' is not a request; write torch=2.1"),
        ("torch 2.1", "'torch 2.1' is not a request; write torch=2.1"),
        ("torch=>2.1", "'torch=>2.1' has '=>'; write torch>=2.1"),
        ("torch=< 2.1", "'torch=< 2.1' has '=<'; write torch<=2.1"),
    ],
)
def test_no_request(word: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        values.split_request(word)
    assert str(caught.value) == message


KNOWN = {component.name: component for component in (TORCH, PYTHON, DRIVER, GPU, SM)}


def test_valid_requests() -> None:
    component, wanted = values.parse_request("driver=525.60.13", KNOWN)
    assert component is DRIVER
    assert wanted.alternatives == ((Term("==", "525.60.13"),),)
    assert values.parse_request("torch===2.8.0", KNOWN)[1].alternatives == ((Term("==", "2.8.0"),),)
    assert values.parse_request("gpu=nvidia h100 80gb hbm3", KNOWN)[1].alternatives == ((Term("is", "H100"),),)


@pytest.mark.parametrize(
    "word, text",
    [
        ("pytorch=2.8", "no component is called 'pytorch'\nhint: did you mean 'torch'?"),
        ("megatron-core=0.13.0", "no component is called 'megatron-core'\nhint: Megatron-Core is not covered: "),
        ("torch=banana", "'banana' is not a version of torch\nhint: write it as 2.8.0"),
        ("torch=", "'torch=' has nothing after '='\nhint: write torch=VERSION, or torch alone"),
        ("gpu=H10", "no gpu is called 'H10'\nhint: did you mean 'H100'?"),
        ("python=3,4", "'3,4' would have to be several things at once\nhint: a comma means and;"),
    ],
)
def test_requests_for_unknown_values(word: str, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        values.parse_request(word, KNOWN)
    assert str(caught.value).startswith(text)
    assert caught.value.exit_code == 2


def test_between() -> None:
    """The nearest versions of one that does not exist are named; labels and pre-releases are not among them."""
    assert values.neighbours(TORCH, "2.7.5") == ("2.7.1", "2.8.0")
    assert values.neighbours(TORCH, "2.5") == ("2.0.1", "2.7.0")
    assert values.neighbours(TORCH, "2.0.1+cu121") == ("2.0.1+cu118", "2.7.0")
    for text in ("2.9", "1.13", "2.8", NGC):
        assert values.neighbours(TORCH, text) is None
    assert values.neighbours(GPU, "H100") is None


ANY = st.text(max_size=12) | st.text(alphabet="0123456789.,<>=!~*+-ac_ ", max_size=14)


@given(component=st.sampled_from([TORCH, PYTHON, DRIVER, GPU, SM]), text=ANY, value=ANY)
def test_any_text_is_a_constraint_or_a_bad_value(component: Component, text: str, value: str) -> None:
    """A constraint answers for every value; absence is met only by what allows it."""
    try:
        wanted = values.parse_constraint(component, text)
    except InvalidValueError as error:
        assert error.message
        return
    assert isinstance(wanted, Constraint)
    assert matches(component, wanted, None) is (text.strip() == "-")
    try:
        known = values.normalize_value(component, value)
    except InvalidValueError:
        return
    assert matches(component, wanted, known) in (True, False, None)


@given(word=ANY)
def test_any_word_is_a_request_or_a_bad_value(word: str) -> None:
    try:
        name, wanted = values.split_request(word)
    except InvalidValueError as error:
        assert error.hint
        return
    assert name and wanted and name == name.lower()


NUMBER = st.lists(st.integers(0, 30), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(component=st.sampled_from([TORCH, PYTHON]), value=NUMBER, operand=NUMBER)
def test_negations(component: Component, value: str, operand: str) -> None:
    """Where every number counts, each comparison is false exactly where its opposite is true."""
    plain = TORCH
    for op, opposite in (("==", "!="), (">=", "<"), ("<=", ">")):
        assert is_satisfied(plain, f"{op}{operand}", value) is not is_satisfied(plain, f"{opposite}{operand}", value)
    cut = values.normalize_value(component, value)
    if is_satisfied(plain, f">={operand}", value):
        assert is_satisfied(component, f">={operand}", cut)
    if is_satisfied(plain, f"<{operand}", value):
        assert is_satisfied(component, f"<{operand}", cut)

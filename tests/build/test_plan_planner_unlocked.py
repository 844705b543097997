"""Plans of images that are not locked yet, and of recipes whose wheels other units depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.plan.containerfile import UNLOCKED_BASE, containerfile
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan
from envbuild.lock.draft import draft_from_request
from envbuild.lock.model import VenvRule
from envbuild.lock.request import LockRequest, lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import draft_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe import Sources
from envbuild.spec.resolve import resolve
from envbuild.spec.target import load_target as load_target

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
TORCH = "f" * 40  # not a commit of upstream: only its place in the plan is checked


def opened(tmp_path: Path, text: str) -> tuple[Plan, LockRequest]:
    """Return the plan of a spec without a lock; the version matrix is not queried."""
    path = tmp_path / "image.yaml"
    path.write_text(f"schema: 1\n{text}")
    project = Project.find(ROOT)
    spec = load_image_spec(str(path), project)
    resolution = resolve(spec, load_target(spec.target, project))
    request = lock_request(resolution)
    return make_plan(resolution, draft_from_request(request)), request


def needs(plan: Plan, name: str) -> set[str]:
    return set(plan.unit(name).lowers)


STACK = """
target: h100-ib
base: debian:13
layers:
  cuda: "13.2"
  nccl: "2.30.7"
  ucx: "1.20.1"
  torch: "2.15.0"
  deepspeed: "0.19.8"
"""


def test_prefixes_depend_on_the_cuda_wheels_and_not_on_torch(tmp_path: Path) -> None:
    """Another torch with the same CUDA compiles neither UCX nor what depends on it again."""
    plan, _ = opened(tmp_path, STACK)
    other, _ = opened(tmp_path, STACK.replace("2.15.0", "2.15.1"))
    assert {"venv-toolkit", "cuda"} <= needs(plan, "ucx")
    assert "venv-core" not in needs(plan, "ucx") | needs(plan, "cuda") | needs(plan, "nccl")
    assert {"venv-toolkit", "venv-core", "cuda"} <= needs(plan, "deepspeed")
    same = {name for name, key in plan.keys().items() if other.keys()[name] == key}
    assert {"ucx", "cuda", "nccl", "venv-toolkit"} <= same
    assert not same & {"venv-core", "deepspeed", "venv"}


def test_a_toolkit_for_builds_only_is_not_part_of_the_image(tmp_path: Path) -> None:
    stack = STACK.replace('deepspeed: "0.19.8"', "ucc: {}\n  torch-ucc: {}")
    plan, request = opened(tmp_path, stack.replace('cuda: "13.2"', 'cuda: {version: "13.2", flavor: runtime}'))
    whole, _ = opened(tmp_path, stack)
    assert not plan.unit("devel-cuda").in_image and plan.unit("cuda").in_image
    assert plan.unit("cuda").build_only == ("devel-cuda",) and plan.unit("ucx").build_only == ()
    assert plan.unit("devel-cuda").steps[0].title == "Python packages that hold cuda"
    for name in ("ucx", "torch-ucc"):  # every compiled unit has the toolkit, and the image's part of it above
        lowers = plan.unit(name).lowers
        assert lowers.index("devel-cuda") < lowers.index("cuda")
    assert "devel-cuda" not in plan.unit("venv").lowers + plan.unit("venv-core").lowers
    asked = " ".join(request.units["venv"].python)
    assert "cudart" in asked and "nvcc" not in asked
    assert "nvcc" in " ".join(request.units["build-cuda"].devel)
    assert "CUDA_HOME" in whole.config.env and "CUDA_HOME" not in plan.config.env
    assert "/opt/cuda/bin" in whole.config.env["PATH"] and "/opt/cuda/bin" not in plan.config.env["PATH"]
    assert "devel-cuda" not in [unit.name for unit in whole.units]


def test_debians_open_mpi_comes_without_debians_ucx_where_ucx_is_compiled(tmp_path: Path) -> None:
    stack = STACK + "  openmpi: {}\n"
    plan, request = opened(tmp_path, stack)
    assert request.units["debian"].replaces == ("libucx0=1.20.1",)
    first, second = plan.unit("debian").steps
    assert "dpkg --install /tmp/libucx0.deb" in first.command and "openmpi-bin" in second.command
    plan, request = opened(tmp_path, stack.replace('ucx: "1.20.1"', "ucx: {provider: debian}"))
    assert request.units["debian"].replaces == ()
    assert "dpkg-deb" not in plan.unit("debian").steps[0].command


def test_a_torch_from_source_precedes_units_compiled_against_it(tmp_path: Path) -> None:
    text = STACK.replace("debian:13", "ubuntu:24.04").replace('cuda: "13.2"', 'cuda: {version: "13.0", provider: apt}')
    text = text.replace('nccl: "2.30.7"', 'nccl: {version: "2.30.7", provider: source}')
    plan, request = opened(
        tmp_path, text.replace('torch: "2.15.0"', f'torch: {{version: "2.15.0", provider: source, commit: {TORCH}}}')
    )
    names = [unit.name for unit in plan.units]
    assert names.index("cuda") < names.index("torch") < names.index("venv-core") < names.index("deepspeed")
    (kernels,) = (item for item in plan.unit("venv-core").inputs if item.name == "kernels")
    assert kernels.units == ("torch",)
    assert "torch" not in next(item for item in plan.unit("venv").inputs if item.name == "kernels").units
    assert all(names.index(need) < names.index(unit.name) for unit in plan.units for need in plan.needs(unit))
    assert request.units["build-torch"].gives == ("torch==2.15.0",)


ON_IMAGE = """
target: h100-ib
base: nvcr.io/nvidia/pytorch:25.10-py3
python: "3.12"
distribution: ubuntu:24.04
layers:
  cuda: {provider: base}
  torch: {provider: base}
  python-packages: [transformers]
"""


def test_an_image_as_base_is_one_unit_of_its_layers(tmp_path: Path) -> None:
    plan, request = opened(tmp_path, ON_IMAGE)
    base = plan.unit("base")
    assert base.layers == ("000",) and not base.seed
    assert base.title == "nvcr.io/nvidia/pytorch:25.10-py3"
    assert ("cuda", "/usr/local/cuda/bin/nvcc") in request.promised
    (step,) = plan.unit("venv").steps
    assert '"$UV" venv --python 3.12 --system-site-packages /opt/venv' in step.command


@pytest.mark.parametrize(
    ("rule", "begin"),
    [
        (VenvRule.NONE, '"$UV" venv --python 3.12 --system-site-packages /opt/venv &&'),
        (VenvRule.EXTENDED, '"$UV" pip install --python /opt/venv/bin/python '),
        (VenvRule.REPLACED, 'rm -rf /opt/venv && \\\n    "$UV" venv --python 3.12 '),
    ],
)
def test_a_venv_of_the_base_is_extended_or_replaced(tmp_path: Path, rule: VenvRule, begin: str) -> None:
    (tmp_path / "image.yaml").write_text(f"schema: 1\n{ON_IMAGE}")
    project = Project.find(ROOT)
    spec = load_image_spec(str(tmp_path / "image.yaml"), project)
    resolution = resolve(spec, load_target(spec.target, project))
    draft = draft_from_request(lock_request(resolution))
    assert draft.base_image
    plan = make_plan(resolution, replace(draft, base_image=replace(draft.base_image, venv=rule)))
    assert plan.unit("venv").steps[0].command.startswith(begin)


def test_an_unlocked_plan_is_labelled_and_has_no_keys(tmp_path: Path) -> None:
    plan, _ = opened(tmp_path, STACK)
    text = containerfile(plan, locked=False)
    assert "not locked" in text.splitlines()[0]
    assert "ENVBUILD_UNIT" not in text
    assert "ENVBUILD_UNIT" in containerfile(plan)


def test_a_kind_of_input_that_is_not_used_does_not_count(tmp_path: Path) -> None:
    """A lock remains valid when a later envbuild knows more kinds of sources."""
    _, request = opened(tmp_path, STACK)
    assert request.indexes == () and Sources().gives == ()
    digest = request.digest()
    assert LockRequest(**{**vars_of(request), "indexes": ()}).digest() == digest
    assert LockRequest(**{**vars_of(request), "python": "3.12"}).digest() != digest


def vars_of(request: LockRequest) -> dict[str, object]:
    return {name: getattr(request, name) for name in LockRequest.__dataclass_fields__}


def test_the_path_of_a_base_image_that_is_not_locked_is_marked_unknown() -> None:
    """Its own folders of PATH are known with the lock; the text must not look as if it had none."""
    project = Project.find(ROOT)
    texts = {}
    for name in ("azure-msccl", "cpu-ucx"):
        resolution = resolve_in(load_image_spec(name, project), project)
        plan = make_plan(resolution, draft_lock(resolution))
        texts[name] = containerfile(plan, locked=False), containerfile(plan)
    expected = f"# {UNLOCKED_BASE}\n\nENV CUDA_HOME="
    assert [expected in text for text in texts["azure-msccl"]] == [True, False]
    assert not any(UNLOCKED_BASE in text for text in texts["cpu-ucx"])

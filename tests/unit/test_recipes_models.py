"""Model code bases and AWS Neuron: what their recipes ask for, refuse and do."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recipekit import ROOT, commands, exported, image, recipe, table

from envbuild.errors import SpecError
from envbuild.matrix.check import check
from envbuild.matrix.compiled import load_matrix
from envbuild.matrix.masks import Matrix
from envbuild.matrix.request import of_words
from envbuild.project import Project
from envbuild.recipe import Recipe, RecipeEnv
from envbuild.recipefile import file_of

pytestmark = pytest.mark.unit

FUSED = ROOT / "recipes" / "data" / "fused_kernels" / "setup.py"
COMPILING = ("neox-kernels", "megatron-kernels", "deeperspeed", "metaseq")
FROM_GIT = (*COMPILING, "gpt-neox", "megatron-lm", "fairscale", "lm-dataformat")
OLD = {"compiled": ["ftfy==6.0.1", "pathtools==0.1.2", "promise==2.3", "subprocess32==3.5.4"]}


def stack(*recipes: Recipe, torch: str = "2.6.0", **more: str) -> RecipeEnv:
    """An image with torch and CUDA below the recipes."""
    return image(recipe("torch", version=torch), recipe("cuda", version="12.4"), *recipes, **more)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(Project(ROOT).facts())


# --- all of them


@pytest.mark.parametrize("name", FROM_GIT)
def test_sources_are_whole_commits_and_their_wheels_are_named(name: str) -> None:
    made = recipe(name)
    env = stack(made, recipe("deeperspeed"), recipe("fairscale"))
    sources = made.sources(env)
    (git,) = sources.git
    assert re.fullmatch(r"[0-9a-f]{40}", git.commit)
    assert git.origin.startswith("github:")
    assert bool(made.wheel) == bool(sources.gives)
    for text in sources.gives:
        assert re.fullmatch(r"[a-z-]+==[0-9][0-9A-Za-z.+]*", text)


@pytest.mark.parametrize("name", COMPILING)
def test_kernels_are_compiled_for_the_target_alone_and_none_is_missed(name: str) -> None:
    made = recipe(name)
    env = stack(made, target="a100-ib")
    text = commands(made, env)
    assert re.search(r'(TORCH_CUDA_ARCH_LIST="8\.0"|compute_80,code=sm_80)', text)
    assert "9.0" not in text and "sm_90" not in text
    checks = [check for check in made.verify(env) if "cuobjdump" in check.command]
    assert checks and all(re.search(check.expect, "/x.so\nELF file    1: x.1.sm_80.cubin") for check in checks)
    assert not any(re.search(check.expect, "/x.so\nELF file    1: x.1.sm_90.cubin") for check in checks)
    assert made.extensions()


def test_the_same_modules_come_from_one_recipe_only() -> None:
    neox, megatron = recipe("neox-kernels"), recipe("megatron-kernels")
    both = set(neox.provides(stack(neox))) & set(megatron.provides(stack(megatron)))
    assert both == {
        "the module scaled_masked_softmax_cuda",
        "the module scaled_upper_triang_masked_softmax_cuda",
    }


# --- fused kernels


def fused(folder: Path, kernels: str) -> subprocess.CompletedProcess[str]:
    """What the build file says in `folder`. Where all is well it goes on to import torch, which is not here."""
    for name in ("a.cpp", "a_cuda.cu", "b.cpp", "b_cuda.cu"):
        (folder / name).touch()
    environment = {"PATH": os.environ["PATH"], "FUSED_KERNELS": kernels}
    command = [sys.executable, "-S", str(FUSED), "build"]  # without site-packages
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("a=a.cpp,a_cuda.cu", "this commit has kernels that nobody asked for: b_cuda.cu"),
        ("a=a.cpp,a_cuda.cu b=b.cpp,b_cuda.cu c=c.cpp,c_cuda.cu", "this commit has no c.cpp, c_cuda.cu"),
        ("a=a.cpp,a_cuda.cu b=b.cpp,b_cuda.cu", "ModuleNotFoundError"),
    ],
)
def test_a_commit_with_other_kernels_stops_the_build(kernels: str, message: str, tmp_path: Path) -> None:
    found = fused(tmp_path, kernels)
    assert found.returncode != 0
    assert message in found.stderr


def test_the_build_file_asks_no_gpu_whether_it_is_there() -> None:
    """GPT-NeoX's own did until 7e7c1152, and built nothing where none was."""
    assert "is_available" not in FUSED.read_text()


def words(text: str, name: str) -> dict[str, str]:
    """What a build exports as `name`: MODULE=SOURCES … as a dict."""
    (found,) = re.findall(rf'export {name}="([^"]*)"', text)
    return dict(word.split("=") for word in found.split())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),
        ({"version": "66fe501"}, 2),
        ({"version": "1.0"}, 2),
        ({"commit": "0" * 40, "rope": False}, 2),
        ({"commit": "0" * 40}, 3),
    ],
)
def test_neox_kernels_of_a_revision(options: dict[str, Any], count: int) -> None:
    made = recipe("neox-kernels", **options)
    asked = words(commands(made, stack(made)), "FUSED_KERNELS")
    assert len(asked) == count
    assert set(asked) == set(made.extensions())
    assert asked["scaled_masked_softmax_cuda"] == "scaled_masked_softmax.cpp,scaled_masked_softmax_cuda.cu"
    if count == 3:
        assert asked["fused_rotary_positional_embedding"].endswith(",fused_rotary_positional_embedding_cuda.cu")


def test_the_kernels_are_those_of_the_code() -> None:
    code, kernels = table("gpt-neox").REVISIONS, table("neox-kernels").REVISIONS
    assert {name: (item.origin, item.commit, item.tag) for name, item in code.items()} == {
        name: (item.origin, item.commit, item.tag) for name, item in kernels.items()
    }
    (refusal,) = recipe("neox-kernels", version="66fe501").refusals(stack(recipe("gpt-neox")))
    assert refusal.endswith("gpt-neox is ea7aefd; give both the same version")
    assert not recipe("neox-kernels").refusals(stack(recipe("gpt-neox")))


def test_megatron_kernels_and_apex_are_the_same_modules() -> None:
    made = recipe("megatron-kernels")
    assert not made.refusals(stack(made))
    (refusal,) = made.refusals(stack(made, recipe("apex")))
    assert refusal.endswith("scaled_upper_triang_masked_softmax_cuda too; remove one of the two")
    assert not made.refusals(stack(made, recipe("apex", extensions_of=["xentropy"])))
    (refusal,) = recipe("neox-kernels").refusals(stack(recipe("apex")))
    assert refusal.startswith("apex brings fused_rotary_positional_embedding, scaled_masked_softmax_cuda, ")
    assert made.git.tag == "23.06"
    assert recipe("megatron-kernels", commit="0" * 40).git.tag == ""


# --- GPT-NeoX


@pytest.mark.parametrize(
    ("version", "beside", "missing"),
    [
        ("ea7aefd", {"deeperspeed": {}}, ()),
        ("ea7aefd", {}, ("another deepspeed; write deeperspeed: {version: 3.0}",)),
        ("ea7aefd", {"deepspeed": {}}, ("another deepspeed; write deeperspeed: {version: 3.0}",)),
        ("66fe501", {"deeperspeed": {"version": "eb7f5cff"}, "python-packages": OLD}, ()),
        ("66fe501", {"deeperspeed": {}, "python-packages": OLD}, ("write deeperspeed: {version: eb7f5cff}",)),
        (
            "66fe501",
            {"deeperspeed": {"version": "eb7f5cff"}, "python-packages": {"compiled": ["ftfy==6.0.1"]}},
            ("write python-packages: {compiled: [pathtools==0.1.2, promise==2.3, subprocess32==3.5.4]}",),
        ),
    ],
)
def test_what_gpt_neox_needs_beside_it(version: str, beside: dict[str, Any], missing: tuple[str, ...]) -> None:
    made = recipe("gpt-neox", version=version)
    found = made.refusals(stack(made, *(recipe(name, **options) for name, options in beside.items())))
    assert len(found) == len(missing)
    for refusal, expected in zip(found, missing, strict=True):
        assert refusal.endswith(expected)


def test_deeperspeed_has_what_gpt_neox_asks_for() -> None:
    asked = {item.deeperspeed for item in table("gpt-neox").REVISIONS.values()}
    assert asked <= set(table("deeperspeed").REVISIONS)


def shell(text: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = " && ".join(text).replace("/opt/gpt-neox", str(folder))
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)


def edits(made: Recipe, env: RecipeEnv) -> list[str]:
    """The commands of a build that change upstream's files."""
    (step,) = [step for step in commands(made, env).split(" && \\\n    ") if "megatron/data/Makefile" in step] or [""]
    assert step
    return [part for part in commands(made, env).split(" && \\\n    ") if part.startswith(("grep -q", "sed -i"))]


def test_compiled_kernels_are_not_compiled_again_in_the_job(tmp_path: Path) -> None:
    made = recipe("gpt-neox")
    assert not edits(made, stack(made, recipe("deeperspeed")))
    changes = edits(made, stack(made, recipe("deeperspeed"), recipe("neox-kernels")))
    (tmp_path / "megatron").mkdir()
    source = tmp_path / "megatron" / "initialize.py"
    source.write_text("if fusion:\n    fused_kernels.load(neox_args)\n    fused_kernels.load_fused_kernels()\n")
    assert shell(changes, tmp_path).returncode == 0
    assert source.read_text() == "if fusion:\n    fused_kernels.load_fused_kernels()\n"
    assert shell(changes, tmp_path).returncode != 0  # no such line: another revision


def test_training_of_an_older_revision_needs_no_lm_eval(tmp_path: Path) -> None:
    made = recipe("gpt-neox", version="66fe501")
    (tmp_path / "megatron").mkdir()
    source = tmp_path / "megatron" / "training.py"
    source.write_text("import sys\nfrom eval_tasks import run_eval_harness\nprint(run_eval_harness)\n")
    assert shell(edits(made, stack(made)), tmp_path).returncode == 0
    run = subprocess.run([sys.executable, "-I", str(source)], capture_output=True, text=True, check=False)
    assert run.stdout == "None\n"


def test_pins_are_kept_to_the_letter() -> None:
    old = recipe("gpt-neox", version="66fe501")
    python = old.runtime(stack(old)).python
    for pin in ("numpy==1.22.0", "transformers~=4.24.0", "wandb==0.10.28", "protobuf==3.20.1"):
        assert pin in python
    assert not any(text.startswith(("cupy", "triton", "lm_eval", "flash-attn")) for text in python)


def test_wheels_of_packages_that_are_source_only() -> None:
    made = recipe("python-packages", packages=["numpy"], **OLD)
    env = image(made)
    assert made.builds and made.sources(env).sdists == tuple(OLD["compiled"])
    assert made.runtime(env).python == ("numpy",)
    assert "uv" in commands(made, env).lower()
    plain = recipe("python-packages", packages=["numpy"])
    assert not plain.builds and not plain.build(env) and not plain.sources(env).sdists
    with pytest.raises(SpecError, match="names an address"):
        recipe("python-packages", compiled=["demo @ https://files.example/demo.tar.gz"])


# --- DeeperSpeed


def test_deeperspeed_refuses_what_it_cannot_run_with() -> None:
    made = recipe("deeperspeed")
    assert not made.refusals(stack(made, torch="1.13.1"))
    assert not recipe("deeperspeed", ops=[]).refusals(stack(torch="2.15"))
    for options, torch, other, why in (
        ({}, "2.14.1", (), "C++17"),
        ({"version": "eb7f5cff"}, "2.0.1", (), "torch._six"),
        ({"version": "eb7f5cff"}, "1.12.1", ("deepspeed",), "both are the Python package deepspeed"),
    ):
        made = recipe("deeperspeed", **options)
        (refusal,) = made.refusals(stack(made, *(recipe(name) for name in other), torch=torch))
        assert why in refusal


def test_deeperspeed_imports_where_no_gpu_is(tmp_path: Path) -> None:
    made = recipe("deeperspeed")
    (tmp_path / "accelerator").mkdir()
    source = tmp_path / "accelerator" / "cuda_accelerator.py"
    source.write_text("class A:\n    def f(self):\n        major, _ = torch.cuda.get_device_capability()\n")
    (edit,) = [part for part in commands(made, stack(made)).split(" && \\\n    ") if part.startswith("sed -E")]
    subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, check=True)
    assert source.read_text().endswith(".get_device_capability() if self.is_available() else (0, 0)\n")


# --- Megatron-LM, FairScale, metaseq


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("megatron-lm", {"version": "0.99"}, "'0.99' is no release whose commit is known here\nhint: "),
        (
            "megatron-lm",
            {"version": "0.16.2"},
            "hint: did you mean '0.18.2'? there are: 0.19.0, 0.18.2, 0.17.1, 0.16.1",
        ),
        ("megatron-lm", {"commit": "0" * 40}, "'commit' and 'gives' go together"),
        ("fairscale", {"version": "main"}, "'main' is no revision that is known here"),
        ("fairscale", {"commit": "0" * 40}, "'commit' and 'release' go together"),
        ("gpt-neox", {"version": "3.0"}, "'3.0' is no revision that is known here"),
        (
            "gpt-neox",
            {"version": "ea7aefe"},
            "did you mean 'ea7aefd'? there are: ea7aefd, 66fe501, 1.0; any other is an ",
        ),
        ("gpt-neox", {"commit": "0" * 40}, "'commit' and 'pins' go together\nhint: write pins: "),
        ("deeperspeed", {"commit": "0" * 40}, "'commit' and 'release' go together"),
        ("neox-kernels", {"version": "3.0"}, "any other is an origin, a commit and rope"),
        ("deeperspeed", {"ops": ["fused_adam", "fused_moe"]}, "'fused_moe' is no op that this recipe compiles\nhint: "),
        ("deeperspeed", {"version": "2.0"}, "there are: 3.0, eb7f5cff; any other is a commit and its release"),
        (
            "neuron",
            {"sdk": "2.31.1"},
            "'2.31.1' is no release whose packages are known here\nhint: did you mean '2.30.0'? there are: 2.30.0",
        ),
    ],
)
def test_options_that_cannot_be_right(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        recipe(name, **options)


def test_deeperspeed_at_a_commit_of_the_specs_own() -> None:
    made = recipe("deeperspeed", commit="0" * 40, release="0.17.0")
    env = stack(made, torch="2.15")  # whether it compiles there is not known here
    assert not made.refusals(env)
    assert made.sources(env).gives == ("deepspeed==0.17.0",) and made.sources(env).git[0].tag == ""
    assert "pydantic>=2.0.0" in made.runtime(env).python
    assert exported(made, env)["DS_ACCELERATOR"] == "cuda"


def test_the_fork_and_deepspeed_ask_for_the_same() -> None:
    """3.0 is made of DeepSpeed 0.16.5."""
    new, fork = recipe("deepspeed"), recipe("deeperspeed")
    assert set(new.runtime(stack(new)).python) == set(fork.runtime(stack(fork)).python) - {"setuptools<82"}


def test_gpt_neox_at_a_commit_of_the_specs_own(tmp_path: Path) -> None:
    made = recipe("gpt-neox", origin="github:example/gpt-neox", commit="0" * 40, pins=["transformers==4.38.0"])
    (refusal,) = made.refusals(stack(made))
    assert refusal.endswith("add under layers: deeperspeed: {}")
    env = stack(made, recipe("deeperspeed"), recipe("neox-kernels", commit="0" * 40))
    assert not made.refusals(env) and made.git.origin == "github:example/gpt-neox"
    assert "transformers==4.38.0" in made.runtime(env).python
    assert made.matrix(env) == {"protobuf": "==3.20.1"}
    (tmp_path / "megatron").mkdir()
    for file in ("initialize.py", "training.py"):
        (tmp_path / "megatron" / file).write_text("import sys\n")
    assert shell(edits(made, env), tmp_path).returncode == 0  # neither line has to be there
    assert not recipe("neox-kernels", commit="0" * 40).refusals(env)


def test_a_fork_of_megatron_is_a_commit_and_the_wheel_that_it_makes() -> None:
    fork = recipe("megatron-lm", origin="github:example/Megatron-LM", commit="0" * 40, gives="megatron-lm==2.2")
    sources = fork.sources(stack(fork))
    assert sources.gives == ("megatron-lm==2.2",)
    assert sources.git[0].origin == "github:example/Megatron-LM"
    assert sources.git[0].tag == ""
    assert not fork.extensions()


def test_megatron_lm_is_for_the_python_of_the_base() -> None:
    new = recipe("megatron-lm", version="0.19.0")
    assert new.sources(stack(new)).gives == ("megatron-core==0.19.1",)  # what that tag calls itself
    assert not new.refusals(stack(new))
    (refusal,) = new.refusals(stack(new, base="ubuntu:22.04"))
    assert "for Python 3.12 and later and the base has 3.10" in refusal
    assert recipe("megatron-lm").extensions() == ("megatron.core.datasets.helpers_cpp",)


def test_metaseq_with_apex_beside_it() -> None:
    own = recipe("metaseq")
    env, with_apex = stack(own), stack(own, recipe("apex", version="265b451"))
    assert not own.refusals(env)
    (refusal,) = own.refusals(with_apex)
    assert "both bring amp_C, apex_C, fused_dense_cuda, fused_layer_norm_cuda; write apex: false" in refusal
    other = recipe("metaseq", apex=False)
    assert not other.refusals(with_apex)
    assert "--no_apex" in commands(other, env) and "--no_apex" not in commands(own, env)
    assert set(own.extensions()) - set(other.extensions()) == {
        "amp_C",
        "apex_C",
        "fused_adam_cuda",
        "fused_dense_cuda",
        "fused_layer_norm_cuda",
    }


def test_requirements_of_the_build_are_not_looked_for_on_an_index(tmp_path: Path) -> None:
    """There is none in a unit: setup_requires would stop the build."""
    sample = 'setup(\n    setup_requires=[\n        "cython",\n    ],\n    install_requires=["numpy"],\n)\n'
    for name, text in (("metaseq", sample), ("fairscale", 'setup(\n    setup_requires=["ninja"],\n    name="x",\n)\n')):
        made = recipe(name)
        (tmp_path / "setup.py").write_text(text)
        (edit,) = [part for part in commands(made, stack(made)).split(" && \\\n    ") if "setup_requires" in part]
        subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, check=True)
        left = (tmp_path / "setup.py").read_text()
        assert "setup_requires" not in left and "ninja" not in left and "cython" not in left
        compile(left, "setup.py", "exec")


@pytest.mark.parametrize("name", [*FROM_GIT, "neuron", "neuronx-distributed"])
def test_what_a_recipe_tells_the_matrix_is_known_there(name: str, matrix: Matrix) -> None:
    made = recipe(name)
    told = made.matrix(stack(made, recipe("neuron")))
    of_words([f"{component}{'' if text[:1] in '=<>!' else '='}{text}" for component, text in told.items()], matrix)


# --- Neuron


def neuron_sdks() -> list[str]:
    return list(table("neuron").SDKS)


@pytest.mark.parametrize("sdk", neuron_sdks())
def test_every_sdk_is_one_consistent_set(sdk: str, matrix: Matrix) -> None:
    """The versions of one column go together on Trainium1, by the facts of upstream's manifest."""
    made = recipe("neuron", sdk=sdk)
    told = made.matrix(image(made, target="trn1", base="ubuntu:22.04"))
    words = [f"{component}{text}" for component, text in told.items()]
    verdict = check(matrix, of_words(["gpu=Trainium1", *words], matrix)).verdict
    # 2.30.0: the documents end training with it, and AWS has an image for training of it
    assert verdict in ("valid", "conditional", *(["disputed"] if sdk == "2.30.0" else []))


def test_sdks_are_not_mixed(matrix: Matrix) -> None:
    new, old = (recipe("neuron", sdk=sdk) for sdk in ("2.30.0", "2.25.0"))
    env = image(target="trn1", base="ubuntu:22.04")
    words = [f"{name}{text}" for name, text in {**new.matrix(env), "neuronx-cc": old.matrix(env)["neuronx-cc"]}.items()]
    assert check(matrix, of_words(["gpu=Trainium1", *words], matrix)).verdict == "conflict"


def test_neuron_packages_are_exact_and_come_from_neuron_alone() -> None:
    made = recipe("neuron", sdk="2.30.0")
    env = image(made, target="trn1", base="ubuntu:24.04")
    runtime, sources = made.runtime(env), made.sources(env)
    assert all(re.fullmatch(r"aws-neuronx-[a-z-]+=[0-9.]+-[0-9a-f]{9}", text) for text in runtime.debian)
    assert not any("dkms" in text or "oci-hook" in text for text in runtime.debian)
    names = {text.partition("==")[0] for text in runtime.core}
    assert names == {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}
    (index,), (repository,) = sources.indexes, sources.repositories
    assert names | {"neuronx-distributed", "neuronx-distributed-training"} <= set(index.packages)
    assert "torch" not in index.packages and "torch-xla" not in index.packages
    assert re.fullmatch(r"[0-9A-F]{40}", repository.key)
    assert (repository.origin, repository.suite, repository.components) == ("apt:aws-neuron", "jammy", ("main",))


@pytest.mark.parametrize(
    ("target", "beside", "because"),
    [
        ("trn1", (), None),
        ("h100-ib", (), "take a target with Trainium or Inferentia2"),
        ("cpu", (), "nodes without an accelerator"),
        ("trn1", ("cuda",), "do not run CUDA"),
    ],
)
def test_where_neuron_cannot_stand(target: str, beside: tuple[str, ...], because: str | None) -> None:
    made = recipe("neuron")
    found = made.refusals(image(made, *(recipe(name) for name in beside), target=target))
    assert (found == ()) if because is None else (because in found[0])


def test_neuron_is_for_one_architecture() -> None:
    made = recipe("neuron")
    env = image(made, target="gb200-nvl")
    assert any("no Neuron packages for arm64" in refusal for refusal in made.refusals(env))


def test_neuron_checks_accept_what_the_programs_print() -> None:
    made = recipe("neuron", sdk="2.25.0")
    checks = {item.name: item for item in made.verify(image(made, target="trn1", base="ubuntu:22.04"))}
    packages = checks["neuron: the packages are those of the SDK"].expect
    assert re.search(packages, "2.7.0.2.9.9357+08e1f40d 2.20.9961.0")
    assert not re.search(packages, "2.7.0.2.9.9357+08e1f40d 2.21.18209.0")
    library = checks["neuron: the runtime library is the loader's"].expect
    assert re.search(library, "\tlibnrt.so.1 (libc6,x86-64) => /opt/aws/neuron/lib/libnrt.so.1\n")
    assert not re.search(library, "\tlibnrt.so.1 (libc6,x86-64) => /usr/lib/libnrt.so.1\n")
    assert {item.tier for item in checks.values()} == {"run", "gpu"}


def test_neuronx_distributed_is_of_the_same_sdk() -> None:
    made, training = recipe("neuronx-distributed"), recipe("neuronx-distributed", training=True)
    env = image(recipe("neuron", sdk="2.30.0"), target="trn1", base="ubuntu:24.04")
    assert made.runtime(env).python == ("neuronx-distributed==0.19.28093+fc70b593",)
    assert training.runtime(env).python[1:] == ("neuronx-distributed-training==1.7.0",)
    assert training.matrix(env) == {"nxdt": "==1.7.0"} and not made.matrix(env)
    old = image(recipe("neuron", sdk="2.6.0"), target="trn1", base="ubuntu:20.04")
    (refusal,) = made.refusals(old)
    assert refusal == "the SDK 2.6.0 has no neuronx-distributed; take a later one"


def test_no_host_stands_in_a_recipe() -> None:
    for name in (*FROM_GIT, "neuron", "neuronx-distributed"):
        text = inspect.cleandoc(file_of(recipe(name)).read_text())
        assert not re.search(r"https?://|\b[a-z0-9-]+\.(com|org|io|net)\b", text), name

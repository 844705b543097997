"""apex: which commit, which extensions, and words that its setup.py does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from envbuild.core.errors import SpecError
from tests.support.recipes import commands, exported, image, recipe, table

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "commit", "old"),
    [
        ("6424da3b", "6424da3b4faa6c8f062da4a48c424fff3f02d42d", False),
        ("6424da3b4faa6c8f062da4a48c424fff3f02d42d", "6424da3b4faa6c8f062da4a48c424fff3f02d42d", False),
        ("25.09", "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49", False),
        ("265b451", "265b451de8ba9bfcb67edc7360f3d8772d0a8bea", True),
    ],
)
def test_apex_at_a_commit(version: str, commit: str, old: bool) -> None:
    made = recipe("apex", version=version)
    env = image(made)
    sources = made.sources(env)
    assert sources.git[0].commit == commit
    assert sources.gives == ("apex==0.1",) and not sources.sdists
    text = commands(made, env)
    assert ("--build-option=--cuda_ext" in text) is old
    # a word in the wrong place makes no kernels, without an error
    assert text.count("--build-option=--") == (2 if old else 0)
    variables = exported(made, env)
    assert ({"APEX_CPP_EXT", "APEX_CUDA_EXT"} <= variables.keys()) is not old
    # where no GPU is to be seen it would compile for every one that CUDA knows
    assert variables["TORCH_CUDA_ARCH_LIST"] == "9.0"


@pytest.mark.parametrize("version", ["25.07", "265b451", "22.03", "a651e2c2", "e2083df5"])
def test_the_setuptools_of_an_old_apex_passes_its_words(version: str) -> None:
    """setuptools before 64 drops --build-option, and metaseq's image has 59.5; 70.0 has no pkg_resources.packaging."""
    made = recipe("apex", version=version)
    (text,) = (text for text in made.sources(image(made)).python if text.startswith("setuptools"))
    taken = Requirement(text).specifier
    assert [number for number in ("59.5.0", "63.4.3", "64.0.0", "69.5.1", "70.0.0") if number in taken] == [
        "64.0.0",
        "69.5.1",
    ]


def test_apex_at_a_commit_of_the_specs_own() -> None:
    """For each way in which its setup.py reads words it gets them; the spec has to name the modules that they make."""
    made = recipe("apex", commit="f" * 40, modules=["apex_C", "new_cuda"], extensions_of=["cpp_ext", "new_group"])
    env = image(made)
    assert made.sources(env).git[0].commit == "f" * 40
    assert made.extensions() == ("apex_C", "new_cuda")
    variables, text = exported(made, env), commands(made, env)
    for word in ("cpp_ext", "new_group"):
        assert variables[f"APEX_{word.upper()}"] == "1" and f"--build-option=--{word} " in text
    assert made.matrix(env) == {}
    (kernels,) = (check for check in made.verify(env) if "cuobjdump" in check.command)
    assert "new_cuda" in kernels.command and "apex_C" not in kernels.command


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"version": "f" * 40},
            "is not a known revision of apex\nhint: there are: 6424da3b, 25.09.*write commit: and modules:",
        ),
        ({"version": "25.90"}, "hint: did you mean '25.09'\\? there are: "),
        ({"version": "6424da"}, "hint: did you mean '6424da3b'"),
        ({"commit": "f" * 40}, "must build\nhint: write modules: "),
        ({"modules": ["amp_C"]}, "'modules' requires 'commit'"),
        ({"commit": "f" * 40, "modules": ["amp-C"]}, "'amp-C' is not the name of a module"),
        (
            {"commit": "f" * 40, "modules": ["x"], "extensions_of": ["a b"]},
            "'a b' is not the name of a group of extensions",
        ),
        ({"commit": "f" * 40, "modules": ["x"], "extensions_of": ["group_norm"]}, "was not tested"),
    ],
)
def test_an_unknown_version_of_apex(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"(?s){message}"):
        recipe("apex", **options)


def test_apex_names_every_requested_module() -> None:
    made = recipe("apex", extensions_of=["cpp_ext", "cuda_ext", "xentropy"])
    assert len(made.extensions()) == 13 and {"apex_C", "amp_C", "xentropy_cuda"} <= set(made.extensions())
    (kernels,) = (check for check in made.verify(image(made)) if "cuobjdump" in check.command)
    assert "apex_C" not in kernels.command and "xentropy_cuda" in kernels.command


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (
            "cpp-ext",
            "is not a group of extensions of apex 6424da3b\nhint: did you mean 'cpp_ext'\\? there are: cpp_ext",
        ),
        ("cudnn_gbn", "was not tested"),
        ("fast_multihead_attn", "is not a group of extensions of apex 6424da3b"),
    ],
)
def test_extensions_of_apex_that_are_not_available(word: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"'{word}' .*{reason}"):
        recipe("apex", extensions_of=[word])


@pytest.mark.parametrize("version", ["25.09", "25.07", "265b451", "22.03", "a651e2c2", "e2083df5"])
def test_fast_multihead_attn_has_its_cutlass(version: str) -> None:
    """Its setup.py updates the submodule, and compiles without it what then does not find cutlass/cutlass.h."""
    path = "apex/contrib/csrc/multihead_attn/cutlass"
    made = recipe("apex", version=version, extensions_of=["cpp_ext", "fast_multihead_attn"])
    assert made.sources(image(made)).git[0].submodules == (path,)
    plain = recipe("apex", version=version)
    assert plain.sources(image(plain)).git[0].submodules == ()


SETUP = """
import os
from torch.utils.cpp_extension import CUDAExtension
flags = ["-O3", "-gencode", "arch=compute_70,code=sm_70", "--threads", "4", "-gencode=arch=compute_90,code=sm_90"]
assert os.path.exists("setup.py") and not os.path.exists("one_gpu.py")
print(CUDAExtension(name="a", sources=["a.cu"], extra_compile_args={"cxx": ["-O3"], "nvcc": flags}))
print(CUDAExtension("b", ["b.cu"]))
print(flags)
"""


def test_modules_whose_setup_names_gpus_are_compiled_for_the_target(tmp_path: Path) -> None:
    """torch ignores TORCH_CUDA_ARCH_LIST for a module with options that contain "arch" (cpp_extension.py).

    The setup.py has the forms of apex's: two words (265b451) and one (25.09)."""
    made = recipe("apex", version="265b451", extensions_of=["cuda_ext"])
    lines = table("apex").for_one_gpu()
    text = commands(made, image(made))
    assert text.index(lines[-1]) < text.index('"$UV" build')
    folder = tmp_path / "torch" / "utils"
    folder.mkdir(parents=True)
    for parent in (folder, folder.parent):
        (parent / "__init__.py").touch()
    (folder / "cpp_extension.py").write_text("def CUDAExtension(name, sources, **options):\n    return name, options\n")
    (tmp_path / "setup.py").write_text(SETUP)
    subprocess.run(["/bin/sh", "-c", " && ".join(lines)], cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, "setup.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second, flags = done.stdout.splitlines()
    assert first == "('a', {'extra_compile_args': {'cxx': ['-O3'], 'nvcc': ['-O3', '--threads', '4']}})"
    assert second == "('b', {})" and flags.count("arch=") == 2


def test_a_setup_that_names_no_gpu_is_left_as_it_is() -> None:
    made = recipe("apex")
    assert "setup.new" not in commands(made, image(made))

"""apex and FlashAttention 3: what their recipes ask for, refuse and do."""

from __future__ import annotations

import pytest
from test_recipes_torch import commands, image, recipe

from envbuild.errors import SpecError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "commit", "old"),
    [
        ("6424da3b", "6424da3b4faa6c8f062da4a48c424fff3f02d42d", False),
        ("6424da3b4faa6c8f062da4a48c424fff3f02d42d", "6424da3b4faa6c8f062da4a48c424fff3f02d42d", False),
        ("25.09", "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49", False),
        ("265b451", "265b451de8ba9bfcb67edc7360f3d8772d0a8bea", True),
        ("f" * 40, "f" * 40, False),
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
    assert ('APEX_CUDA_EXT="1"' in text) is not old
    assert 'TORCH_CUDA_ARCH_LIST="9.0"' in text


def test_apex_names_every_module_that_was_asked_for() -> None:
    made = recipe("apex", extensions_of=["cpp_ext", "cuda_ext", "xentropy"])
    assert len(made.extensions()) == 13 and {"apex_C", "amp_C", "xentropy_cuda"} <= set(made.extensions())
    (kernels,) = (check for check in made.verify(image(made)) if "cuobjdump" in check.command)
    assert "apex_C" not in kernels.command and "xentropy_cuda" in kernels.command


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("cpp-ext", "is no group"),
        ("cudnn_gbn", "was not tried"),
        ("fast_multihead_attn", "is no group of extensions of apex 6424da3b"),
    ],
)
def test_words_of_apex_that_cannot_be_had(word: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"'{word}' .*{reason}"):
        recipe("apex", extensions_of=[word])


def test_flash_attention_3_is_for_hopper_and_one_compiler() -> None:
    made = recipe("flash-attn-3", without=["fp8"])
    cuda = recipe("cuda", version="13.2")
    assert made.refusals(image(made, cuda)) == ()
    (refusal,) = made.refusals(image(made, cuda, target="a100-ib"))
    assert "is for sm_90" in refusal
    (refusal,) = made.refusals(image(made, recipe("cuda", version="12.6")))
    assert "downloads another compiler" in refusal
    text = commands(made, image(made, cuda))
    for word in ("OFFLINE_BUILD", "DISABLE_SM80", "DISABLE_FP8"):
        assert f"FLASH_ATTENTION_{word}=" in text
    with pytest.raises(SpecError, match="'fp7' is no part"):
        recipe("flash-attn-3", without=["fp7"])

"""neuronx-distributed: of the SDK of the image."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


def test_neuronx_distributed_is_of_the_same_sdk() -> None:
    made, training = recipe("neuronx-distributed"), recipe("neuronx-distributed", training=True)
    env = image(recipe("neuron", sdk="2.30.0"), target="trn1", base="ubuntu:24.04")
    assert made.runtime(env).python[:1] == ("neuronx-distributed==0.19.28093+fc70b593",)
    assert training.runtime(env).python[1:2] == ("neuronx-distributed-training==1.7.0",)
    assert training.matrix(env) == {"nxdt": "==1.7.0"} and not made.matrix(env)
    old = image(recipe("neuron", sdk="2.6.0"), target="trn1", base="ubuntu:20.04")
    (refusal,) = map(str, made.refusals(old))
    assert refusal == "the SDK 2.6.0 has no neuronx-distributed; take a later sdk of neuron"


def test_what_neuronx_distributed_imports_is_in_the_image() -> None:
    """Its setup.py does not list boto3, requests and packaging, which its checkpoints import."""
    made = recipe("neuronx-distributed")
    env = image(recipe("neuron"), made, target="trn1", base="ubuntu:24.04")
    assert {"boto3", "packaging", "requests"} <= set(made.runtime(env).python)
    (imported,) = [check for check in made.verify(env) if "import boto3" in check.command]
    assert imported.tier == "run"
    assert [check.tier for check in made.verify(env) if "parallel_layers" in check.command] == ["gpu"]

"""DOCA-OFED and MLNX_OFED: their repositories, keys and distributions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import KEY, image, recipe

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "target", "origin"),
    [
        ({"version": "3.2.1"}, "h100-ib", "apt:nvidia-doca/3.2.1/ubuntu22.04/x86_64"),
        ({"version": "3.2.1"}, "gb200-nvl", "apt:nvidia-doca/3.2.1/ubuntu22.04/arm64-sbsa"),
        (
            {"version": "23.07-0.5.1.2", "provider": "mlnx-ofed"},
            "h100-ib",
            "apt:nvidia-mlnx-ofed/23.07-0.5.1.2/ubuntu22.04/x86_64",
        ),
    ],
)
def test_where_ofed_comes_from(options: dict[str, Any], target: str, origin: str) -> None:
    made = recipe("ofed", key=KEY, **options)
    (repository,) = made.sources(image(made, target=target, base="ubuntu:22.04")).repositories
    assert (repository.origin, repository.suite, repository.components) == (origin, "./", ())
    assert repository.key == KEY.upper()


def test_images_that_ofed_refuses() -> None:
    keyless = recipe("ofed", version="23.07-0.5.1.2", provider="mlnx-ofed")
    (reason,) = map(str, keyless.refusals(image(keyless, base="ubuntu:22.04")))
    assert "key: FINGERPRINT" in reason
    for made in (keyless, recipe("ofed"), recipe("ofed", key=KEY), recipe("ofed", key=KEY, version="3.2.1")):
        (reason,) = map(str, made.refusals(image(made, base="debian:13")))  # and no user searches for a key in vain
        assert "for debian:13 is known" in reason and reason.endswith("use layer rdma-core")
    wrong = {"version": "3.2.1", "provider": "mlnx-ofed"}, {"version": "3.2.1", "key": "abc"}
    for options in ({"version": "3.2"}, *wrong):
        with pytest.raises(SpecError):
            recipe("ofed", **options)


@pytest.mark.parametrize(("name", "source"), [("openmpi", {"version": "5.0.10"}), ("perftest", {})])
def test_packages_of_the_distribution_that_require_its_libefa_are_refused(name: str, source: dict[str, Any]) -> None:
    """NVIDIA's ibverbs-providers takes the place of the one that contains it."""
    made = recipe("ofed", version="3.2.1")
    (reason,) = map(str, made.refusals(image(made, recipe(name, provider="debian"), base="ubuntu:24.04")))
    assert "of ubuntu:24.04 requires libefa" in reason and reason.endswith(f"write {name}: {{provider: source}}")
    assert made.refusals(image(made, recipe(name, provider="source", **source), base="ubuntu:24.04")) == ()


@pytest.mark.parametrize("provider", ["doca", "mlnx-ofed"])
def test_a_key_of_ofed_is_that_of_one_version(provider: str) -> None:
    """Without a version the repository's name would have an empty part."""
    made = recipe("ofed", provider=provider, key=KEY)
    (reason,) = map(str, made.refusals(image(made, base="ubuntu:22.04")))
    assert reason.startswith("a key signs the repository of one version, and the spec states none; ")
    assert f"; write version: {'3.2.1' if provider == 'doca' else '23.07-0.5.1.2'}, or another" in reason
    assert made.matrix(image(made)) == {}  # nor does the matrix pick one


def test_doca_is_signed_with_the_key_of_2026() -> None:
    """GPG-KEY-Mellanox.pub contains the keys that NVIDIA no longer signs with."""
    made = recipe("ofed", version="3.2.1")
    env = image(made, base="ubuntu:24.04")
    assert made.refusals(env) == ()
    (repository,) = made.sources(env).repositories
    assert repository.key == "70454E6BF5D9C2D3B78709E8DC726C5E41B9CC50"
    assert repository.key_file == "doca_keyring.gpg"
    assert recipe("ofed").matrix(env) == {"doca": "*"}  # the key is that of all versions, so one is picked


def test_ofed_names_its_version_by_provider() -> None:
    assert recipe("ofed", version="3.2.1").matrix(image()) == {"doca": "3.2.1"}
    mlnx = recipe("ofed", version="23.07-0.5.1.2", provider="mlnx-ofed")
    assert mlnx.matrix(image()) == {"ofed": "23.07-0.5.1.2"}


def test_ubuntus_packages_that_need_its_renamed_librdmacm_take_the_vendors() -> None:
    """Both contain librdmacm.so.1: dpkg refuses the second, or the distribution's is the one that programs load."""
    made = recipe("ofed", version="3.2.1")
    new, old = image(made, base="ubuntu:24.04"), image(made, base="ubuntu:22.04")
    assert "librdmacm1" in made.runtime(new).debian
    assert made.runtime(new).replaces == {"librdmacm1t64": "50.0"}
    assert made.runtime(old).replaces == {}
    ucx = recipe("ucx", version="1.20")
    assert "librdmacm1" in ucx.runtime(image(ucx, made, base="ubuntu:24.04")).debian
    assert "librdmacm1t64" in ucx.runtime(image(ucx, base="ubuntu:24.04")).debian


@pytest.mark.parametrize(
    ("version", "vendors"),
    [
        ("2307mlnx47-1.2307050", True),
        ("2507mlnx58-1.2507097", True),
        ("59mlnx44-1.59056", True),
        ("2510.0.11-1", True),
        ("50.0-2ubuntu0.2", False),
        ("39.0-1", False),
    ],
)
def test_the_distributions_rdma_core_is_not_taken_for_the_vendors(version: str, vendors: bool) -> None:
    made = recipe("ofed", version="3.2.1")
    check = made.verify(image(made, base="ubuntu:24.04"))[0]
    assert "librdmacm1" in check.command
    assert bool(re.search(check.expect, f"2507mlnx58-1.2507097\n{version}\n")) is vendors

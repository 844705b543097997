"""Facts from Neuron's release manifest: what its rows become, what it leaves out, and manifests that are none."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError, SpecError
from envbuild.matrix import FACTS
from envbuild.matrix.collect import neuron
from envbuild.matrix.collect.fact_writer import render_derived
from envbuild.matrix.collect.neuron_manifest import MAX_BYTES, read_manifest

pytestmark = pytest.mark.unit

SHIPPED = FACTS / "derived" / "neuron.yaml"
SEEN, WHERE = "2026-11-21", "github aws-neuron/aws-neuron-sdk@a3247f5b src/helperscripts/n2-manifest.json"
TRN = ["trn1", "inf2", "trn2"]


def package(name: str, version: str, instances: Sequence[str] = (), pythons: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "supported_instances": list(instances),
        "supported_python_versions": list(pythons),
    }


def manifest(**releases: list[dict[str, Any]]) -> dict[str, Any]:
    """Releases by version, dots as underscores: ``v2_28_1=[package(…)]``."""
    listed = [{"neuron_version": key[1:].replace("_", "."), "packages": rows} for key, rows in releases.items()]
    return {"manifest_date": "08/17/2026", "neuron_releases": listed}


# Rows of upstream's manifest of 2026-08-17, unchanged.
V2_32_0 = [
    package("aws-neuronx-dkms", "2.30.2.0", [*TRN, "trn3"]),
    package("aws-neuronx-gpsimd-tools", "14.09.x", [*TRN, "trn3"]),
    package("aws-neuronx-runtime-lib", "2.34.10.0", [*TRN, "trn3"]),
    package("neuronx-cc", "2.27.5334.0", [*TRN, "trn3"], ["3.11", "3.12", "3.13"]),
    package("torch-neuron", "1.13.1.2.11.13.0", ["inf1"], ["3.9", "3.10"]),
    package("efa-installer", "1.47", ["trn1", "trn2", "trn3"]),
]
V2_28_1 = [
    package("aws-neuronx-collectives", "2.30.59.0", TRN),
    package("aws-neuronx-dkms", "2.26.10.0", TRN),
    package("aws-neuronx-runtime-lib", "2.30.51.0", TRN),
    package("neuronx-cc", "2.23.6484.0", TRN, ["3.10", "3.11", "3.12"]),
    package("torch-neuronx", "2.9.0.2.12.22436", TRN, ["3.10", "3.11", "3.12"]),
    package("torch-neuronx", "2.7.0.2.12.22436", TRN, ["3.10", "3.11"]),
    package("torch-neuronx", "2.8.0.2.12.22436", TRN, ["3.10", "3.11", "3.12"]),
    package("neuronx_distributed_training", "1.7.0", ["trn1", "trn2"], ["3.10", "3.11", "3.12"]),
]
V2_28_0 = [
    package("aws-neuronx-dkms", "2.26.5.0", TRN),
    package("aws-neuronx-runtime-lib", "2.30.51.0", TRN),
    package("torch-neuronx", "2.9.0.2.12.22436", TRN, ["3.10", "3.11", "3.12"]),
]
V2_21_1 = [
    package("aws-neuronx-dkms", "2.19.64.0", ["inf1", *TRN]),
    package("aws-neuronx-runtime-lib", "2.12.23.0", ["inf1"]),
    package("aws-neuronx-runtime-lib", "2.23.112.0", TRN),
    package("torch-neuronx", "1.13.1.1.17.0", ["trn1", "inf2"], ["3.8", "3.9", "3.10", "3.11"]),
    package("torch-neuronx", "2.5.1.2.4.0", TRN, ["3.8", "3.9", "3.10", "3.11"]),
    package("efa-installer", "na", ["trn1"]),
]
V2_18_0 = [
    package("tensorflow-neuronx", "2.7.4.2.1.0", ["trn1", "inf."], ["3.8"]),
    package("torch_xla", "1.13.1+torchneurone", ["trn1", "inf2"], ["3.8"]),
]
SAMPLE = manifest(v2_21_1=V2_21_1, v2_32_0=V2_32_0, v2_28_0=V2_28_0, v2_28_1=V2_28_1)


def rows(fact: str, given: dict[str, Any] = SAMPLE) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(when, then) of each row of one fact."""
    found = [one for one in neuron.make_facts(given, WHERE).facts if one.id == f"neuron.{fact}"]
    return [(dict(row.when), dict(row.then)) for one in found for row in one.rows]


def exact(*versions: str) -> list[str]:
    return [f"=={text}" for text in versions]


def test_a_release_provides_its_runtime_everywhere_but_on_inf1() -> None:
    assert ({"neuron-sdk": "==2.28.1"}, {"neuron-runtime": "2.30.51.0"}) in rows("runtime")
    everywhere = ["-", "!=Inferentia1"]
    assert ({"neuron-sdk": "==2.28.1", "gpu": everywhere}, {"neuron-runtime": "2.30.51.0"}) in rows("runtime-brought")
    assert ({"neuron-sdk": "==2.21.1", "gpu": everywhere}, {"neuron-runtime": "2.23.112.0"}) in rows("runtime-brought")


def test_inf1_has_another_runtime_than_the_rest_of_a_release() -> None:
    assert [row for row in rows("runtime") if row[0]["neuron-sdk"] == "==2.21.1"] == [
        ({"neuron-sdk": "==2.21.1"}, {"neuron-runtime": ["2.23.112.0", "2.12.23.0"]}),
        ({"neuron-sdk": "==2.21.1", "gpu": "Inferentia1"}, {"neuron-runtime": "2.12.23.0"}),
        (
            {"neuron-sdk": "==2.21.1", "gpu": ["Inferentia2", "Trainium1", "Trainium2"]},
            {"neuron-runtime": "2.23.112.0"},
        ),
    ]


def test_all_torch_neuronx_of_a_release_are_in_one_row() -> None:
    assert ({"neuron-sdk": "==2.28.1"}, {"torch-neuronx": [f"2.{minor}.0.2.12.22436" for minor in (9, 8, 7)]}) in rows(
        "torch-neuronx"
    )


def test_trainium2_has_fewer_torch_neuronx_than_trainium1() -> None:
    assert [row for row in rows("torch-neuronx") if row[0]["neuron-sdk"] == "==2.21.1"] == [
        ({"neuron-sdk": "==2.21.1"}, {"torch-neuronx": ["2.5.1.2.4.0", "1.13.1.1.17.0"]}),
        ({"neuron-sdk": "==2.21.1", "gpu": "Trainium2"}, {"torch-neuronx": "2.5.1.2.4.0"}),
    ]


def test_a_release_without_torch_neuronx_forbids_it() -> None:
    assert rows("no-torch-neuronx") == [({"neuron-sdk": "==2.32.0"}, {"torch-neuronx": "*"})]
    assert rows("no-torch-neuronx", manifest(v2_28_1=V2_28_1)) == []


def test_a_release_without_a_package_has_no_row_for_it() -> None:
    assert [row[0]["neuron-sdk"] for row in rows("nxdt")] == ["==2.28.1"]
    assert [row[0]["neuron-sdk"] for row in rows("collectives")] == ["==2.28.1"]


def test_a_version_belongs_to_its_releases_or_to_a_later_one() -> None:
    later = ">2.32.0"
    assert ({"torch-neuronx": "2.9.0.2.12.22436"}, {"neuron-sdk": [*exact("2.28.1", "2.28.0"), later]}) in rows(
        "release-of-torch-neuronx"
    )
    assert ({"neuronx-cc": "2.27.5334.0"}, {"neuron-sdk": ["==2.32.0", later]}) in rows("release-of-cc")
    assert rows("release-of-nxdt") == []  # it is used with releases that do not have it


def test_torch_neuronx_names_its_pytorch_in_its_first_numbers() -> None:
    assert rows("torch") == [
        ({"torch-neuronx": minor}, {"torch": minor}) for minor in ("2.9", "2.8", "2.7", "2.5", "1.13")
    ]
    assert ({"neuron-sdk": "==2.28.1", "torch": ["2.9", "2.8", "2.7"]}, {}) in rows("sdk-torch")


def test_pythons_of_a_package_and_of_a_release() -> None:
    assert ({"torch-neuronx": "2.7.0.2.12.22436"}, {"python": ["3.10", "3.11"]}) in rows("torch-neuronx-python")
    assert ({"neuronx-cc": "2.27.5334.0"}, {"python": ["3.11", "3.12", "3.13"]}) in rows("cc-python")
    assert ({"neuron-sdk": "==2.28.1"}, {"python": ["3.12", "3.11", "3.10"]}) in rows("sdk-python")


def test_pythons_that_differ_between_releases_name_the_release() -> None:
    one, other = (package("neuronx-cc", "2.5.0.28", TRN, pythons) for pythons in (["3.7", "3.8"], ["3.8", "3.9"]))
    assert rows("cc-python", manifest(v2_9_1=[one], v2_9_0=[other])) == [
        ({"neuronx-cc": "2.5.0.28", "neuron-sdk": "==2.9.1"}, {"python": ["3.7", "3.8"]}),
        ({"neuronx-cc": "2.5.0.28", "neuron-sdk": "==2.9.0"}, {"python": ["3.8", "3.9"]}),
    ]


def test_drivers_that_were_released_with_a_runtime() -> None:
    assert rows("driver") == [
        ({"neuron-runtime": "2.34.10.0", "neuron-driver": "2.30.2.0"}, {}),
        ({"neuron-runtime": "2.30.51.0", "neuron-driver": ["2.26.10.0", "2.26.5.0"]}, {}),
        ({"neuron-runtime": "2.23.112.0", "neuron-driver": "2.19.64.0"}, {}),
        ({"neuron-runtime": "2.12.23.0", "neuron-driver": "2.19.64.0", "gpu": "Inferentia1"}, {}),
    ]


def test_accelerators_of_a_release_and_of_a_driver() -> None:
    everything = ["Inferentia1", "Inferentia2", "Trainium1", "Trainium2", "Trainium3"]
    assert rows("instances")[0] == ({"neuron-sdk": "==2.32.0", "gpu": everything}, {})
    assert rows("driver-instances")[-1] == ({"neuron-driver": "2.19.64.0", "gpu": everything[:-1]}, {})
    assert rows("nxdt-instances") == [({"nxdt": "1.7.0", "gpu": ["Trainium1", "Trainium2"]}, {})]


def test_trn1n_is_trn1_and_a_family_in_no_known_form_is_left_out() -> None:
    given = manifest(v2_18_0=[*V2_18_0, package("aws-neuronx-dkms", "2.16.7.0", ["trn1n", "p5", "inf."])])
    assert rows("instances", given) == [({"neuron-sdk": "==2.18.0", "gpu": ["Inferentia2", "Trainium1"]}, {})]
    assert rows("driver-instances", given) == [({"neuron-driver": "2.16.7.0", "gpu": "Trainium1"}, {})]


def test_an_unknown_accelerator_is_read() -> None:
    given = manifest(v2_40_0=[package("neuronx-cc", "2.35.1.0", ["trn4"], ["3.13"])])
    assert rows("instances", given) == [({"neuron-sdk": "==2.40.0", "gpu": "Trainium4"}, {})]


def test_efa_installer_where_the_manifest_names_one() -> None:
    assert rows("efa-installer") == [({"neuron-sdk": "==2.32.0", "efa-installer": "1.47"}, {})]


def test_two_spellings_of_a_version_are_one() -> None:
    given = manifest(
        v2_15_2=[package("libnrt.so", "2.18.15", ["inf1"]), package("aws-neuronx-runtime-lib", "2.18.15.0", ["trn1"])]
    )
    assert rows("runtime", given) == [({"neuron-sdk": "==2.15.2"}, {"neuron-runtime": "2.18.15.0"})]


def test_every_version_is_a_value_and_every_source_has_a_place() -> None:
    derived = neuron.make_facts(SAMPLE, WHERE)
    assert derived.components["neuron-sdk"] == {"values": ["2.32.0", "2.28.1", "2.28.0", "2.21.1"]}
    assert derived.components["neuron-driver"] == {"values": ["2.30.2.0", "2.26.10.0", "2.26.5.0", "2.19.64.0"]}
    assert "efa-installer" not in derived.components  # others know its releases
    for fact in derived.facts:
        assert (fact.type, fact.where) == ("metadata", WHERE)
        assert fact.how and fact.rows, fact.id


def test_the_order_of_the_manifest_does_not_matter() -> None:
    backwards = {"neuron_releases": list(reversed(SAMPLE["neuron_releases"]))}
    assert render_derived(neuron.make_facts(backwards, WHERE), dates(backwards)) == render_derived(
        neuron.make_facts(SAMPLE, WHERE), dates(SAMPLE)
    )


def dates(given: dict[str, Any]) -> dict[str, str]:
    return {fact.id: SEEN for fact in neuron.make_facts(given, WHERE).facts}


# --- manifests that are none


def test_read_manifest(tmp_path: Path) -> None:
    path = tmp_path / "n2-manifest.json"
    path.write_text(json.dumps(SAMPLE))
    assert read_manifest(path) == SAMPLE


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.json", "no such file"), (tmp_path, "not a file")):
        with pytest.raises(InputError) as error:
            read_manifest(path)
        assert error.value.message == reason and "n2-manifest.json" in error.value.hint


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 8 MiB"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a Neuron manifest: line 1"),
        (b'{"neuron_releases": [', "not a Neuron manifest: line 1"),
        (b"\xff{}", "it is not JSON"),
        (b"[" * 200_000, "it is not JSON"),
        (b'{"neuron_releases": ' + b"9" * 10_000 + b"}", "it is not JSON"),
        (b"[]", "it has no list 'neuron_releases'"),
        (b'{"neuron_releases": {"2.28.1": []}}', "it has no list 'neuron_releases'"),
        (b'{"neuron_releases": []}', "the manifest holds no release"),
        (b'{"repos": {"whl": "x"}, "manifest_version": "1.0.1"}', "it has no list 'neuron_releases'"),
    ],
)
def test_no_manifest(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(data)
    with pytest.raises(SpecError) as error:
        read_manifest(path)
    assert reason in error.value.message and str(path) in error.value.where


def test_all_mistakes_are_reported_together() -> None:
    given = manifest(v2_28_1=[package("neuronx-cc", "latest", TRN), {"name": "nki"}, "torch-neuronx"])
    given["neuron_releases"] += [
        {"neuron_version": "banana", "packages": []},
        {"neuron_version": "2.27.0"},
        {"neuron_version": "2.26.0", "packages": [{**package("neuronx-cc", "2.1"), "supported_instances": "trn1"}]},
        {"neuron_version": "2.25.0", "packages": [package("neuronx-cc", "2.20.9961.0", TRN, ["three"])]},
        {"neuron_version": "2.24.0", "packages": [package("neuronx-cc\udc80", "2.20")]},
        7,
    ]
    with pytest.raises(SpecError) as error:
        neuron.make_facts(given, WHERE)
    assert [finding.message for finding in error.value.findings] == [
        "neuron_releases[0].packages[0]: neuronx-cc 'latest' is not a version",
        "neuron_releases[0].packages[1] has no text 'name' or no text 'version'",
        "neuron_releases[0].packages[2] has no text 'name' or no text 'version'",
        "neuron_releases[1] has no version 'neuron_version'",
        "neuron_releases[2] (2.27.0) has no list 'packages'",
        "neuron_releases[3].packages[0] (neuronx-cc): instances and Python versions must be lists of texts",
        "neuron_releases[4].packages[0]: neuronx-cc names 'three', which is not a Python version",
        "neuron_releases[5].packages[0] has no text 'name' or no text 'version'",
        "neuron_releases[6] has no version 'neuron_version'",
    ]


def test_a_release_that_is_listed_twice() -> None:
    given = manifest(v2_28_1=V2_28_1)
    given["neuron_releases"] *= 2
    with pytest.raises(SpecError, match=r"release 2\.28\.1 is listed twice"):
        neuron.make_facts(given, WHERE)


def test_very_many_mistakes_are_truncated() -> None:
    with pytest.raises(SpecError) as error:
        neuron.make_facts({"neuron_releases": [None] * 4000}, WHERE)
    assert len(error.value.findings) == 20


# --- the shipped file


def test_the_shipped_file_equals_the_one_derived_from_the_manifest() -> None:
    name = "ENVBUILD_TEST_NEURON_MANIFEST"
    if not (path := os.environ.get(name)):
        pytest.skip(f"{name} does not name a copy of n2-manifest.json of aws-neuron/aws-neuron-sdk")
    derived = neuron.make_facts(read_manifest(Path(path)), WHERE)
    shipped = SHIPPED.read_text()
    assert len(derived.components["neuron-sdk"]["values"]) >= 51
    made = render_derived(derived, {fact.id: SEEN for fact in derived.facts})
    assert [line for line in made.splitlines() if line.startswith("  - ")] == [
        line for line in shipped.splitlines() if line.startswith("  - ")
    ]

"""Files of an image: those that are known by name, those of the spec, and places where none may be."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.yaml_parser import parse
from envbuild.core.yaml_reader import Reader
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import read_options
from tests.support.recipes import ROOT, image, recipe

pytestmark = pytest.mark.unit
# Azure/azhpc-images@8e9d055 topology/: GPUs and network adapters (PCI domains) of each NUMA node, and its CPUs
TOPOLOGY = {
    "azure-ndv4-topo": [
        (0, 23, {"0003", "0004"}, {"0103", "0104"}),
        (24, 47, {"0001", "0002"}, {"0101", "0102"}),
        (48, 71, {"000d", "000e"}, {"0107", "0108"}),
        (72, 95, {"000b", "000c"}, {"0105", "0106"}),
    ],
    "azure-ndv5-topo": [
        (0, 47, {"0001", "0002", "0003", "0008"}, {"0101", "0102", "0103", "0104"}),
        (48, 95, {"0009", "000a", "000b", "000c"}, {"0105", "0106", "0107", "0108"}),
    ],
}


@pytest.mark.parametrize("name", TOPOLOGY)
def test_a_topology_is_that_of_the_machine(name: str) -> None:
    made = recipe("files", known=[name])
    ((path, text),) = made.runtime(image(made)).files.items()
    assert path == f"/opt/microsoft/{name.removeprefix('azure-')}.xml"
    found, masks = [], []
    for node in ElementTree.fromstring(text):
        masks.append(int(node.attrib["affinity"].replace(",", ""), 16))
        cpus = [number for number in range(96) if masks[-1] >> number & 1]
        kinds: dict[str, set[str]] = {"0x030200": set(), "0x020700": set()}
        for device in node.iter("pci"):
            if device.attrib["class"] in kinds:
                kinds[device.attrib["class"]].add(device.attrib["busid"].removesuffix(":00:00.0"))
        assert cpus == list(range(cpus[0], cpus[-1] + 1))
        found.append((cpus[0], cpus[-1], *kinds.values()))
    assert found == TOPOLOGY[name]
    assert sum(masks) == (1 << 96) - 1  # every CPU once
    assert all(re.fullmatch("([0-9a-f]{8},){2}[0-9a-f]{8}", mask) for mask in re.findall('affinity="([^"]*)"', text))
    addresses = re.findall('busid="([^"]*)"', text)
    assert len(addresses) == len(set(addresses))


def test_on_ndv5_each_gpu_has_its_own_switch() -> None:
    text = next(iter(recipe("files", known=["azure-ndv5-topo"]).runtime(image()).files.values()))
    switches = [switch for node in ElementTree.fromstring(text) for switch in node]
    assert len(switches) == 8
    assert all([device.attrib["class"] for device in switch] == ["0x030200", "0x020700"] for switch in switches)


def test_settings_of_nccl_are_merged() -> None:
    made = recipe("files", known=["azure-ndv4-nccl"], nccl={"NCCL_IB_HCA": "mlx5_ib", "NCCL_IGNORE_CPU_AFFINITY": "0"})
    assert made.runtime(image(made)).files == {
        "/etc/nccl.conf": (
            "NCCL_IB_HCA=mlx5_ib\nNCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_IGNORE_CPU_AFFINITY=0\n"
            "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml\n"
        )
    }


def test_a_host_file_has_the_gpus_of_the_target() -> None:
    made = recipe("files", known=["hostfile"])
    env = image(made, target="lambda-a6000")
    assert made.runtime(env).files == {"/job/hostfile": f"localhost slots={env.target.gpus}\n"}
    assert "has none" in str(made.refusals(image(made, target="cpu"))[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"known": ["azure-ndv6-topo"]},
            "is not a known file\nhint: did you mean 'azure-ndv5-topo'? there are: azure-ndv4-",
        ),
        ({"text": {"etc/x": "1"}}, "is not a plain absolute path"),
        ({"text": {"/etc/../bin/sh": "1"}}, "is not a plain absolute path"),
        ({"text": {"/opt/a b": "1"}}, "is not a plain absolute path"),
        ({"text": {"/usr/bin/env": "1"}}, "belongs to the system (/usr)"),
        ({"text": {"/etc/passwd": "1"}}, "belongs to the system (/etc/passwd)"),
        ({"text": {"/opt/venv/x": "1"}}, "belongs to the Python packages of the image (/opt/venv)"),
        ({"text": {"/opt": "1"}}, "'/opt' is a folder of the system"),
        ({"text": {"/etc": "1"}}, "'/etc' is a folder of the system"),
        ({"text": {"/var": "1"}}, "'/var' is a folder of the system"),
        ({"text": {"/etc/nccl.conf": "A=1"}, "known": ["azure-ndv4-nccl"]}, "write its settings under nccl:"),
        ({"nccl": {"nccl_debug": "INFO"}}, "is not the name of a setting"),
        ({"nccl": {"NCCL_DEBUG": "INFO\nX=1"}}, "holds a line end"),
    ],
)
def test_invalid_files_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        recipe("files", **options)


def test_files_below_the_prefix_of_a_layer_are_refused() -> None:
    paths = ("/opt/ucx/etc/ucx.conf", "/opt/ucx", "/opt/ucx-notes", "/opt/ucc/x", "/etc/ucx/ucx.conf")
    made = recipe("files", text=dict.fromkeys(paths, "1"))
    compiled = recipe("ucx", version="1.20")
    reasons = made.refusals(image(made, compiled, recipe("gdrcopy")))
    assert {str(reason).partition(" belongs to ")[0] for reason in reasons} == {"/opt/ucx/etc/ucx.conf", "/opt/ucx"}
    assert all("layer 'ucx', which builds /opt/ucx; put it into another folder" in str(reason) for reason in reasons)
    assert made.refusals(image(made, recipe("ucx"))) == ()  # the distribution's makes no folder there


@pytest.mark.parametrize("text", ["echo ${HOME} $(id) `id` $PATH", "'${A}'"])
def test_contents_of_files_are_literal(text: str) -> None:
    """Neither a shell nor enroot reads them on the way; what may become a word of a command is another matter."""
    made = recipe("files", text={"/opt/site/run.sh": text})
    assert made.runtime(image(made)).files == {"/opt/site/run.sh": f"{text}\n"}
    with pytest.raises(SpecError, match=r"contains .*a shell would expand it"):
        recipe("debian-packages", packages=[text])


def test_files_are_checked_as_they_are_written(tmp_path: Path) -> None:
    made = recipe("files", text={"/etc/motd": "it's\\nhere"}, known=["azure-ndv4-topo"])
    env = image(made)
    for path, text in made.runtime(env).files.items():
        file = tmp_path / hashlib.sha256(path.encode()).hexdigest()
        file.write_text(text)
        (check,) = (check for check in made.verify(env) if path in check.name)
        command = check.command.replace(f"'{path}'", str(file))
        output = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
        assert re.search(check.expect, output)
        file.write_text(f"{text} ")
        output = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
        assert not re.search(check.expect, output)


def test_a_short_form_of_files() -> None:
    reader = Reader()
    _, node = parse("files: [azure-ndv4-topo]", "x.yaml", reader.findings).entries["files"]
    made = read_options(reader, load_recipe(ROOT / "recipes" / "files.py"), node)
    reader.finish()
    assert made is not None and dataclasses.asdict(made)["known"] == ("azure-ndv4-topo",)

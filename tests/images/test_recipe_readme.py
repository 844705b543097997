"""The example of recipes/README.md, typed as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.image_project import Cli

pytestmark = pytest.mark.images

README = Path(__file__).parents[2] / "recipes" / "README.md"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Cli:
    folder = tmp_path_factory.mktemp("hello")
    text = README.read_text()
    for name, kind in (("recipes/hello.py", "python"), ("images/hello.yaml", "yaml")):
        assert f"`{name}`" in text
        block = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]  # the first example
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(block)
    return Cli(folder, store)


def test_its_commands_give_a_verified_image(cli: Cli) -> None:
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    typed = [line.partition("#")[0].split() for line in commands.splitlines()]
    assert [words[:3] for words in typed] == [["envbuild", word, "hello"] for word in ("compile", "lock", "make")]
    for words in typed:
        last = cli.run(*words[1:])
    assert "verify:   not run" not in last.stdout
    assert cli.run("run", "hello", "--", "/opt/hello/bin/hello", "-g", "built").stdout == "built\n"


def test_a_unit_of_two_images_is_built_once(cli: Cli) -> None:
    """Another image with the same recipe takes its prefix from the store."""
    cli.run("make", "hello")
    text = (cli.project / "images" / "hello.yaml").read_text()
    (cli.project / "images" / "other.yaml").write_text(text.replace("GNU Hello on Debian", "another image"))
    cli.run("lock", "other")
    made = cli.json("make", "other")
    assert made["built"] == ["glue"]
    assert set(made["reused"]) == {"base", "hello"}

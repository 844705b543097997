"""The documentation names what exists: links, commands, options, files, targets of make; its examples are valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

from envbuild.cli.app import create_app

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "recipes" / "README.md"])
PROSE = [page for page in PAGES if page.name not in ("CHANGELOG.md", "tables.md")]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMANDS = get_command(create_app()).commands  # type: ignore[attr-defined]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def quoted(text: str) -> list[str]:
    """Return the pieces between backticks and the lines of code blocks."""
    blocks = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    return [*re.findall(r"`([^`\n]+)`", FENCE.sub("", text)), *blocks]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_link_targets_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.parametrize(("page", "lines"), [("README.md", 120), ("STYLE.md", 120)])
def test_short_pages_are_within_their_limit(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= lines


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_commands_and_options_exist(page: Path) -> None:
    for piece in quoted(page.read_text()):
        for words in re.findall(r"(?:^|[;&|(] *|\$ )(?:\.venv/bin/)?envbuild ([^;&|#`]+)", piece):
            command, options = find_command(words.split())
            if command is not None:
                known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
                for option in options:
                    assert option in known | {"--help"}, f"envbuild {words}: {option}"


def find_command(words: list[str]) -> tuple[typer.core.TyperCommand | None, list[str]]:
    """Return the command that the words name, and their options up to `--`; None for options of envbuild itself."""
    if words[0].startswith(("-", "…")):
        return None, []
    command = COMMANDS[words[0]]
    if hasattr(command, "commands") and len(words) > 1 and not words[1].startswith(("-", "…")):
        command = command.commands[words[1].split("|")[0]]
    own = words[: words.index("--")] if "--" in words else words
    return command, [word.strip("[]").partition("=")[0] for word in own if re.match(r"\[?--?[a-z]", word)]


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"matrix", "store"}))
def test_every_command_is_described(command: str) -> None:
    commands, answers = ((ROOT / "docs" / page).read_text() for page in ("commands.md", "json.md"))
    assert re.search(rf"^\| `{command}[ `]", commands, re.MULTILINE), command
    assert f"`{command}" in answers, command


def test_paths_of_the_architecture_page_exist() -> None:
    """A path may leave out the folders above it."""
    paths = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    known = {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))} | set(FOLDERS)
    page = FENCE.sub("", (ROOT / "docs" / "architecture.md").read_text())
    named = {piece for piece in re.findall(r"`([\w./-]+(?:/|\.py))`", page) if "NAME" not in piece}
    assert sorted(piece for piece in named - COMING if piece.rstrip("/") not in known) == []


FOLDERS = ("envbuild", "recipes", "images", "tests", "docs", "benchmarks")
COMING = {"envbuild/shipped/"}  # a folder of the wheel alone


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [path.read_text() for path in (*PROSE, *WORKFLOWS, ROOT / ".ci" / "run")]
    named = {word for text in texts for piece in [*quoted(text), *text.splitlines()] for word in make_targets(piece)}
    assert named <= targets
    assert {"check", "check-docs", "test"} <= named


def make_targets(line: str) -> list[str]:
    found = re.match(r"(?:\s*- run: )?\s*make ((?:[a-z-]+ ?)+)(?:#|$)", line)
    return [word for word in found[1].split() if not word.startswith("-")] if found else []


def test_the_spec_of_the_readme_is_valid(tmp_path: Path) -> None:
    from envbuild.cli.check_images import check_image

    blocks = dict(FENCE.findall((ROOT / "README.md").read_text()))
    spec = tmp_path / "images" / "mine.yaml"
    spec.parent.mkdir()
    spec.write_text(blocks["yaml"])
    assert blocks["yaml"].startswith("# images/mine.yaml\n")
    assert check_image(str(spec)).code == 0


def test_examples_are_readable() -> None:
    for page in PROSE:
        for language, block in FENCE.findall(page.read_text()):
            if language == "python":
                ast.parse(block)
            elif language == "yaml":
                yaml.safe_load(block)

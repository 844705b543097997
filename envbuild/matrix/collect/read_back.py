"""The derived files of a refresh, read as every command reads them, before they replace those that there are: an index
may name what a fact file must not have, and no command would read the facts from then on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.matrix import FACTS, fact_files, read_fact_file
from envbuild.matrix.facts.load import load_facts


def check_readable(folder: Path, texts: Mapping[str, str]) -> None:
    """Check that the facts can be read when `folder` has these files (name → text). Raise InputError."""
    if not texts:
        return
    with TemporaryDirectory() as name:
        copy, release = Path(name), folder.resolve() == (FACTS / "derived").resolve()
        for path in fact_files(FACTS) if release else sorted(folder.glob("*.yaml")):
            (copy / path.name).write_bytes(read_fact_file(path))
        for file, text in texts.items():
            (copy / file).write_text(text, "utf-8", errors="surrogatepass")
        try:
            load_facts([copy] if release else [FACTS, copy])
        except SpecError as error:
            raise InputError.of(_describe(finding, copy, folder) for finding in error.findings) from None


def _describe(finding: Finding, copy: Path, folder: Path) -> Finding:
    where = finding.where.replace(str(copy), relative_path(folder))
    return Finding(f"what was collected cannot be read: {finding.message}", where, "is it the right package index?")

"""``envbuild doctor --gather``: the answers of several nodes in one folder, and how the nodes differ."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from envbuild.cli.node_names import node_names
from envbuild.core.errors import SpecError
from envbuild.core.json_text import record_value
from envbuild.core.regular_file import NotRegularError, mode_at, read_bounded
from envbuild.core.text import counted
from envbuild.doctor.outliers import Comparison, compare_nodes

LARGEST = 4 << 20  # bytes of a file
MOST = 20_000  # files


def gather(folder: str, nodes: str = "") -> Comparison:
    """Compare the JSON files of a folder. nodes: the list of those that are expected. Raises SpecError for fewer than
    two nodes, and for a list that is none."""
    expected = node_names(nodes)
    path = Path(folder)
    hint = "on each node: envbuild doctor --json > DIR/$(hostname).json"
    if not S_ISDIR(mode_at(path)):
        raise SpecError(f"{folder} is not a folder", hint=hint)
    documents: dict[str, Any] = {}
    unread: dict[str, str] = {}
    files = sorted(islice(path.glob("*.json"), MOST + 1))
    if len(files) > MOST:
        raise SpecError(f"{folder} has more than {MOST} files", hint="compare the nodes of one kind alone")
    for file in files:
        try:
            documents[file.name] = record_value(read_bounded(file, LARGEST))
        except NotRegularError:
            unread[file.name] = "not a regular file"
        except OSError as error:
            unread[file.name] = error.strerror or str(error)
        except ValueError:
            unread[file.name] = "not valid JSON, or truncated"
    found = compare_nodes(documents, unread, expected)
    if len(found.nodes) < 2:
        faults = "".join(f"; {name}: {why}" for name, why in found.unread.items())
        answers = counted(len(found.nodes), "answer")
        raise SpecError(f"{folder} has {answers} of envbuild doctor, and two are needed{faults}", hint=hint)
    return found


def comparison_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON has it."""
    return {
        "nodes": list(found.nodes),
        "outliers": [asdict(one) for one in found.outliers],
        "failures": found.failures,
        "minor": found.minor,
        "missing": list(found.missing),
        "unread": found.unread,
    }

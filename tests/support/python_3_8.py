"""Source code that also runs on Python 3.8, with its standard library alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path


def check_python_3_8(folder: Path) -> None:
    """Check the modules of a folder."""
    for path in folder.rglob("*.py"):
        source = path.read_text()
        code = ast.parse(source, feature_version=(3, 8))
        assert "from __future__ import annotations" in source or len(code.body) == 1, path
        names = {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        assert not names & {"removeprefix", "removesuffix", "is_relative_to", "bit_count"}, path
        generic = {
            item.name
            for node in ast.walk(code)
            if isinstance(node, ast.ImportFrom)
            for item in node.names
            if node.module == "collections.abc"
        } | {"dict", "list", "set", "tuple"}
        values = [part for node in ast.walk(code) if isinstance(node, ast.Assign) for part in ast.walk(node.value)]
        parts = [part.value for part in values if isinstance(part, ast.Subscript)]
        assert not [part.id for part in parts if isinstance(part, ast.Name) and part.id in generic], path
        modules = {node.module or "" for node in ast.walk(code) if isinstance(node, ast.ImportFrom) and not node.level}
        modules |= {item.name for node in ast.walk(code) if isinstance(node, ast.Import) for item in node.names}
        assert {module.partition(".")[0] for module in modules} <= set(sys.stdlib_module_names), path

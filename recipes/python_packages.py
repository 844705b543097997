"""Python packages from the package index that need no recipe of their own."""

import re
from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Recipe, RecipeEnv, Runtime

# What most requirements look like. Only the others need `packaging`, whose import takes longer than all else of a run
# that has nothing to do.
PLAIN = (
    r"[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*(((==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)(,(==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)*)?"
)


@dataclass(frozen=True, kw_only=True)
class PythonPackages(Recipe):
    """``python-packages: [transformers, "datasets>=4"]``: PEP 508 requirements, resolved together with everything
    else in the venv."""

    shorthand: ClassVar[str] = "packages"

    packages: tuple[str, ...] = ()

    def faults(self) -> dict[str, str]:
        found = {text: requirement_fault(text) for text in self.packages if not re.fullmatch(PLAIN, text)}
        return {text: reason for text, reason in found.items() if reason}

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=self.packages)


def requirement_fault(text: str) -> str:
    """Why `text` is not a requirement by name (PEP 508), or ""."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        address = Requirement(text).url
    except InvalidRequirement as error:
        return f"is not a Python requirement: {str(error).splitlines()[0]}"
    return "names an address, and a lock holds packages of an index: write its name and version" if address else ""

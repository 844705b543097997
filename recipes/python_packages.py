"""Python packages from the package index that need no recipe of their own."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import INPUTS, VENV, Recipe, RecipeEnv, Refusal, Runtime, Sources, comment, shell

# The form of most requirements. Only the others need `packaging`, whose import takes longer than the rest of a command
# that has nothing to do.
PLAIN = (
    r"[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*(((==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)(,(==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)*)?"
)


@dataclass(frozen=True, kw_only=True)
class PythonPackages(Recipe):
    """Python packages from the package index: ``python-packages: [transformers, "datasets>=4"]``.

    - `packages`: requirements (PEP 508), resolved together with everything else in the venv.
    - `compiled`: pure Python packages that the index has as source only (``ftfy==6.0.1``). Their wheels are built here,
      with setuptools. Their own requirements are not known before that: add them to `packages`.
    """

    shorthand: ClassVar[str] = "packages"
    wheel: ClassVar[bool] = True  # of those in `compiled`; see `builds`

    packages: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()

    @property
    def builds(self) -> bool:
        return bool(self.compiled)

    def faults(self) -> dict[str, Refusal]:
        texts = (*self.packages, *self.compiled)
        found = {text: requirement_fault(text) for text in texts if not re.fullmatch(PLAIN, text)}
        return {text: Refusal(reason) for text, reason in found.items() if reason}

    def sources(self, env: RecipeEnv) -> Sources:
        if not self.compiled:
            return Sources()
        return Sources(python=("setuptools", "wheel"), sdists=self.compiled)

    def build(self, env: RecipeEnv) -> list[Any]:
        if not self.compiled:
            return []
        make = f'"$UV" build --wheel --no-build-isolation --python {VENV}/bin/python --out-dir {INPUTS}/out "$sdist"'
        return [
            comment("wheels of packages that the index has as source only"),
            shell(commands=[f"mkdir -p {INPUTS}/out", f"for sdist in {INPUTS}/sdists/*; do {make} || exit 1; done"]),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=self.packages)


def requirement_fault(text: str) -> str:
    """Return the reason why `text` is not a requirement by name (PEP 508), or ""."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        address = Requirement(text).url
    except InvalidRequirement as error:
        return f"is not a Python requirement: {str(error).splitlines()[0]}"
    return "names an address, and a lock contains packages of an index: write its name and version" if address else ""

"""Random questions to the version matrix: the same ones each time, as long as the facts list the same versions."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator

from envbuild.core.errors import SpecError
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Component
from envbuild.matrix.solve.request import parse_request

SEED = 20261123
# Most questions are about these: (component, how often compared with every other one).
OFTEN = {"torch": 8, "cuda": 6, "gpu": 6, "driver": 6, "python": 4, "nccl": 2, "instance": 2, "base": 2}


def random_questions(matrix: FactTable, count: int, seed: int = SEED) -> Iterator[str]:
    """Yield `count` questions as a user types them; those that are refused as mistakes are left out."""
    chance = random.Random(seed)
    components = sorted((one for one in matrix.components if not one.hidden), key=lambda one: one.name)
    weights = [OFTEN.get(one.name, 1) for one in components]
    while count:
        several = {one.name: one for one in chance.choices(components, weights, k=chance.randint(2, 6))}
        words = [random_word(chance, one, matrix) for one in several.values()]
        try:
            parse_request(words, matrix)
        except SpecError:
            continue
        count -= 1
        yield shlex.join(words)


def random_word(chance: random.Random, component: Component, matrix: FactTable) -> str:
    """Return a component with a version, with a bound, or alone; seldom with a version that no fact lists."""
    values = sorted(matrix.values[matrix.number[component.name]])
    kind = chance.random()
    if not values or kind < 0.15:
        return component.name
    value = chance.choice(values)
    if component.kind != "version" or kind < 0.8:
        return f"{component.name}={value}"
    if kind < 0.95:
        return f"{component.name}{chance.choice(('>=', '<=', '<'))}{value.partition('+')[0]}"
    return f"{component.name}={value.partition('+')[0]}.{chance.randint(1, 9)}"

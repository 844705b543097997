"""Numbers of examples of a property."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

QUICK = 12  # examples of a property without a number of its own, in the profile of that name


def examples(count: int, **more: Any) -> settings:
    """Return settings with `count` examples; an eighth of them in `--hypothesis-profile=quick` (`make check`)."""
    quick = settings.default is not None and settings.default.max_examples == QUICK
    return settings(max_examples=max(count // 8, 4) if quick else count, **more)

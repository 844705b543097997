"""A talk that is listened to: what a person is warned of on stderr stands in --json too."""

from __future__ import annotations

from envbuild.console import Talk


class Heard:
    """A Talk that passes everything on and keeps the warnings."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.warnings: list[str] = []
        self.say, self.start, self.advance = talk.say, talk.start, talk.advance
        self.note, self.finish = talk.note, talk.finish

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.talk.warn(text)

    def taken(self) -> list[str]:
        """The warnings since the last call."""
        found, self.warnings = self.warnings, []
        return found

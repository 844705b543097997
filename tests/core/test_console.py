"""Reporters: lines of a log, and the live block of a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from envbuild.core import console

pytestmark = pytest.mark.unit


def redirected(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return the text on stderr."""
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    return output


def written(errors: io.StringIO) -> list[str]:
    """Return the lines without the seconds before them."""
    return [line.partition("s  ")[2] for line in errors.getvalue().splitlines()]


def test_a_log_has_a_line_for_a_long_transfer_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = redirected(monkeypatch)
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    log = console.LineReporter()
    log.info("info")
    log.warn("watch out")
    log.start("a", "reading")
    for now in (109.0, 110.0, 119.0, 120.0):  # noqa: B007 the clock reads it
        log.advance("a", 1000, 2000)
    log.note("a", "unseen")
    now = 131.0
    log.note("a", "3 of 7" + " " * 150 + "more")
    log.note("a", "unseen")
    log.finish("a")
    log.finish("a", "done")
    log.advance("none", 1, 2)
    assert written(errors) == [
        "info",
        "warning: watch out",
        "reading",
        "reading: 1.0 kB of 2.0 kB, 100 B/s, 10 s left",
        "reading: 1.0 kB of 2.0 kB, 50 B/s, 20 s left",
        "reading: 3 of 7" + " " * 150 + "more",
        "done",
    ]
    assert errors.getvalue().startswith("    0.0s  info\n") and "   20.0s  reading" in errors.getvalue()


def test_warnings_are_printed_and_recorded_until_they_are_taken() -> None:
    silent = console.SilentReporter()
    recording = console.RecordingReporter(silent)
    recording.info("info")
    recording.warn("one")
    recording.finish("a", "done")
    recording.finish("b")
    assert (recording.take_warnings(), recording.take_warnings()) == (["one"], [])
    assert silent.lines == ["info", "one", "done"]


@pytest.mark.parametrize(
    ("terminal", "variables", "live"),
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
    ],
)
def test_a_live_block_is_for_terminals(
    terminal: bool, variables: dict[str, str], live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = redirected(monkeypatch)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(errors, "isatty", lambda: terminal)
    assert type(console.default_reporter()) is (console.LiveReporter if live else console.LineReporter)
    on_terminal = console.LiveReporter if live else console.LineReporter
    assert type(console.terminal_reporter()) is (on_terminal if terminal else console.SilentReporter)


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_bytes_rate_and_time_left(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other parts of the line are shortened first."""
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", str(width))
    live = console.LiveReporter()
    live.start("layers", f"docker://registry.example/{'long/' * 20}app:1: packing 60 of 60 layers")
    live.began["layers"] -= 100
    live.note("layers", "12 of 60 layers done")
    live.advance("layers", 123_400_000_000, 987_600_000_000)
    with Console(width=width, file=io.StringIO()) as screen:
        screen.print(live.progress.get_renderable())
    output = screen.file.getvalue()  # type: ignore[attr-defined]
    live.finish("layers")
    assert "123.4 GB of 987.6 GB, 1.2 GB/s, 12 min left" in output and "docker://" in output
    assert len(output.strip("\n").splitlines()) == 1


def test_a_narrow_terminal_does_not_cut_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that a terminal wraps can be copied as one; a line end in them would cut the command."""
    monkeypatch.setenv("COLUMNS", "40")
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    live, command = (
        console.LiveReporter(),
        "next: buildah build -f '/data/my images/context/Containerfile' '/data/my images'",
    )
    live.info(command)
    live.warn(command)
    assert output.getvalue().splitlines() == [command, f"warning: {command}"]


def test_control_characters_of_servers_and_images_do_not_reach_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = redirected(monkeypatch)
    log = console.LineReporter()
    log.info("a\x1b[2J\nb")
    log.warn("\u202ec")
    log.start("t", "\x07")
    log.finish("t", "\u200b")
    assert [line.strip() for line in written(errors)] == ["a\\x1b[2J", "", "warning: \\u202ec", "\\x07", "\\u200b"]


def test_a_line_of_a_build_is_no_markup_of_the_live_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing tag that opens nothing ends the thread that draws."""
    from rich.console import Console

    live = console.LiveReporter()
    live.start("unit", "unit\u202e ucx")
    live.note("unit", "[/usr/bin/gcc] [red]\x1b[2J")
    with Console(width=120, file=io.StringIO()) as screen:
        screen.print(live.progress.get_renderable())
    output = screen.file.getvalue()  # type: ignore[attr-defined]
    live.finish("unit")
    assert "unit\\u202e ucx: [/usr/bin/gcc] [red]\\x1b[2J" in output
    assert "\x1b" not in output and "\u202e" not in output


def test_control_characters_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    live = console.LiveReporter()
    live.info("\u2066a")
    live.warn("b\x1b]0;x\x07")
    assert output.getvalue().splitlines() == ["\\u2066a", "warning: b\\x1b]0;x\\x07"]

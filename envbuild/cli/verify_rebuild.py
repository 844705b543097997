"""``envbuild verify --rebuild``: an image is built again from its lock, and the comparison printed."""

from __future__ import annotations

from pathlib import Path

import typer

from envbuild.cli.options import show, timing_reporter
from envbuild.core.errors import VerifyError
from envbuild.core.signing.passphrase import open_signer
from envbuild.publish.rebuild.rebuild import rebuild_image
from envbuild.publish.rebuild.signed_answer import SignedAnswer
from envbuild.spec.workspace import open_workspace


def show_rebuild(name: str, engine: str, platform: str, sign: Path | None, *, timings: bool, as_json: bool) -> None:
    """Build an image again, print the comparison, and exit with code 7 if something differs. sign: the key that signs
    the answer."""
    times, signer = timing_reporter(timings), open_signer(sign)
    with open_workspace(times, names=[name]) as workspace:
        answer = SignedAnswer.open(name, signer, workspace) if signer else None
        result = rebuild_image(name, workspace, engine, platform)
        text = result.text
        if answer:
            text += f"\n  signed:   {answer.attach(result.data)}, attached to the image"
    show(result.data, as_json, text, times)
    if not result.data["equal"]:
        raise typer.Exit(VerifyError.exit_code)

"""``envbuild verify``: the audit and the checks of a finished image."""

from __future__ import annotations

from envbuild.cli.options import Json, Name, show


def verify_command(name: Name, as_json: Json = False) -> None:
    """Audit a built image and run its checks; NAME may be a squashfs file."""
    from envbuild.spec.workspace import open_workspace
    from envbuild.verify.verify import verify_image

    with open_workspace() as workspace:
        result = verify_image(name, workspace)
    show(result.data, as_json, result.text)

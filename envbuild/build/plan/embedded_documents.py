"""The documents of an image in /etc/envbuild: spec, lock, resolution, SBOM. Pure text, so that they are the same on
every machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.build.plan.sbom import sbom

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.spec.resolve import Resolution


def documents(resolution: Resolution, lock: Lock) -> dict[str, str]:
    """Return file name → content."""
    from envbuild.lock.lockfile import dump_lock

    remarks, projects = resolution.remarks(), dev_rows(resolution)
    return {
        "spec.yaml": resolution.spec.text,
        # An image does not depend on the dates of archives, so that locks that differ in these make the same bytes.
        "lock.yaml": dump_lock(replace(lock, releases={})),
        "resolution.json": to_json(
            {
                "image": lock.image,
                "target": resolution.target.name,
                "order": list(resolution.order),
                "versions": dict(lock.versions),
                "chosen": dict(lock.chosen),
                "waivers": [dict(waiver) for waiver in lock.waivers],
                "facts": list(lock.facts),
                **({"remarks": remarks} if remarks else {}),
                **({"dev": projects} if projects else {}),
            }
        ),
        "sbom.cdx.json": to_json(sbom(lock, resolution.contents)),
    }


def dev_rows(resolution: Resolution) -> list[dict[str, str]]:
    """Return the project folders of an image, with the digest of the content of those that are copied."""
    digests = {content.project.name: f"sha256:{content.sha256}" for content in resolution.contents}
    return [
        {"name": project.name, "version": project.metadata.version, "content": digests.get(project.name, "mounted")}
        for project in resolution.spec.dev
    ]


def to_json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

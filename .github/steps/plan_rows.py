#!/usr/bin/env python3
"""The images of `envbuild list --json` as the matrix of a job: ``plan_rows.py ANSWER NAMES``;
``plan_rows.py --names MATRIX``, which prints their names; or ``plan_rows.py --below NAME``, which reads ANSWER
and prints the images of the project that one is based on, lowest first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MOST = 256  # jobs of a matrix, GitHub's limit


def rows(answer: Any, names: list[str]) -> list[dict[str, str]]:
    """Return name and architecture of the images of this project to build. An image without a lock waits for one."""
    own = {path.stem for path in Path("images").glob("*.yaml")}
    found = [image for image in answer["images"] if image["name"] in own and (not names or image["name"] in names)]
    for image in found:
        if image["lock"] == "none":
            print(f"{image['name']}: not built, it has no lock: envbuild lock {image['name']}", file=sys.stderr)
    return [{"image": image["name"], "arch": image["arch"]} for image in found if image["lock"] != "none"]


def below(answer: Any, name: str) -> list[str]:
    """Return the images that an image is based on, lowest first."""
    bases = {image["name"]: image["base"] for image in answer.get("images", ())}
    found: list[str] = []
    while (name := bases.get(name, "")) in bases and name not in found:
        found.insert(0, name)
    return found


def main() -> None:
    if sys.argv[1] == "--below":
        for name in below(json.load(sys.stdin), sys.argv[2]):
            print(name)
        return
    first, second = sys.argv[1:]
    if first == "--names":
        for row in json.loads(Path(second).read_text())["include"]:
            print(row["image"])
        return
    found = rows(json.loads(Path(first).read_text()), second.split())
    if len(found) > MOST:
        sys.exit(f"error: {len(found)} images changed, and a job has at most {MOST}\nhint: name some of them in IMAGES")
    print(json.dumps({"include": found}))


if __name__ == "__main__":
    main()

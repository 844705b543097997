"""``envbuild diff`` with a published image on one side or both: everything that its small documents state.

Layers are compared by the digests of their content; no file of them is read. Their compression does not count as a
difference. The squashfs file, which jobs start, may be one of another publisher: only its sha256 states its content.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.digest import reported_digest
from envbuild.core.result import Result
from envbuild.oci.sources.kinds import is_published
from envbuild.publish.compared_image import ComparedImage, local_side, published_side
from envbuild.publish.diff_remote_text import remote_diff_report
from envbuild.publish.published_image import PublishedImage, PublishedLayer, read_published
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.diff import (
    SECTIONS,
    compare_sections,
    describe_side,
    diff_names,
    versions,
)

MORE = ("labels", "resolution")  # sections beside those of `envbuild.verify.contents.diff`
SQUASHFS = "squashfs file"
MAX_LINES = 1000  # that difflib compares: its time grows with the square of the lines, a spec has some ten


def diff_remote(before: str, after: str, workspace: Workspace, platform: str = "") -> Result:
    """Return the changes from `before` to `after`, as `envbuild.verify.contents.diff` does, without files.

    `platform`: of an index (empty: this machine's). Raises SpecError, InputError, VerifyError, ConflictError,
    LockError for a spec without a lock.
    """
    one, other = (
        published_side(read_published(text, workspace, platform)) if is_published(text) else local_side(text, workspace)
        for text in (before, after)
    )
    unknown = unknown_sections(one, other)
    sections = compare_sections(one.side, other.side)
    sections["labels"] = diff_names(labels(one), labels(other))
    sections["resolution"] = diff_names(resolution(one), resolution(other))
    layers = compare_layers(one.layers or (), other.layers or ())
    data: dict[str, Any] = {
        "before": describe(one),
        "after": describe(other),
        **{name: {} if name in unknown else found for name, found in sections.items()},
        "spec": [] if "spec" in unknown else diff_lines(one.spec or "", other.spec or ""),
        "layers": {"added": [], "removed": [], "same": 0} if "layers" in unknown else layers,
        "not_compared": unknown,
        "new_bytes": new_bytes(one.published, other.published),
        "files": None,
        "folders": {},
    }
    changed = any(data[key] for key in (*SECTIONS, *MORE, "spec"))
    changed = changed or bool(data["layers"]["added"] or data["layers"]["removed"])
    data["content"] = {} if changed else compare_content(one, other, workspace.reporter)
    unsure = [] if changed or data["content"] else unsure_parts(one, other)
    data["not_compared"] = [*unknown, *unsure]
    data["equal"] = not (changed or data["content"] or unsure)
    return Result(data, remote_diff_report(data))


def unknown_sections(one: ComparedImage, other: ComparedImage) -> list[str]:
    """Return the sections that cannot be compared, because one side does not state them."""
    sides = (one.side, other.side)
    known: Mapping[str, bool] = {
        "base": all(side.lock for side in sides),
        "components": all(side.lock or versions(side) for side in sides),
        "debian": all(side.lock or side.file for side in sides),
        "python": all(side.lock or side.file for side in sides),
        "sources": all(side.lock for side in sides),
        "env": all(side.metadata for side in sides),
        "start": all(side.metadata and side.metadata.has_start_script for side in sides),
        "labels": all(side.metadata for side in sides),
        "resolution": all(side.metadata and side.metadata.origin for side in sides),
        "spec": one.spec is not None and other.spec is not None,
        "layers": one.layers is not None and other.layers is not None,
    }
    return [name for name, whole in known.items() if not whole]


def labels(image: ComparedImage) -> dict[str, str]:
    """Return the labels of an image."""
    return image.metadata.labels if image.metadata else {}


def resolution(image: ComparedImage) -> dict[str, str]:
    """Return the parts of a resolution that no other section has."""
    found = image.metadata.origin if image.metadata else {}
    lists = {key: found.get(key) for key in ("order", "waivers", "remarks")}
    texts = {key: "; ".join(map(flat, value)) for key, value in lists.items() if isinstance(value, list) and value}
    return {**({"target": str(found["target"])} if found.get("target") else {}), **texts}


def flat(value: object) -> str:
    """Return an item of a list of the resolution as text."""
    return f"{value.get('fact', '')}: {value.get('reason', '')}" if isinstance(value, dict) else str(value)


def compare_content(one: ComparedImage, other: ComparedImage, reporter: Reporter) -> dict[str, Any]:
    """Return the differences of what is compared as a whole, of two images that are alike in all else."""
    published = any(side.published and side.published.squashfs for side in (one, other))  # else no file is compared
    before, after = (dict(whole_parts(side, reporter, hashed=published)) for side in (one, other))
    both = before.keys() & after.keys()
    return diff_names(*({name: found[name] for name in sorted(both)} for found in (before, after)))


def unsure_parts(one: ComparedImage, other: ComparedImage) -> list[str]:
    """Return the parts without which two images are not known to be equal: a lock states no content, and what a
    squashfs file or a configuration states of layers is its own word: only equal blobs show that they are the same."""
    finished = all(side.published or side.side.file for side in (one, other))
    files = [bool(side.side.file or (side.published and side.published.squashfs)) for side in (one, other)]
    found = ["content"] if not finished or files[0] != files[1] else []
    if one.layers is not None and other.layers is not None:
        blobs = [Counter((layer.diff_id, layer.digest) for layer in side) for side in (one.layers, other.layers)]
        found += ["layers"] if blobs[0] != blobs[1] else []
    return found


def whole_parts(image: ComparedImage, reporter: Reporter, *, hashed: bool) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of the layers in their order, of the configuration, and of the squashfs file. `hashed`: the
    digest of a file here is computed."""
    if image.layers is not None:
        order = ",".join(layer.diff_id for layer in image.layers)
        yield "layers in order", f"sha256:{hashlib.sha256(order.encode()).hexdigest()}"
    if image.published:
        yield "configuration", image.published.config.identity
        if image.published.squashfs:
            yield SQUASHFS, f"sha256:{image.published.squashfs.document.sha256}"
    elif image.side.file and hashed:
        yield SQUASHFS, f"sha256:{reported_digest(image.side.file, reporter)}"


def compare_layers(old: Sequence[PublishedLayer], new: Sequence[PublishedLayer]) -> dict[str, Any]:
    """Return the layers that only one image has, and the number of those that both have."""
    before, after = (Counter(layer.diff_id for layer in side) for side in (old, new))
    gone, come = before - after, after - before
    return {
        "added": list_layers(new, come),
        "removed": list_layers(old, gone),
        "same": sum((before & after).values()),
    }


def list_layers(layers: Sequence[PublishedLayer], wanted: Counter[str]) -> list[dict[str, Any]]:
    """Return those of `layers` that are in `wanted`, as often as it counts them."""
    left, rows = wanted.copy(), []
    for layer in layers:
        if left[layer.diff_id] > 0:
            left[layer.diff_id] -= 1
            rows.append({"unit": layer.unit, "diff_id": layer.diff_id, "size": layer.size})
    return rows


def diff_lines(before: str, after: str) -> list[str]:
    """Return the changed lines of two specs, each with its sign; of long specs all from the first to the last one."""
    old, new = before.splitlines(), after.splitlines()
    first = shared_start(old, new)
    last = shared_start(old[first:][::-1], new[first:][::-1])
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(old), len(new)) > MAX_LINES:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    lines = difflib.unified_diff(old, new, lineterm="", n=0)
    return [line for number, line in enumerate(lines) if number > 1 and not line.startswith("@@")]


def shared_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines two texts begin with in common."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(old), len(new)))


def new_bytes(one: PublishedImage | None, other: PublishedImage | None) -> int | None:
    """Return the bytes of the second squashfs file that the first does not have; None where one was published
    without."""
    if not (one and one.squashfs and other and other.squashfs):
        return None
    known = blob_sizes(one)
    return sum(size for digest, size in blob_sizes(other).items() if digest not in known)


def blob_sizes(image: PublishedImage) -> dict[str, int]:
    """Return digest → bytes of the blobs that a squashfs file is made of."""
    if not image.squashfs:
        return {}
    document, sizes = image.squashfs.document, image.squashfs.sizes
    found = {document.tables.digest, *(part.digest for pack in document.packs for part in pack.blobs)}
    return {digest: sizes[digest] for digest in found}


def describe(image: ComparedImage) -> dict[str, Any]:
    """Return the description of a side."""
    found = image.published
    squashfs = found.squashfs.document if found and found.squashfs else None
    return {
        **describe_side(image.side),
        "reference": found.reference if found else "",
        "digest": found.digest if found else "",
        "layers": len(image.layers) if image.layers is not None else None,
        "bytes": sum(layer.size for layer in found.layers) if found else None,
        "squashfs_size": squashfs.size if squashfs else None,
        "squashfs_sha256": squashfs.sha256 if squashfs else "",
        "lock_error": image.metadata.lock_error if image.metadata else "",
    }

"""A built image and the record of its build: what the project and the store contain of it."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.core.digest import reported_digest
from envbuild.core.errors import EngineError, EnvbuildError, LockError
from envbuild.core.regular_file import mode_at
from envbuild.core.store.access import check_readable
from envbuild.core.store.records import forget_damaged, read_record, record_path, recorded_stamp, write_record
from envbuild.net.unit_caches import names_without

if TYPE_CHECKING:  # reading a file needs none of them
    from envbuild.build.plan.units import Plan
    from envbuild.core.console import Reporter
    from envbuild.core.store.store import LayerRecord
    from envbuild.export.project_image import SquashfsFile
    from envbuild.lock.model import Lock
    from envbuild.spec.resolve import Resolution
    from envbuild.spec.workspace import Workspace
    from envbuild.squashfs.write.output_file import Stamp


@dataclass(frozen=True, slots=True)
class RecordKey:
    """Key of a build: all that an image is made from, as it was read at the begin. A build takes hours, in which a file
    may change.

    path: of the record in the store, whose name is a digest of all of it. lock: the bytes of the lock file."""

    path: Path
    lock: bytes


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A built image: everything about it that is in the project and the store."""

    resolution: Resolution
    lock: Lock
    plan: Plan
    record: ImageRecord
    layers: tuple[LayerRecord, ...]
    key: RecordKey


def load_built_image(name: str, workspace: Workspace, *, mounted: bool = False) -> BuiltImage:
    """Return the image `name` as it was built; `mounted`: with any copy of its project folders.

    Raises LockError or EnvbuildError with the command that builds it, SignatureError for a key of a cache that cannot
    be read.
    """
    from envbuild.build.plan.planner import make_plan
    from envbuild.lock.model import lock_digest
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock

    resolution = resolve_image(name, workspace)
    if mounted:
        resolution = resolution.mounted()
    lock = current_lock(resolution, workspace)
    key, made = read_any_record(resolution, workspace)
    if key and made and made.lock != lock_digest(lock):  # the file changed before a record could have its name
        forget_damaged(key.path)
        made = None
    if key is None or made is None:
        raise EnvbuildError(
            f"{resolution.spec.name} is not built, or something changed since", hint=f"envbuild make {name}"
        )
    if unlisted := names_without(made.all_caches, workspace.site.caches):
        raise EnvbuildError(
            f"{resolution.spec.name} has units of caches that the site does not list: {', '.join(unlisted)}",
            hint=f"envbuild make {name}",
        )
    try:
        layers = tuple(workspace.store.layer(layer) for layer in made.layers)
    except EngineError as error:  # a damaged one was moved aside: the next make builds it
        forget_damaged(key.path)
        raise EngineError(error.message, hint=f"envbuild make {name}") from None
    return BuiltImage(resolution, lock, make_plan(resolution, lock), made, layers, key)


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """The record of a build.

    `artifact` is the squashfs file. `evidence` is the file with the results of verify ("": this user did not run it).
    `messages` are the repairs made for enroot. `cached`: units that this run took from a cache; `caches`: those of
    which a unit was taken, by this run or an earlier one; `base_caches`: those of the images of the project below.
    """

    image: str
    artifact: str
    sha256: str
    lock: str
    engine: str
    messages: tuple[str, ...]
    evidence: str
    layers: tuple[str, ...]
    built: tuple[str, ...]
    reused: tuple[str, ...]
    seconds: float
    up_to_date: bool = False
    cached: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    base_caches: tuple[str, ...] = ()
    forecast: Mapping[str, Any] = field(default_factory=dict)  # of this run alone: the record does not have it

    @property
    def all_caches(self) -> tuple[str, ...]:
        """Return the caches of the image and of those below it. Raises TypeError if one is not a text."""
        return tuple(sorted({*self.caches, *self.base_caches}))


def read_key(resolution: Resolution, workspace: Workspace) -> RecordKey | None:
    """Return what an image is made from now; None without a lock."""
    try:
        lock = workspace.project.lock_path(resolution.spec.path).read_bytes()
    except FileNotFoundError:
        return None
    from envbuild.build.plan.units import MODEL
    from envbuild.lock.lock_record import decisive_parts

    contents = (content.sha256 for content in resolution.contents)
    path = record_path(workspace.store, [lock, str(MODEL), *decisive_parts(resolution, workspace), *contents])
    return RecordKey(path, lock)


def key_of_lock(resolution: Resolution, lock: Lock, workspace: Workspace) -> RecordKey:
    """Return what an image is made from, with `lock`. Raises LockError if the file has another one meanwhile."""
    from envbuild.lock.lockfile import parse_lock
    from envbuild.lock.model import lock_digest

    path = workspace.project.lock_path(resolution.spec.path)
    key = read_key(resolution, workspace)
    if key is None or lock_digest(parse_lock(key.lock.decode(errors="replace"), path)) != lock_digest(lock):
        raise LockError(f"{path} was changed while it was read", hint="run the command again")
    return key


def read_image_record(
    resolution: Resolution,
    workspace: Workspace,
    *,
    engine: str = "",
    verified: bool = False,
    key: RecordKey | None = None,
) -> ImageRecord | None:
    """Return the record of an earlier run, if its artifact is unchanged and the site lists the caches of its units.

    `engine`: only an image of this engine. `verified`: only an image that was verified, by any member of the group that
    shares the store. `key`: of an image that is being made; None: what it is made from now. None if there is none.
    Raises EngineError for a store that this user may not read, SignatureError for a key of a cache that cannot be read.
    """
    _, made = read_any_record(resolution, workspace, key)
    if made is None or (verified and not made.evidence) or engine not in ("", "auto", made.engine):
        return None
    if names_without(made.all_caches, workspace.site.caches):
        return None
    evidence = made.evidence if stat.S_ISREG(mode_at(Path(made.evidence))) else ""
    return replace(made, evidence=evidence)


def read_any_record(
    resolution: Resolution, workspace: Workspace, key: RecordKey | None = None
) -> tuple[RecordKey | None, ImageRecord | None]:
    """Return the record of an earlier run and its key (None: read now), if its artifact is unchanged, also with units
    of caches that the site does not list. Raises EngineError for a store that this user may not read."""
    check_readable(workspace.store.root)
    key = key or read_key(resolution, workspace)
    value = read_record(key.path) if key else None
    if value is None:
        return key, None
    fields: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    try:
        made = ImageRecord(**fields)
        texts = (made.image, made.artifact, made.sha256, made.lock, made.engine, made.evidence)
        whole = all(
            isinstance(text, str)
            for part in (texts, made.messages, made.layers, made.built, made.reused, made.cached, made.all_caches)
            for text in part
        )
    except TypeError:  # a record of something else
        return key, None
    return key, replace(made, up_to_date=True, seconds=0.0, forecast={}) if whole else None


def find_unchanged_file(made: ImageRecord, layers: Sequence[LayerRecord], reporter: Reporter) -> SquashfsFile | None:
    """Return the file of an earlier run, perhaps one without verify, if it is of these layers and all of its bytes are
    unchanged: reading it takes less than merging the layers again."""
    from envbuild.export.project_image import SquashfsFile

    path = Path(made.artifact)
    if made.layers != tuple(layer.diff_id for layer in layers):
        return None
    try:
        before, found = path.stat(), reported_digest(path, reporter, follow=False)
    except OSError:  # removed meanwhile
        return None
    stamp = (before.st_size, before.st_mtime_ns)
    return SquashfsFile(path, found, before.st_size, made.messages, stamp) if found == made.sha256 else None


def write_image_record(made: ImageRecord, plan: Plan, key: RecordKey, stamp: Stamp | None = None) -> None:
    """Write the record of an image, with the unit keys and input digests that it preserves in the store.

    stamp: of the file that was written; without it that of the file which has the name."""
    _write(asdict(replace(made, forecast={})), plan, key.path, stamp)


def record_evidence(image: BuiltImage, evidence: Path | None) -> None:
    """Record that an image which was made without verification has been verified: `make` does not repeat it. None: it
    failed now, also one that had passed, and `make` verifies it again."""
    value, stamp = read_record(image.key.path), recorded_stamp(image.key.path)
    if value and stamp and bool(value.get("evidence")) != bool(evidence):
        _write({**value, "evidence": str(evidence or "")}, image.plan, image.key.path, stamp)


def _write(value: dict[str, Any], plan: Plan, path: Path, stamp: Stamp | None) -> None:
    blobs = {blob.sha256 for unit in plan.units for item in unit.inputs for blob in item.blobs}
    write_record(path, value, units=plan.keys().values(), blobs=blobs, stamped=stamp)

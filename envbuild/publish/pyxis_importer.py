"""Importer of pyxis: ``srun --container-image=REGISTRY/REPOSITORY:TAG`` from the packs that a node has.

pyxis (0.21 and later, ``importer=`` in plugstack.conf) runs ``IMPORTER get URI`` once for each node and step, as the
job's user, and takes the first line of stdout as the path of a squashfs file; ``IMPORTER release`` at the end, perhaps
twice. Source: NVIDIA/pyxis 0.24, importer.c and pyxis_slurmstepd.c.

A tag is resolved by one request. An image that this store wrote before needs no other; the packs of one that changed
are fetched as by ``envbuild pull``, once for all steps of the node that start at the same time.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from envbuild.core.errors import EngineError, SignatureError, SpecError
from envbuild.core.ownership import find_renamers, own_users, private_groups
from envbuild.core.result import Result
from envbuild.core.store.leases import JobStep, lease_file
from envbuild.core.store.records import read_record, record_path, write_record
from envbuild.net.registry.client import Repository, UnansweredError
from envbuild.net.registry.reference import Reference
from envbuild.net.transport import Transport
from envbuild.oci.sources.registry import parse_source_reference, printable_reference
from envbuild.publish.pull import pull_image
from envbuild.spec.workspace import Workspace

REGISTRY = "docker://"  # pyxis puts it in front of a reference without one


def import_image(uri: str, workspace: Workspace, step: JobStep | None = None, *, offline: bool = False) -> Path:
    """Return the squashfs file of the image `uri` (as pyxis passes it), which remains until the end of `step`.

    offline: where no registry answers, take the file that this store last had for the same reference.

    Raises SpecError, InputError, SignatureError, VerifyError, ConflictError, PublishError, EngineError.
    """
    if not uri.startswith(REGISTRY):
        raise SpecError(
            f"'{uri[:200]}' is not an image of a registry", hint="--container-image=REGISTRY/REPOSITORY:TAG"
        )
    if workspace.store.is_shared:  # another member could replace the file that a job reads
        raise SpecError(
            f"the store {workspace.store.root} is a group's, and files of an importer belong to one user",
            hint="write a store for each user into the site:  store: /local/envbuild/$SLURM_JOB_UID/store",
        )
    refuse_exchangeable(workspace.store.root)
    reference = parse_uri(uri)
    try:
        found = Repository(reference, workspace.site, Transport(workspace.site.network())).digest()
    except UnansweredError as error:
        last = read_import(_last_record(reference, workspace)) if offline else None
        if last is None:
            raise
        workspace.reporter.warn(f"{error.message}\nstarting {last['digest']}, which was imported here before")
        return _lease(check_signers(last, workspace), workspace, step)
    pinned = replace(reference, digest=found.removeprefix("sha256:"))
    with workspace.store.lock(f"import-{hashlib.sha256(str(pinned).encode()).hexdigest()[:16]}"):
        made = read_import(_record(pinned, workspace))
        if made is None or not is_signed(made, workspace):
            made = _record_image(pinned, pull_image(_text(pinned), None, workspace), workspace)
    write_record(_last_record(reference, workspace), {**made, "reference": _text(reference)})
    return _lease(made, workspace, step)


def refuse_exchangeable(root: Path) -> None:
    """Raise EngineError for a store above which another user may rename: the path that this command prints would then
    be that user's file."""
    found = next(find_renamers(str(root), own_users(), private_groups), None)
    if found:
        raise EngineError(
            f"the store {root} is not one for an importer: {found.path} {found.reason}",
            hint="choose a folder below one in which root alone writes:  store: /local/envbuild/$SLURM_JOB_UID/store",
        )


def parse_uri(uri: str) -> Reference:
    """Return the reference in ``docker://[USER@][REGISTRY#]PATH[:TAG]``, or with ``REGISTRY/PATH``. Raises SpecError.

    USER is ignored: the login is the one for the registry."""
    rest = uri.removeprefix(REGISTRY)
    name, at, digest = rest.partition("@sha256:")
    user, _, name = name.rpartition("@")
    if {"/", "#", ":"} & set(user):  # a digest without its algorithm: what follows it would be another image
        raise SpecError(
            f"'@{name[:200]}' is not the digest of an image",
            hint="--container-image=REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@sha256:DIGEST",
        )
    return parse_source_reference(f"{name}{at}{digest}")


def read_import(record: Path) -> dict[str, Any] | None:
    """Return what was imported into this store, if the file is unchanged."""
    made = read_record(record)
    return made if made and isinstance(made.get("digest"), str) else None


def _record_image(reference: Reference, result: Result, workspace: Workspace) -> dict[str, Any]:
    made = {
        "artifact": str(result.data["path"]),
        "sha256": str(result.data["sha256"]),
        "reference": _text(reference),
        "digest": reference.wanted,
        "layers": [],
        "signing_keys": list(result.data.get("signing_keys", ())),
    }
    write_record(_record(reference, workspace), made)
    return made


def is_signed(made: dict[str, Any], workspace: Workspace) -> bool:
    """Return whether an image that was imported before was signed by a key that the site lists now, or need not be.

    Raises SignatureError for a key of the site that cannot be used."""
    policy = workspace.site.signatures
    if policy is None or not policy.require:
        return True
    keys = made.get("signing_keys")
    return isinstance(keys, list) and any(key.hint in keys for key in policy.trusted())


def check_signers(made: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Return an image that was imported before. Raises SignatureError as `is_signed`, and if it is not."""
    if not is_signed(made, workspace):
        raise SignatureError(
            f"{made['reference']} was imported without a signature by a key of the site, and no registry answers",
            hint="start the job again when the registry answers",
        )
    return made


def _record(reference: Reference, workspace: Workspace) -> Path:
    """Return the path of the record of what was imported: a later envbuild may convert layers otherwise."""
    return record_path(workspace.store, ["import", reference.name, reference.wanted])


def _last_record(reference: Reference, workspace: Workspace) -> Path:
    """Return the path of the record of what a reference was last, for when no registry answers."""
    return record_path(workspace.store, ["last import", reference.name, reference.wanted], made_by_code=False)


def _lease(made: dict[str, Any], workspace: Workspace, step: JobStep | None) -> Path:
    file = Path(made["artifact"]).absolute()
    return lease_file(workspace.store, file, step) if step else file


def _text(reference: Reference) -> str:
    return f"{REGISTRY}{printable_reference(reference)}"

"""``envbuild pull``: a published squashfs file, byte for byte, from packs that the store has and those that it lacks.

Every blob is checked against its digest when it is fetched, and the finished file against the sha256 that was
published. Packs remain in the store as blobs under their digest, never as packs of a layer: that is only their claim.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import SignatureError
from envbuild.core.result import Result
from envbuild.core.store.records import is_unchanged, read_record, record_path, write_record
from envbuild.core.store.store_folders import find_store_intruder
from envbuild.core.text import amount, counted
from envbuild.export.artifact_link import free_name, link_reference
from envbuild.export.output_path import Output
from envbuild.export.project_image import SquashfsFile, describe_squashfs
from envbuild.net.download import Transfer
from envbuild.net.registry.upload import FIRST_PAUSE, TRIES
from envbuild.oci import manifest as m
from envbuild.oci.sources.platform import Platform, wrong_platform_error
from envbuild.publish.binding import read_binding
from envbuild.publish.find_squashfs import PublishedSquashfs, check_listed, find_squashfs
from envbuild.publish.pull_packs import Pull
from envbuild.publish.remote_image import ImageDocument, RemoteImage, open_remote, report_reading
from envbuild.publish.signature_check import SignatureReport, check_policy, refuse_unsigned
from envbuild.spec.workspace import Workspace

NO_FILE = "it has no squashfs file"


@dataclass(frozen=True, slots=True)
class Compared:
    """A published image that was read once: its manifest, its signatures by the policy of the site, and its squashfs
    file (None: its layers are converted)."""

    image: RemoteImage
    document: ImageDocument
    signed: SignatureReport
    found: PublishedSquashfs | None


def pull_image(text: str, output: Output | None, workspace: Workspace, platform: str = "") -> Result:
    """Write the published squashfs file of an image to `output`, or into the store's artifacts.

    An image that was published without one is converted (`envbuild.export.foreign_image`).

    Where the site requires signatures (`envbuild.publish.signature_check`), nothing but small documents is read of an
    image without one.

    Raises SpecError, InputError, SignatureError, VerifyError, ConflictError, PublishError if the file cannot be
    written.
    """
    began = time.monotonic()
    image = open_remote(text, workspace.site)
    if output:
        output.prepare(image.source if image else text)
    if image is None:
        refuse_unsigned(text, workspace.site)
        return convert(text, NO_FILE, output, workspace, platform)
    with report_reading(image, workspace.reporter):
        compared = compare_image(image, workspace, platform)
    if compared.found is None and not compared.signed.keys:
        return convert(image.source, why_converted(compared), output, workspace, platform)
    return pull_compared(compared, output, workspace, platform, began)


def compare_image(image: RemoteImage, workspace: Workspace, platform: str, *, attestations: bool = False) -> Compared:
    """Read an image and compare its signatures with the policy of the site. `attestations`: as `check_policy` takes it.
    Raises as `pull_image`."""
    wanted = Platform.of(platform)
    document = image.find(wanted)
    signed = check_policy(image, document, workspace, attestations=attestations)
    transfer = transfer_of(image, workspace)
    found = find_squashfs(image, document, bound=bool(signed.keys), transfer=transfer)
    if signed.keys:
        check_listed(found, document, image.name)
    if found and wanted.asked:  # no index leads to it, or one that states another architecture
        if found.document.architecture != wanted.arch:
            raise wrong_platform_error(image.name, wanted, [f"{m.SYSTEM}/{found.document.architecture}"])
        from envbuild.publish.published_image import read_configuration  # with the readers of locks

        read_configuration(image, document, found, wanted)  # which the manifest names; nothing binds that document
    return Compared(image, document, signed, found)


def transfer_of(image: RemoteImage, workspace: Workspace) -> Transfer:
    """Return what fetches blobs of an image into the store."""
    return Transfer(image.transport, workspace.store, pause=FIRST_PAUSE, attempts=TRIES)


def pull_compared(
    compared: Compared,
    output: Output | None,
    workspace: Workspace,
    platform: str,
    began: float,
    *,
    link: bool = True,
) -> Result:
    """Write the squashfs file of an image that was compared, and of no other: from here on all is named by digest.
    `link`: give a file of the store its name. Raises as `pull_image`."""
    image = compared.image
    if compared.found is None:
        return convert_compared(compared, output, workspace, platform, link=link)
    pull = Pull(image, compared.found, transfer_of(image, workspace), workspace)
    result = write_published(pull, output, began, link=link)
    return add_signatures(result, compared.signed)


def why_converted(compared: Compared) -> str:
    """Return why there is no squashfs file to write, of an image that has none, or whose list of artifacts has none: a
    program may have copied the image alone."""
    if file := read_binding(compared.document.value).file:
        return f"its squashfs file (sha256:{file}) is not listed there"
    if compared.signed.keys:
        return "what is signed names no squashfs file"
    return "the digest of this image names no squashfs file" if compared.image.pinned else NO_FILE


def convert(
    source: str,
    why: str,
    output: Output | None,
    workspace: Workspace,
    platform: str,
    *,
    link: bool = True,
    manifest: str = "",
) -> Result:
    """Convert the layers of an image that was published without a squashfs file. `manifest` (``sha256:…``): that of the
    image, which its tag may no longer name."""
    from envbuild.export.export import export_foreign
    from envbuild.export.options import ExportOptions

    options = ExportOptions("squashfs", output=output, platform=platform, sha256=True, link=link, manifest=manifest)
    workspace.reporter.info(f"{source}: {why}; converting its layers")
    return export_foreign(source, options, workspace)


def convert_compared(
    compared: Compared, output: Output | None, workspace: Workspace, platform: str, *, link: bool
) -> Result:
    """Convert the layers of the manifest that was compared, and of no other. Raises SignatureError where another user
    can replace what a signed image is converted from."""
    image, digest = compared.image, compared.document.digest
    signed = bool(compared.signed.keys)
    if signed and (intruder := find_store_intruder(workspace.store.root)):  # and can replace what it is converted from
        raise SignatureError(
            f"{image.name} is signed, but its squashfs file is not, and {intruder.path} {intruder.reason}",
            hint="convert it in a store of your own: ENVBUILD_STORE=/a/folder/of/yours",
        )
    why = why_converted(compared)
    result = convert(image.pin(digest), why, output, workspace, platform, link=link, manifest=digest)
    return add_signatures(result, compared.signed)


def add_signatures(result: Result, signed: SignatureReport) -> Result:
    """Return an answer with the keys that signed the image: files of the site, and their names in signatures."""
    keys = {"signed_by": list(signed.keys), "signing_keys": list(signed.hints)}
    text = f"{result.text}\n  signed by {', '.join(signed.keys)}" if signed.keys else result.text
    return Result({**result.data, **keys}, text)


def write_published(pull: Pull, output: Output | None, began: float, *, link: bool = True) -> Result:
    """Write the file, unless an earlier run left it in the store."""
    store, document = pull.store, pull.published.document
    name = free_name(pull.image.stem, pull.workspace)
    file = f"{name}-{document.sha256[:12]}.sqsh"
    record = None if output else record_path(store, ["pull", pull.published.artifact, name], made_by_code=False)
    path = output.file(file) if output else store.root / "artifacts" / file
    done = read_record(record) if record else None
    present = done is not None and done.get("sha256") == document.sha256 and Path(done["artifact"]) == path
    present = present and is_unchanged(path, document.sha256, pull.workspace.reporter)
    if not present:
        pull.run(path)
    if record and link:
        link_reference(path, name, pull.image.name, pull.workspace)
    if record and not present:
        made = {
            "artifact": str(path),
            "sha256": document.sha256,
            "reference": pull.image.name,
            "digest": pull.published.digest,
            "layers": [pack.key.partition(".")[0] for pack in document.packs if pack.key in pull.own],
        }
        write_record(record, made, blobs={pull.published.description, *pull.wanted()})
    return describe_pull(pull, SquashfsFile(path, document.sha256, document.size), time.monotonic() - began, present)


def describe_pull(pull: Pull, artifact: SquashfsFile, seconds: float, present: bool) -> Result:
    """Return the answer of a pull."""
    fetched, blobs = pull.fetched, pull.wanted()
    data = {
        "path": str(artifact.path.absolute()),
        "sha256": artifact.sha256,
        "size": artifact.size,
        "reference": pull.image.name,
        "digest": pull.published.digest,
        "squashfs": pull.published.artifact,
        "fetched": len(fetched),
        "fetched_bytes": sum(fetched.values()),
        "present": len(blobs) - len(fetched),
        "own_packs": len(pull.own),
        "seconds": round(seconds, 1),
        "up_to_date": present,
    }
    work = f"{counted(len(fetched), 'blob')} fetched, {amount(sum(fetched.values()))}; {data['present']} there already"
    if present:
        work = "up to date, nothing to do"
    return Result(data, f"{pull.image.name}: {work}\n{describe_squashfs(artifact)}")

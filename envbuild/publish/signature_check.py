"""Signatures of a published image: which of the site's keys made one, and why the others do not count.

A signature counts if a listed key made it, over the bytes as they were received, if it has the predicate of cosign's
signatures, and if it is about the digest of this image or of the index that led to it. Bundles are read first; then
the older form of cosign (`envbuild.publish.simple_signing`). A place can hide signatures, and cannot make one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.build.plan.provenance import PREDICATE
from envbuild.core.errors import SignatureError
from envbuild.core.shell import shell_word
from envbuild.core.signing.envelope import BUNDLE, Envelope, parse_bundle
from envbuild.core.signing.public_keys import TrustedKey
from envbuild.core.signing.statement import PAYLOAD, parse_statement
from envbuild.core.text import counted, printable
from envbuild.net.site import Site
from envbuild.publish.attached_documents import read_artifacts
from envbuild.publish.remote_image import ImageDocument, RemoteImage
from envbuild.publish.simple_signing import read_simple_signatures
from envbuild.spec.workspace import Workspace

SIGNED = "https://sigstore.dev/cosign/sign/v1"  # predicate: this digest is signed
CYCLONEDX = "https://cyclonedx.org/bom"
REBUILD = "urn:envbuild:rebuild:v1"  # the answer of a second build (docs/json.md, `verify --rebuild`)
# predicates of statements that are not signatures (sigstore/cosign, specs/ATTESTATION_SPEC.md)
ATTESTATIONS = (PREDICATE, CYCLONEDX, "https://spdx.dev/Document", REBUILD)
OTHER_KEY = "no key of the site made it"


@dataclass(slots=True)
class SignatureReport:
    """The signatures of an image: files of the `keys` that signed it, reasons of those that do not count (`refused`;
    those of keys that the site does not list: `foreign`), and `attested`: predicate type → predicate, of statements
    that a listed key signed. `rebuilds`: as `read_rebuilds` returns them, where they are listed."""

    keys: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    attested: dict[str, Any] = field(default_factory=dict)
    rebuilds: list[tuple[str, bool]] = field(default_factory=list)

    def add(self, key: TrustedKey) -> None:
        if key.hint not in self.hints:
            self.keys.append(key.name)
            self.hints.append(key.hint)


def check_policy(
    image: RemoteImage, found: ImageDocument, workspace: Workspace, *, attestations: bool = False
) -> SignatureReport:
    """Return the signatures of an image, by the keys of the site; an empty report where it lists none. `attestations`:
    statements that are not signatures are read, too.

    Raises SignatureError if the site requires one and no key of it made one; InputError if the place does not answer.
    """
    policy = workspace.site.signatures
    if policy is None or not (policy.require or policy.keys):
        return SignatureReport()
    report = read_signatures(image, found, policy.trusted(), () if attestations else ATTESTATIONS)
    reasons = [*report.refused, *report.foreign]
    if not report.keys and policy.require:
        why = "; ".join(dict.fromkeys(reasons)) or "it has no signature"
        name = image.name if found.digest in image.name else f"{image.name} ({found.digest})"
        raise SignatureError(
            f"{name} is not signed by a key of the site, so nothing of it is used: {why}",
            hint="its publisher signs it: envbuild publish NAME --sign FILE.key; or add the publisher's FILE.pub "
            f"to signatures: keys of {shell_word(policy.where.rsplit(':', 2)[0] or 'site.yaml')}",
        )
    if report.refused:  # and one good signature suffices, or none is required
        by = f"is signed by {', '.join(report.keys)}" if report.keys else "is not signed by a key of the site"
        workspace.reporter.warn(
            f"{image.name} {by}; {counted(len(report.refused), 'other signature' if report.keys else 'signature')} "
            f"of it does not count: {'; '.join(dict.fromkeys(report.refused))}"
        )
    return report


def list_signatures(image: RemoteImage, found: ImageDocument, workspace: Workspace) -> SignatureReport:
    """Return the signatures of an image that is only shown, with its signed provenance and SBOM: none is required, and
    a key of the site that cannot be used is reported. Raises InputError if the place does not answer."""
    keys = listed_keys(image, workspace)
    report = read_signatures(image, found, keys, [kind for kind in ATTESTATIONS if kind not in (PREDICATE, CYCLONEDX)])
    report.rebuilds += read_rebuilds(image, found.digest, keys)
    return report


def listed_keys(image: RemoteImage, workspace: Workspace) -> tuple[TrustedKey, ...]:
    """Return the keys of the site; none, with a warning, if one of them cannot be used."""
    policy = workspace.site.signatures
    try:
        return policy.trusted() if policy and policy.keys else ()
    except SignatureError as error:
        workspace.reporter.warn(f"the signatures of {image.name} are not compared: {error}")
        return ()


def read_rebuilds(image: RemoteImage, digest: str, keys: Sequence[TrustedKey]) -> list[tuple[str, bool]]:
    """Return each (file of the key, whether all parts are equal) of second builds of the image `digest` (``sha256:…``)
    whose answer a listed key signed (`envbuild.publish.rebuild`)."""
    found = dict[tuple[str, bool], None]()  # a registry may list one answer many times
    for content in read_artifacts(image, digest, BUNDLE, (SIGNED, *(kind for kind in ATTESTATIONS if kind != REBUILD))):
        attested: dict[str, Any] = {}
        try:
            envelope = parse_bundle(content)
        except ValueError:
            continue
        if (key := envelope.signed_by(keys)) and not judge_statement(envelope, digest, attested)[1]:
            answer = attested.get(REBUILD)
            subject = answer.get("subject") if isinstance(answer, dict) else None
            if isinstance(answer, dict) and isinstance(subject, dict) and subject.get("digest") == digest:
                found[key.name, answer.get("equal") is True] = None
    return list(found)


def refuse_unsigned(source: str, site: Site) -> None:
    """Raise SignatureError for an image of a kind that has no signatures (an archive, a Docker Engine), if the site
    requires them."""
    if site.signatures and site.signatures.require:
        raise SignatureError(
            f"{source[:200]!r} can have no signature, and the site requires one",
            hint="publish it with a signature: envbuild publish SOURCE --to oci:DIR --sign FILE.key",
        )


def read_signatures(
    image: RemoteImage, found: ImageDocument, keys: Sequence[TrustedKey], skipped: Collection[str]
) -> SignatureReport:
    """Return the signatures of an image; skipped: predicates of statements that are not read.

    Raises InputError if the place does not answer."""
    report = SignatureReport()
    for digest in (found.digest, *found.above):
        for content in read_artifacts(image, digest, BUNDLE, skipped):
            judge_bundle(content, digest, keys, report)
    for digest in () if report.keys else (found.digest, *found.above):
        for key, reason in read_simple_signatures(image, digest, keys):
            if key:
                report.add(key)
            elif reason:
                report.foreign.append(reason)  # it names no key, so that it may be of a third party
    return report


def judge_bundle(content: bytes, digest: str, keys: Sequence[TrustedKey], report: SignatureReport) -> None:
    """Add a bundle that is listed for the image `digest` (``sha256:…``) to a report."""
    try:
        envelope = parse_bundle(content)
    except ValueError as error:
        report.refused.append(f"a signature is malformed: {printable(str(error))[:200]}")
        return
    key = envelope.signed_by(keys)
    kind, reason = judge_statement(envelope, digest, report.attested if key else {})
    if key is None and kind in ATTESTATIONS:
        return
    if key is None:
        if envelope.hint in {one.hint for one in keys}:
            report.refused.append("a signature does not fit what it signs: one of both was changed")
        else:
            report.foreign.append(OTHER_KEY)
    elif reason:
        report.refused.append(reason)
    elif kind == SIGNED:
        report.add(key)


def judge_statement(envelope: Envelope, digest: str, attested: dict[str, Any]) -> tuple[str, str]:
    """Return the predicate type of the statement in an envelope, and why it does not count for the image `digest`
    (``sha256:…``; empty: it does). Attestations are added to `attested`."""
    if envelope.kind != PAYLOAD:
        return "", f"a signature is of the unknown type {printable(envelope.kind)[:80]!r}"
    try:
        statement = parse_statement(envelope.payload)
    except ValueError as error:
        return "", f"a signature is malformed: {printable(str(error))[:200]}"
    if digest.removeprefix("sha256:") not in statement.subjects:
        return statement.kind, "a signature belongs to another image"
    if statement.kind in ATTESTATIONS:
        attested.setdefault(statement.kind, statement.predicate)
    elif statement.kind != SIGNED:
        return statement.kind, f"a signature has the unknown predicate {printable(statement.kind)[:80]!r}"
    return statement.kind, ""

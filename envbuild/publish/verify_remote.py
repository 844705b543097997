"""``envbuild verify REF``: the signatures of a published image, its provenance, and the audit of its squashfs file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from envbuild.core.result import Result
from envbuild.publish.document_check import check_documents
from envbuild.publish.pull import compare_image, pull_compared
from envbuild.publish.remote_image import report_reading, require_remote
from envbuild.publish.signed_documents import describe_documents, read_attached, value_at
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import evidence_document, raise_failures, summary_lines
from envbuild.verify.stored_evidence import write_file_evidence
from envbuild.verify.verify_file import verify_file


def verify_remote(text: str, workspace: Workspace, platform: str = "") -> Result:
    """Verify the image that `text` names: its signatures by the policy of the site, then its provenance, then the audit
    of its squashfs file against the lock inside it, which must be the published one. Nothing of an unsigned image is
    fetched where the site requires a signature.

    Raises SignatureError, VerifyError, SpecError, InputError, ConflictError, PublishError.
    """
    image = require_remote(text, workspace.site)
    began = time.monotonic()
    with report_reading(image, workspace.reporter):
        compared = compare_image(image, workspace, platform, attestations=True)
        found, report = compared.document, compared.signed
        provenance, sbom = read_attached(image, found.digest, report)
    # Without a link: what is only verified is not what jobs start by its name.
    pulled = pull_compared(compared, None, workspace, platform, began, link=False)
    if compared.found:
        check_documents(image, compared.found, Path(pulled.data["path"]), provenance.value)
    evidence = verify_file(Path(pulled.data["path"]), workspace, pulled.data["sha256"])
    written = write_file_evidence(evidence, workspace.store)
    raise_failures(evidence)
    data: dict[str, Any] = {
        **evidence_document(evidence),
        "reference": image.name,
        "digest": found.digest,
        "signed_by": report.keys,
        "provenance": provenance.state,
        "sbom": sbom.state,
        "builder": value_at(provenance.value, "runDetails", "builder", "id") or "",
    }
    keys = ", ".join(report.keys) or "no key of this site"
    lines = [
        *summary_lines(evidence),
        f"  signed by: {keys}",
        f"  provenance: {provenance.state}",
        "  layers: not read: the audit is of the squashfs file",
        *describe_documents(provenance, sbom),
        f"  evidence: {written}",
    ]
    return Result(data, "\n".join(lines))

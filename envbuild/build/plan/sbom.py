"""The software bill of materials of an image: CycloneDX 1.6, of all that the lock names for the image itself.

Pure, and the same bytes for the same lock: the serial number comes from the components, and there is no time. They are
sorted by their package URL (package-url/purl-spec). Scanners read it so (trivy 0.59, syft 1.18): the component
`operating-system` decides the distribution, without it all of its packages are dropped; vulnerability data are keyed by
the *source* of a Debian package, which syft reads in the package URL (``upstream=``) and trivy in its own properties.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile
    from envbuild.spec.dev_project import DevContent

Component = dict[str, object]
TRIVY = "aquasecurity:trivy"
ORIGIN = "envbuild:origin"  # property: where the lock has the file from
SOURCE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
BINARY_REBUILD = re.compile(r"\+b\d+$")  # of a binary package that was built again from the same source
HOSTS = {"github": "https://github.com/", "gitlab": "https://gitlab.com/", "git": "https://"}


def sbom(lock: Lock, contents: Iterable[DevContent] = ()) -> dict[str, object]:
    """Return the document. Inputs that only builds use are left out. contents: of project folders."""
    components = [distribution_component(lock.distribution)] if lock.distribution else []
    for file in sorted({file for unit in lock.image_units() for file in unit.debian}):
        components.append(debian_component(lock.debian[file], lock.distribution))
    components += (python_component(lock.python_files[file]) for file in sorted(lock.image_python()))
    for _, source in sorted(lock.sources.items()):
        components += source_components(source)
    components += map(dev_component, contents)
    if lock.base_image:
        components.append(base_component(lock.base_image, lock.arch))
    # Of files with one package URL (a wheel and a source archive of one version) it has one: always the same.
    unique = {str(component["bom-ref"]): component for component in components}
    listed = [unique[reference] for reference in sorted(unique)]
    content = json.dumps([lock.image, lock.inputs, listed], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "metadata": {"component": {"type": "container", "name": lock.image, "bom-ref": lock.image}},
        "components": listed,
    }


def distribution_component(distribution: str) -> Component:
    """Return the operating system of ``debian:13``."""
    name, _, version = distribution.partition(":")
    found: Component = {"type": "operating-system", "name": name, "bom-ref": f"os:{distribution}"}
    return {**found, "version": version} if version else found


def debian_component(deb: DebianFile, distribution: str) -> Component:
    """Return a Debian package with its source package, which its path in the pool names."""
    system, _, release = distribution.partition(":")
    system = system or "debian"
    arch = deb.file.removesuffix(".deb").rpartition("_")[2]
    qualifiers = {"arch": arch, **({"distro": f"{system}-{release}"} if release else {})}
    *above, folder, _ = ["", "", *deb.path.split("/")]  # the last folder in a pool is the source package
    source = folder if "pool" in above and SOURCE.fullmatch(folder) else deb.name
    if source != deb.name:
        qualifiers["upstream"] = source
    epoch, colon, rest = BINARY_REBUILD.sub("", deb.version).rpartition(":")
    version, dash, revision = rest.rpartition("-")
    properties = {
        ORIGIN: deb.archive,
        f"{TRIVY}:PkgType": system,
        f"{TRIVY}:SrcName": source,
        f"{TRIVY}:SrcVersion": version if dash else rest,
        **({f"{TRIVY}:SrcRelease": revision} if dash else {}),
        **({f"{TRIVY}:SrcEpoch": epoch} if colon else {}),
    }
    purl = package_url(f"deb/{system}", deb.name, deb.version, qualifiers)
    return component(deb.name, deb.version, purl, deb.sha256, properties)


def python_component(file: PythonFile) -> Component:
    """Return a package of a Python index."""
    name = re.sub(r"_", "-", file.name).lower()
    properties = {ORIGIN: file.origin} if file.origin else {}
    return component(file.name, file.version, package_url("pypi", name, file.version), file.sha256, properties)


def dev_component(content: DevContent) -> Component:
    """Return a project folder, by the digest of its content."""
    name, version = content.project.name, content.project.metadata.version
    purl = package_url("generic", name, version, {"checksum": f"sha256:{content.sha256}"})
    return component(name, version, purl, content.sha256)


def source_components(source: SourceFile) -> Iterator[Component]:
    """Yield a source: the file, or the commit and those of its submodules."""
    if not source.git:
        purl = package_url("generic", source.file, "", {"checksum": f"sha256:{source.sha256}"})
        yield component(source.file, "", purl, source.sha256, {ORIGIN: source.origin})
        return
    for origin in (source.origin, *source.submodules.values()):
        repository, _, commit = origin.rpartition("@")
        kind, _, path = repository.partition(":")
        if kind in ("github", "gitlab") and path.count("/") == 1:
            owner, _, name = path.lower().partition("/")
            purl = package_url(f"{kind}/{quote(owner)}", name, commit)
        else:
            address = f"git+{HOSTS.get(kind, '')}{path}@{commit}"
            purl = package_url("generic", path.rpartition("/")[2], commit, {"vcs_url": address})
        yield component(path, commit, purl, source.sha256 if origin == source.origin else "", {ORIGIN: origin})


def base_component(base: BaseImage, arch: str) -> Component:
    """Return the base image."""
    repository, _, _ = base.reference.partition("@")
    before, slash, last = repository.rpartition("/")
    last, _, tag = last.partition(":")
    qualifiers = {"arch": arch, "repository_url": f"{before}{slash}{last}", **({"tag": tag} if tag else {})}
    digest = f"sha256:{base.digest}"
    purl = package_url("oci", last.lower(), digest, qualifiers)
    return {**component(base.reference, digest, purl, base.digest), "type": "container"}


def component(
    name: str, version: str, purl: str, sha256: str, properties: Mapping[str, str] | None = None
) -> Component:
    """Return a component; its package URL is its reference in the document."""
    value: Component = {"type": "library", "name": name, "purl": purl, "bom-ref": purl}
    if sha256:
        value["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if version:
        value["version"] = version
    if properties:
        value["properties"] = [{"name": key, "value": properties[key]} for key in sorted(properties)]
    return value


def package_url(kind: str, name: str, version: str, qualifiers: Mapping[str, str] | None = None) -> str:
    """Return the package URL of a package. `kind`: the type, with the namespace where it has one."""
    at = f"@{quote(version, safe=':~' if kind.startswith('deb/') else '')}" if version else ""
    pairs = "&".join(f"{key}={quote(value, safe='')}" for key, value in sorted((qualifiers or {}).items()))
    return f"pkg:{kind}/{quote(name, safe='')}{at}{'?' if pairs else ''}{pairs}"

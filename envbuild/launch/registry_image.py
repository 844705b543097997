"""An image of the project in the registry of the site: its reference, or what is missing for one."""

from __future__ import annotations

from envbuild.core.shell import shell_word
from envbuild.spec.workspace import Workspace


def registry_reference(name: str, target: str, epoch: int, workspace: Workspace) -> str:
    """Return the reference under which ``envbuild publish NAME`` puts an image into the site's registry; empty without
    one."""
    from envbuild.publish.destination import default_tag, parse_destination

    if not workspace.site.registry:
        return ""
    place = parse_destination(f"{workspace.site.registry.rstrip('/')}/{name}", default_tag(target, name, epoch))
    return str(place) if place.reference else ""


def not_published(name: str, reference: str, configuration: str, workspace: Workspace) -> tuple[str, str]:
    """Return the difference, and the command that changes it, of an image whose `configuration` (``sha256:…``) this
    store did not send to the registry, where it sent other images to the repository: its tag has the date of the newest
    input, so that an edit of the spec may not change it. Nothing is known of what other stores sent."""
    from envbuild.net.registry.client import RegistryAddress
    from envbuild.net.registry.reference import parse_reference
    from envbuild.publish.known_repositories import read_repositories
    from envbuild.publish.registry import open_repository

    known: dict[str, str] = {}
    for place in open_repository(parse_reference(reference), workspace.site).places:
        if isinstance(place, RegistryAddress):
            known |= read_repositories(workspace.store, place)
    sent = parse_reference(reference).repository in known.values()
    if not sent or configuration.removeprefix("sha256:") in known:
        return "", ""
    return f"{reference} is not yet the image that is built here", f"envbuild publish {shell_word(name)}"


def requires_signature(workspace: Workspace) -> bool:
    """Return whether the site starts only what one of its keys signed."""
    return bool(workspace.site.signatures and workspace.site.signatures.require)


def why_no_reference(name: str, workspace: Workspace, *, locked: bool) -> tuple[str, str]:
    """Return why an image of the project has no reference in a registry, with a hint; empty if it has one."""
    word = shell_word(name)
    if not workspace.site.registry:
        why = "the site names no registry"
        return (
            why,
            f"write registry: REGISTRY/TEAM into site.yaml, then: envbuild publish {word}; or name docker://…:TAG",
        )
    if not locked:
        why = "it has no current lock, and its tag follows from the lock"
        return why, f"envbuild lock {word}; envbuild make {word}; envbuild publish {word}"
    if requires_signature(workspace):  # `published_image` compares the signature, and names a digest
        why = "the site requires a signature, which a published image has"
        return why, f"name docker://REGISTRY/…:TAG, with the registry {workspace.site.registry}"
    return "", ""


def before_start(name: str, reference: str, *, locked: bool) -> str:
    """Return the warning about an image that is not built, with the commands after which what is printed starts it."""
    word = shell_word(name)
    commands = [*([] if locked else ["lock"]), "make", *(["publish"] if reference else [])]
    typed = "; ".join(f"envbuild {command} {word}" for command in commands)
    return f"{name} is not built, so its variables are those of its spec, and it is started after: {typed}"

"""An image of the project in the registry of the site: its reference, or what is missing for one."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.launch.model import LaunchImage
from envbuild.spec.workspace import Workspace


def registry_reference(name: str, target: str, epoch: int, workspace: Workspace) -> str:
    """Return the reference under which ``envbuild publish NAME`` puts an image into the site's registry; empty without
    one."""
    from envbuild.publish.destination import default_tag, parse_destination

    if not workspace.site.registry:
        return ""
    place = parse_destination(f"{workspace.site.registry.rstrip('/')}/{name}", default_tag(target, name, epoch))
    return str(place) if place.reference else ""


def last_published(reference: str, workspace: Workspace) -> frozenset[str]:
    """Return what this user last published under a tag, at each of its places: the configuration of an image
    (``sha256:…``), or ALONE. Nothing is known of what others published."""
    from envbuild.net.registry.client import RegistryAddress
    from envbuild.net.registry.reference import parse_reference
    from envbuild.publish.known_repositories import read_tag
    from envbuild.publish.registry import open_repository

    named = parse_reference(reference)
    places = (place for place in open_repository(named, workspace.site).places if isinstance(place, RegistryAddress))
    return frozenset(read_tag(workspace.store, place, named.tag) for place in places) - {""}


def is_alone(known: frozenset[str]) -> bool:
    """Return whether what this user last published (`known`) is the squashfs file of an image alone."""
    from envbuild.publish.known_repositories import ALONE

    return known == {ALONE}


def not_published(name: str, reference: str, configuration: str, known: frozenset[str]) -> tuple[str, str]:
    """Return the difference, and the command that changes it, of an image with a `configuration` (``sha256:…``), where
    this user last published another one (`known`) under its tag: that has the date of the newest input, so that an edit
    of the spec may not change it."""
    if not known or configuration in known or is_alone(known):
        return "", ""
    return (
        f"{reference} was last published as another image than the one that is built here",
        f"envbuild publish {shell_word(name)} --move",
    )


def without_tag(reference: str) -> str:
    """Return ``docker://HOST:PORT/NAME`` of a reference with a tag or a digest."""
    folder, slash, name = reference.partition("@")[0].rpartition("/")
    return folder + slash + name.partition(":")[0]


def only_importer(name: str) -> tuple[str, ...]:
    """Return the warning about an image that was published as its squashfs file alone."""
    return (f"{name} has no OCI image: pyxis starts it by the importer of envbuild alone",)


def sent_alone(name: str) -> tuple[str, ...]:
    """Return the warning about an image of which this user last published the squashfs file alone; another user may
    have published the image since."""
    return (f"you last published {name} with --squashfs-only, which pyxis starts by the importer of envbuild alone",)


def check_has_layers(image: LaunchImage) -> None:
    """Raise SpecError for an image that a container engine cannot pull: it was published as its squashfs file alone."""
    if image.packs_alone:
        raise SpecError(
            f"{image.docker or image.name} was published with --squashfs-only, and container engines read OCI images",
            hint="publish it without --squashfs-only; or envbuild pull, and start the file",
        )


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

"""The kinds of third-party images: one row for each form that a user may write.

A row names its opener: ``open_NAME(rest, request)`` for the text after the prefix and a
`envbuild.oci.sources.base.SourceRequest`, a context manager of a `SourceImage`. Its module is imported when an image is
opened: `--help` reads this table.
"""

from __future__ import annotations

from typing import NamedTuple


class SourceKind(NamedTuple):
    """A kind of source.

    `prefixes`: the preferred one first.
    `opener`: ``module:function``.
    `form`: how hints name it. `usage`, `text`: its line of `--help`.
    `remote`: its layers are not on this machine.
    """

    prefixes: tuple[str, ...]
    opener: str
    form: str
    usage: str
    text: str
    remote: bool = False


SOURCES = {
    "registry": SourceKind(
        ("docker://",),
        "envbuild.oci.sources.registry:open_registry",
        "docker://NAME:TAG",
        "docker://[REGISTRY/]PATH[:TAG][@sha256:…]",
        "an image of a registry",
        remote=True,
    ),
    "layout": SourceKind(
        ("oci:",),
        "envbuild.oci.sources.open:open_path",
        "oci:DIR",
        "oci:DIR[:TAG]",
        "an OCI layout (skopeo, buildah, crane)",
    ),
    "archive": SourceKind(
        ("docker-archive:", "oci-archive:"),
        "envbuild.oci.sources.open:open_path",
        "docker-archive:FILE",
        "docker-archive:FILE[:TAG]",
        "what `docker save` or `podman save` wrote; .tar.gz too",
    ),
    "daemon": SourceKind(
        ("docker-daemon:", "dockerd://"),
        "envbuild.oci.sources.docker_daemon:open_daemon",
        "docker-daemon:NAME",
        "docker-daemon:NAME",
        "an image of the Docker Engine here (dockerd://NAME is the same)",
    ),
}
PREFIXES = {prefix: name for name, kind in SOURCES.items() for prefix in kind.prefixes}
FORMS = f"{', '.join(kind.form for kind in SOURCES.values())}, or the name of an image of the project"


def is_published(text: str) -> bool:
    """Return whether a text has the form of an image of a registry or a layout: those have lists of artifacts."""
    return text.startswith((*SOURCES["registry"].prefixes, *SOURCES["layout"].prefixes))


def describe_sources() -> str:
    """Return lines for --help: each form, and what it names."""
    rows = [(kind.usage, kind.text) for kind in SOURCES.values()]
    rows.append(("./FILE or ./DIR", "an archive or a layout, by its content"))
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"  {usage:<{width}}   {text}" for usage, text in rows)

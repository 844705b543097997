"""The output formats of `envbuild export --to`: one row for each.

A row names its writer: ``write_NAME_output(image, options, progress)`` → `Result`, for a `BuiltImage`, `ExportOptions`
and `Progress` (`envbuild.export.export.write_output`). Its module is imported when the format is written: `--help`
reads this table. The task that a writer reports to `progress` has the name of the format.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """An output format.

    `writer`: ``module:function``.
    `options`: those of `ExportOptions.given` that have a meaning with it.
    `compressions`: the values of --compression, the default first.
    `from_packs`: it is made of the store's packs. Then --compression, --level and --block are checked by
    `ExportOptions.pack_format`, and a third-party image can be written.
    `check_output`: ``module:function``, called with the path of -o and the name of the image, before that is made (it
    may take long); empty: the output is one file.
    `copy_to`: how skopeo writes a third-party image in this format; empty: it cannot.
    `note`: for --help. `ignored`: options that are accepted without an effect.
    """

    writer: str
    options: tuple[str, ...]
    compressions: tuple[str, ...] = ()
    from_packs: bool = False
    check_output: str = ""
    copy_to: str = ""
    note: str = ""
    ignored: tuple[str, ...] = ()


FORMATS = {
    "squashfs": Format(
        "envbuild.export.squashfs_output:write_squashfs_output",
        options=(
            *("-o", "--compression", "--level", "--block", "--jobs", "--keep-owners", "--keep-dev"),
            *("--platform", "--no-cache", "--keep-layers"),
        ),
        compressions=("zstd", "lz4", "gzip", "none"),
        from_packs=True,
    ),
    "oci": Format(
        "envbuild.export.oci_output:write_oci_output",
        options=("-o", "--compression"),
        compressions=("gzip", "zstd", "none"),
        check_output="envbuild.oci.layout:check_output",
        copy_to="oci:DIR",
        note="a layout folder",
        ignored=("--tag",),
    ),
    "docker": Format(
        "envbuild.export.docker_output:write_docker_output",
        options=("--tag",),
        compressions=("gzip", "zstd", "none"),
        copy_to="docker-daemon:NAME:TAG",
        ignored=("--compression",),
    ),
}


def describe_formats() -> str:
    """Return the formats on one line, for --help."""
    packed = [name for name, form in FORMATS.items() if form.from_packs]
    others = [f"{name} ({form.note})" if form.note else name for name, form in FORMATS.items() if not form.from_packs]
    return f"{', '.join(packed)}; of the project's images also {', '.join(others[:-1])} or {others[-1]}"


def describe_compressions() -> str:
    """Return the compressions of each format on one line, for --help."""
    texts = [
        f"Of {name}: {form.compressions[0]} (default){''.join(f', {other}' for other in form.compressions[1:])}."
        for name, form in FORMATS.items()
        if "--compression" in form.options
    ]
    return " ".join(texts)

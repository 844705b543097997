"""The options of an export, and the check that they are compatible."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass

from envbuild.core.errors import Finding, SpecError
from envbuild.export.formats import FORMATS
from envbuild.export.output_path import Output
from envbuild.squashfs.pack.format import PackFormat

BLOCKS = {"128K": 1 << 17, "256K": 1 << 18, "512K": 1 << 19, "1M": 1 << 20}
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export: one record from the command line to the writer. Empty or 0: the default.

    `to`: one of `envbuild.export.formats.FORMATS`.
    `output`: the file or folder to write (None: the store).
    `compression`, `level`, `block`: of squashfs blocks; `compression` also of the layers of an OCI layout.
    `jobs`: threads (0: all cores).
    `platform`: for an image of a registry.
    `keep_owners`: preserve owners, device nodes and extended attributes of the layers.
    `tag`: the name in a Docker Engine.
    `cache`: store packs in the store, and do not write layers directly into the file.
    `keep_dev`: preserve the content of /dev, except device nodes.
    `sha256`: compute the digest of the file, which reads it again.
    `keep_layers`: store the layers of a registry's image unchanged.
    `manifest` (``sha256:…``): that the image must have; nothing of another one is written.
    `link`: give a file of the store its name, ``NAME.sqsh``.
    """

    to: str = "squashfs"
    _: KW_ONLY
    output: Output | None = None
    compression: str = ""
    level: int | None = None
    block: str = ""
    jobs: int = 0
    platform: str = ""
    keep_owners: bool = False
    tag: str = ""
    cache: bool = True
    keep_dev: bool = False
    sha256: bool = False
    keep_layers: bool = False
    manifest: str = ""
    link: bool = True

    def check(self, name: str) -> None:
        """Raise SpecError with every option that is incompatible with the others."""
        if self.to not in FORMATS:
            raise SpecError(f"--to {self.to!r} is not an output", hint=f"the outputs are: {', '.join(FORMATS)}")
        form = FORMATS[self.to]
        findings = [
            Finding(f"{option} has no meaning with --to {self.to}", hint=hint_without(option, self.to))
            for option in self.given()
            if option not in (*form.options, *form.ignored)
        ]
        if self.compression not in ("", *form.compressions) and form.compressions and not form.from_packs:
            hint = f"it is {', '.join(form.compressions[:-1])} or {form.compressions[-1]}"
            findings.append(Finding(f"--compression {self.compression!r} is unknown", hint=hint))
        if self.tag and not REFERENCE.fullmatch(self.tag):
            hint = f"write it as {name}:latest, in lower case"
            findings.append(Finding(f"--tag {self.tag!r} is not an image reference", hint=hint))
        if findings:
            raise SpecError.of(findings)

    def check_own(self, name: str) -> None:
        """Raise SpecError for an option that does not apply to `name`, an image of the project."""
        foreign = {"--platform": self.platform, "--no-cache": not self.cache, "--keep-layers": self.keep_layers}
        for option, given in foreign.items():
            if given:
                because = "because an image of the project is made of layers in the store"
                raise SpecError(f"{option} has no meaning for {name}, {because}", hint="leave it out")
        if FORMATS[self.to].from_packs:
            _ = self.pack_format

    def given(self) -> list[str]:
        """Return the options that are not the default, of those that only some formats have."""
        values = {
            "--compression": self.compression,
            "--level": self.level,
            "--block": self.block,
            "--jobs": self.jobs,
            "--platform": self.platform,
            "--keep-owners": self.keep_owners,
            "--keep-dev": self.keep_dev,
            "--no-cache": not self.cache,
            "--keep-layers": self.keep_layers,
            "-o": self.output is not None,
            "--tag": self.tag,
        }
        return [option for option, value in values.items() if value]

    @property
    def pack_format(self) -> PackFormat:
        """The compression of squashfs blocks. Raises SpecError for an unknown or impossible one."""
        from envbuild.squashfs.codec import DEFAULTS, LEVELS

        codec = self.compression or PackFormat().codec
        if codec not in LEVELS:
            raise SpecError(f"--compression {codec!r} is unknown", hint=f"it is {', '.join(LEVELS)}")
        level = DEFAULTS[codec] if self.level is None else self.level
        levels = LEVELS[codec]
        if level not in levels:
            hint = f"use a level from {levels[0]} to {levels[-1]}" if len(levels) > 1 else "leave --level out"
            raise SpecError(f"{codec} has no level {level}", hint=hint)
        if self.block and self.block.upper() not in BLOCKS:
            raise SpecError(f"--block {self.block!r} is not a block size", hint=f"it is {', '.join(BLOCKS)}")
        return PackFormat(codec, level, BLOCKS[self.block.upper()] if self.block else PackFormat().block)

    @property
    def suffix(self) -> str:
        """The part of a file's name for the options that decide its bytes and differ from the defaults."""
        usual, form = PackFormat(), self.pack_format
        words = []
        if form != usual:
            words.append(form.codec if form.codec == "none" else f"{form.codec}{form.level}")
            if form.block != usual.block:
                words.append(f"{form.block >> 10}K")
        if self.keep_owners:
            words.append("owners")
        if self.keep_dev:
            words.append("dev")
        return "".join(f"-{word}" for word in words)


def hint_without(option: str, to: str) -> str:
    """Return the hint for an option that has no meaning with the format `to`."""
    if option == "-o" and "--tag" in FORMATS[to].options:
        return "leave it out, or use --tag NAME:TAG"
    return f"leave it out, or use --to {next(name for name, form in FORMATS.items() if option in form.options)}"

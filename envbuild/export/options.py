"""The options of an export, and the check that they are compatible."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass

from envbuild.core.errors import Finding, SpecError
from envbuild.export.output_path import Output
from envbuild.squashfs.pack.format import PackFormat

BLOCKS = {"128K": 1 << 17, "256K": 1 << 18, "512K": 1 << 19, "1M": 1 << 20}
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export: one record from the command line to the writer. Empty or 0: the default.

    `to`: squashfs, oci or docker.
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

    def check(self, name: str) -> None:
        """Raise SpecError with every option that is incompatible with the others."""
        findings = []
        if self.to not in ("squashfs", "oci", "docker"):
            raise SpecError(f"--to {self.to!r} is not an output", hint="the outputs are: squashfs, oci, docker")
        if self.to != "squashfs":
            given = {"--level": self.level, "--block": self.block, "--jobs": self.jobs, "--platform": self.platform}
            given |= {"--keep-owners": self.keep_owners, "--keep-dev": self.keep_dev, "--no-cache": not self.cache}
            given |= {"--keep-layers": self.keep_layers}
            findings += [
                Finding(f"{option} has no meaning with --to {self.to}", hint="leave it out, or use --to squashfs")
                for option, value in given.items()
                if value not in (None, "", 0, False)
            ]
            if self.to == "docker" and self.output is not None:
                hint = "leave it out, or use --tag NAME:TAG"
                findings.append(Finding("-o has no meaning with --to docker", hint=hint))
            if self.compression not in ("", "gzip", "zstd", "none"):
                findings.append(
                    Finding(f"--compression {self.compression!r} is unknown", hint="it is gzip, zstd or none")
                )
        elif self.tag:
            findings.append(Finding("--tag has no meaning with --to squashfs", hint="leave it out, or use --to docker"))
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
        if self.to == "squashfs":
            _ = self.pack_format

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

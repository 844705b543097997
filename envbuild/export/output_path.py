"""Where an export goes: what `-o` names, as `cp` and `rsync` understand it.

A folder that is there, and a name with a slash at its end, take a file of the image's own name, as it is called in the
store; anything else names the file. An OCI layout is a folder itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import PublishError, SpecError


@dataclass(frozen=True, slots=True)
class Output:
    """What `-o` names. `folder`: it was written as a folder, which need not be there."""

    path: Path
    folder: bool = False

    @classmethod
    def of(cls, text: str) -> Output:
        """Raises SpecError for what names nothing that an image can be written to."""
        if not text:
            raise SpecError("-o is empty", hint="name a file, e.g. -o image.sqsh, or leave it out")
        if text == "-":
            raise SpecError(
                "-o - would be stdout, which an image cannot be written to",
                hint="name a file, e.g. -o image.sqsh; then read that",
            )
        return cls(Path(text), text.endswith(("/", "/.")) or text == ".")

    @property
    def into(self) -> bool:
        """Whether a file goes into it, under the image's own name."""
        return self.folder or self.path.is_dir()

    def prepare(self, source: str) -> None:
        """See that a file of the image `source` can be put there, and make its folder: asked before an image takes
        minutes. Raises SpecError for what is no file and for the image itself, PublishError where no folder can be
        made."""
        if not self.into:
            check_file(self.path)
        if is_source(self.path / "image.sqsh" if self.into else self.path, source):
            raise SpecError(
                f"-o {self.path} is the image that is to be exported", hint="name another file: -o FILE.sqsh"
            )
        make_folder(self.path, self.path if self.into else self.path.parent)

    def file(self, name: str) -> Path:
        """The file to write, of an image whose file is called `name`. Raises SpecError for what is no file."""
        path = self.path / name if self.into else self.path
        check_file(path)
        return path


def check_file(output: Path) -> None:
    """Raises SpecError where a finished file would take the place of something else: a folder, a pipe, /dev/null, a
    terminal."""
    if output.is_dir():
        raise SpecError(f"-o {output} is a folder", hint="name a file: -o FILE.sqsh")
    if (output.exists() and not output.is_file()) or output.absolute().parent == Path("/dev"):
        raise SpecError(
            f"-o {output} is no file, and a squashfs file cannot be written into it",
            hint="name a file, e.g. -o image.sqsh; then read that",
        )


def is_source(output: Path, name: str) -> bool:
    """Whether `output` is the archive that is exported, or in the layout that is."""
    from envbuild.oci.sources.open import place_of, split_path

    place = place_of(name)
    if place is None or place.kind not in ("archive", "layout"):
        return False
    source, own = split_path(place.rest)[0].resolve(), output.resolve()
    return own == source or (source.is_dir() and source / "blobs" in own.parents) or own == source / "index.json"


def make_folder(output: Path, folder: Path) -> None:
    """See that the `folder` that `output` names is there. Raises PublishError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (
            "a file stands in its place" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        )
        raise PublishError(
            f"the folder of -o {output} cannot be made: {why}", "name a file in a folder that you can write to: -o FILE"
        ) from None

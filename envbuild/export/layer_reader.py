"""Reading of the layers of an image: each from the first of its places that is correct, with progress in bytes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import IO, cast

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError, EnvbuildError, InputError
from envbuild.oci.sources.base import RawStream, SourceLayer
from envbuild.squashfs.pack.writer import PackWriter

TASK = "layers"


@dataclass(slots=True)
class LayerReader:
    """The layers of one image that are read, several at a time.

    stop: set after one failed, so that the others end
    total: bytes of all of them; done: number of those that are complete
    """

    reporter: Reporter
    stop: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)
    bytes_read: int = 0
    done: int = 0
    total: int = 0

    def read_layer(self, layer: SourceLayer, sink: Callable[[], PackWriter]) -> tuple[str, int]:
        """Read a layer from the first source whose content is correct; each attempt writes to a new sink."""
        for left in reversed(range(layer.places)):
            before = self.bytes_read
            try:
                return self.read_once(layer, sink())
            except InputError:
                if not left or self.stop.is_set():
                    raise
                self.add_bytes(before - self.bytes_read)  # roughly: the others count, too
        raise AssertionError("a layer has a place")

    def read_once(self, layer: SourceLayer, writer: PackWriter) -> tuple[str, int]:
        """Read a layer into a pack; return its diff_id and the bytes read of the blob. A failure discards the pack."""
        from envbuild.oci.sources.read_layer import read_layer, read_unnamed_layer

        meter: list[_Counted] = []

        @contextlib.contextmanager
        def opened() -> Iterator[IO[bytes]]:
            with layer.open() as file:
                meter.append(_Counted(file, self))
                yield cast("IO[bytes]", meter[-1])

        counted = replace(layer, open=opened)
        try:
            if layer.diff_id:
                read_layer(counted, [writer])
            diff_id = layer.diff_id or read_unnamed_layer(counted, writer)
        except BaseException as error:
            writer.discard()
            if type(error) is EnvbuildError:  # of the pack: the layer holds what no squashfs file can
                hint = error.hint or "choose another image, or have this one made without it"
                raise InputError(f"{layer.name}: {error.message}", hint) from None
            raise
        return diff_id, sum(item.size for item in meter)

    def add_bytes(self, size: int) -> None:
        """Report that more bytes arrived."""
        with self.guard:
            self.bytes_read += size
            self.reporter.advance(TASK, self.bytes_read, self.total)

    def report_done(self, count: int) -> None:
        with self.guard:
            self.reporter.note(TASK, f"{self.done} of {count} layers done")
            self.done += 1


class _Counted(RawStream):
    """A blob whose bytes are counted, and that ends with an error after another layer failed."""

    def __init__(self, file: IO[bytes], layers: LayerReader) -> None:
        self.file, self.layers, self.size = file, layers, 0

    def read(self, size: int = -1) -> bytes:
        if self.layers.stop.is_set():
            raise EngineError("stopped")
        chunk = self.file.read(size)
        self.size += len(chunk)
        self.layers.add_bytes(len(chunk))
        return chunk

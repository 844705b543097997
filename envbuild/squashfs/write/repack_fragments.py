"""New fragment blocks, packed from the live tails of blocks that also hold dead ones.

Which tail goes where follows from lengths alone, so it is known before a byte is read; the blocks are then unpacked and
compressed in threads, a few at a time, and written in order. The result does not depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.append_file import write_all
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import RAW
from envbuild.squashfs.write.dedup import PackFiles, open_packs
from envbuild.squashfs.write.extents import DataPlan
from envbuild.squashfs.write.live_extents import Slot


def write_new_fragments(packs: Sequence[Pack], plan: DataPlan, codec: Codec, out: int, at: int, jobs: int) -> list[int]:
    """Write the new fragment blocks of `plan` into the descriptor `out` from position `at` on; returns their size
    words. Raises EnvbuildError for damaged packs.
    """
    words: list[int] = []
    if not plan.new:
        return words
    pending: deque[Future[tuple[bytes, int]]] = deque()

    def take() -> None:
        nonlocal at
        data, word = pending.popleft().result()
        write_all(out, [data], at)
        words.append(word)
        at += len(data)

    with open_packs(packs) as files, ThreadPoolExecutor(jobs, thread_name_prefix="repack") as pool:
        try:
            for tails in plan.new:
                pending.append(pool.submit(repack, files, tails, codec))
                while len(pending) > jobs + 2:
                    take()
            while pending:
                take()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return words


def repack(files: PackFiles, tails: Sequence[tuple[Slot, int]], codec: Codec) -> tuple[bytes, int]:
    """Return one new fragment block of `tails`: (bytes to store, size word)."""
    parts: list[bytes] = []
    last, content = (-1, -1), b""
    for (number, fragment, offset), length in tails:
        if (number, fragment) != last:
            last, content = (number, fragment), files.read_fragment(number, fragment)
        parts.append(content[offset : offset + length])
    data = b"".join(parts)
    result = codec.compress(data)
    return (result, len(result)) if len(result) < len(data) else (data, len(data) | RAW)

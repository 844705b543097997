"""Memory that was freed stays with the process while layers are packed.

Pieces of 1 MiB and blocks of 128 KiB are taken and freed thousands of times. glibc gives them back to the kernel when
it can, which gives every page anew, filled with zeros: 130,000 times for an image of 1.2 GB. With mallopt(3) they stay;
buffers that are larger than any piece are still given back at once, and `give_back` gives all (malloc_trim(3)).
"""

from __future__ import annotations

import ctypes
from functools import cache

# malloc.h of glibc
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
SETTINGS = {
    TRIM_THRESHOLD: 16 << 20,  # free bytes at the end of an arena that stay
    MMAP_THRESHOLD: 4 << 20,  # from here on a buffer has pages of its own, which go when it goes
    ARENA_MAX: 2,  # or every thread would keep what it used once; buffers are few and large: threads hardly wait
}


@cache
def keep_freed() -> None:
    """Let malloc keep what is freed, from now on and for the whole process. Does nothing where the C library is not
    glibc, or does not want it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        for parameter, value in SETTINGS.items():
            mallopt(ctypes.c_int(parameter), ctypes.c_int(value))


def give_back() -> None:
    """Give the kernel what malloc kept so far, once the layers are packed: merging them wants memory of its own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

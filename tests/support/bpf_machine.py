"""A machine for classic BPF programs on struct seccomp_data, with the kernel's rules for programs (seccomp(2))."""

from __future__ import annotations

import struct

MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS


def run_filter(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what a program answers to a system call. Raises ValueError for a program that the kernel would refuse."""
    code = list(struct.iter_unpack("=HBBI", program))
    if not 0 < len(code) <= MAX_INSTRUCTIONS:
        raise ValueError(f"{len(code)} instructions")
    values = [value & (1 << 64) - 1 for value in (*arguments, *[0] * 6)][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0x7F0000001000, *values)
    accumulator, place = 0, 0
    while place < len(code):
        operation, if_true, if_false, operand = code[place]
        place += 1
        if operation == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            if operand % 4 or operand + 4 > len(data):
                raise ValueError(f"load at {operand}")
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif operation == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            accumulator &= operand
        elif operation in (0x15, 0x35):  # BPF_JMP | BPF_JEQ | BPF_K, BPF_JMP | BPF_JGE | BPF_K
            holds = accumulator == operand if operation == 0x15 else accumulator >= operand
            place += if_true if holds else if_false
        elif operation == 0x06:  # BPF_RET | BPF_K
            return int(operand)
        else:
            raise ValueError(f"instruction {operation:#x}")
    raise ValueError("the program ends without an answer")

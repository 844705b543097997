"""Words in the languages of output forms: shell, #SBATCH lines, TOML, YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word

WHITE = " \t\v\f"  # isspace of C, without line ends


def shell_command(words: Sequence[str]) -> str:
    """Return a command as one line of a shell."""
    return " ".join(map(shell_word, words))


def shell_lines(words: Sequence[str], indent: str = "  ") -> str:
    """Return a command with one option on each line, and the rest on the last."""
    at = next((number for number, word in enumerate(words[1:], 1) if not word.startswith("-")), len(words))
    head, rest = [words[0], *words[1:at]], words[at:]
    lines = [*map(shell_word, head), *([shell_command(rest)] if rest else [])]
    return f" \\\n{indent}".join(lines)


def in_own_shell(lines: Iterable[str]) -> str:
    """Return lines for a shell of their own: pasted into a login shell, they neither end it nor leave a trap in it."""
    return "\n".join(["(", *lines, ")"]) + "\n"


def assignment(name: str, value: str) -> str:
    """Return ``export NAME=VALUE`` for a shell."""
    word = shell_word(value)
    return (
        f"export {name}='{word}'" if word.startswith("=") else f"export {name}={word}"
    )  # `a==b` looks like a comparison


def sbatch_line(option: str) -> str:
    """Return an ``#SBATCH`` line. A backslash takes any sign but white space literally, also in quotes; ``#`` begins a
    comment (measured with sbatch 22.05.8).

    Raises SpecError for a line end, which no quoting preserves."""
    if "\n" in option or "\r" in option or "\0" in option:
        raise SpecError(f"an #SBATCH line cannot hold a line end: {option!r}", hint="write the option on one line")
    name, sign, value = option.partition("=")
    escaped = "".join(f"\\{char}" if char in "\"'\\#" else char for char in value)
    return f'#SBATCH {name}{sign}"{escaped}"' if set(value) & set(WHITE) else f"#SBATCH {name}{sign}{escaped}"


def toml_string(value: str) -> str:
    """Return a basic string of TOML (v1.0.0): the escapes of JSON, and of DEL, which JSON leaves alone."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "backslashreplace").decode()


def edf_string(value: str) -> str:
    """Return a string of an environment definition file: one of TOML in which ``$`` expands nothing. Its reader expands
    ``${VAR}`` in all keys, the image and the mounts too (eth-cscs/cscs-docs, edf.md)."""
    return toml_string(value.replace("$", "$$"))


def yaml_string(value: str) -> str:
    """Return a double-quoted scalar of YAML (1.1 and 1.2), in ASCII."""
    return '"' + "".join(map(_yaml_sign, value)) + '"'


def _yaml_sign(sign: str) -> str:
    if sign in '"\\':
        return f"\\{sign}"
    if sign.isascii() and sign.isprintable():
        return sign
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def pod_string(value: str) -> str:
    """Return a scalar of YAML for the command or a variable of a container of Kubernetes, in which ``$(NAME)`` expands
    nothing (Kubernetes API, core/v1 Container: ``$$`` is one ``$``)."""
    return yaml_string(value.replace("$", "$$"))


def pod_list(values: Iterable[str]) -> str:
    """Return a list of `pod_string` as YAML has it on one line."""
    return f"[{', '.join(map(pod_string, values))}]"

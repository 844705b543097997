"""``signatures:`` of ``site.yaml``: whose signature an image must have before anything of it is used here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import SignatureError

if TYPE_CHECKING:
    from envbuild.core.signing.public_keys import TrustedKey
    from envbuild.core.yaml_nodes import Node
    from envbuild.core.yaml_reader import Reader

KEYS = ("require", "keys")


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """The policy of a site: the files of public `keys`, whether an image must be signed by one of them (`require`), and
    the file that states it."""

    keys: tuple[Path, ...] = ()
    require: bool = False
    where: str = ""

    def trusted(self) -> tuple[TrustedKey, ...]:
        """Return the keys. Raises SignatureError if there is none, or one that cannot be used."""
        from envbuild.core.signing.public_keys import read_public_keys

        if not self.keys:
            raise SignatureError(
                "the policy of the site requires signatures and names no key",
                hint="signatures: {require: true, keys: [FILE.pub]}",
                where=self.where,
            )
        return read_public_keys(self.keys)


def read_policy(reader: Reader, node: Node, folder: Callable[[str], str]) -> SignaturePolicy:
    """Return the policy in a site file; report mistakes. A missing key file, and a policy without keys, are reported
    where they are needed: a command that reads no published image is not stopped by them."""
    entries = reader.table(node, KEYS, "signatures", "a policy of signatures")
    require = reader.value(entries["require"], bool, "require") is not False if "require" in entries else True
    keys = reader.texts(entries["keys"], "keys") if "keys" in entries else ()
    return SignaturePolicy(tuple(Path(folder(key)) for key in keys), require, node.where)

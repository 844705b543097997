"""``envbuild key …``: keys that sign published images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import Json, show

key_app = typer.Typer(
    help="Keys that sign published images, in the format of cosign.", no_args_is_help=True, rich_markup_mode=None
)


@key_app.command("new")
def key_new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key; its public half is FILE.pub.")] = Path(
        "envbuild.key"
    ),
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Lock the key with nothing but the mode of its file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a key of ECDSA P-256: the private half, which a passphrase opens, and the public half for site.yaml.

    The passphrase is that of the variable COSIGN_PASSWORD, else it is typed. cosign reads both files.

    \b
      envbuild key new team.key
      envbuild publish h100-ucc --sign team.key
      # site.yaml of those who pull:  signatures: {require: true, keys: [team.pub]}
    """
    from envbuild.core.shell import shell_word
    from envbuild.core.signing.key_file import write_key_pair
    from envbuild.core.signing.passphrase import new_passphrase
    from envbuild.core.signing.public_keys import read_public_key

    public = write_key_pair(file, new_passphrase(file, empty=no_passphrase))
    data = {"key": str(file), "public": str(public), "hint": read_public_key(public).hint}
    show(
        data,
        as_json,
        f"{file}: keep it secret\n  public:   {public}\n  use:      envbuild publish NAME --sign {shell_word(file)}\n"
        f"  require:  in site.yaml:  signatures: {{require: true, keys: [{public}]}}",
    )

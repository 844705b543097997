"""Squashfs images for enroot from OCI layers: each layer is compressed once (a pack), an image is a merge of packs.

`PackWriter` makes a pack, `export_squashfs` an image with everything enroot needs, `write_image` any image,
`describe` reads one back. `DirectImage` makes an image without keeping packs.
"""

from envbuild.squashfs.direct import DirectImage
from envbuild.squashfs.export import export_squashfs
from envbuild.squashfs.pack import Pack, PackWriter, check_pack, pack_name, read_pack
from envbuild.squashfs.reader import describe
from envbuild.squashfs.writer import Written, write_image

__all__ = [
    "DirectImage",
    "Pack",
    "PackWriter",
    "Written",
    "check_pack",
    "describe",
    "export_squashfs",
    "pack_name",
    "read_pack",
    "write_image",
]

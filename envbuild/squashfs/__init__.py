"""Squashfs images from OCI layers: each layer is compressed once (a pack), an image is a merge of packs."""

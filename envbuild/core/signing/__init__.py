"""Signatures: statements about an image, the envelope that is signed, keys and the files that hold them."""

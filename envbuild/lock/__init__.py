"""Lock: every input byte of an image by digest, without a host name."""

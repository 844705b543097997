"""Verification: the declared content of an image is its actual content. Runs without a GPU; a check that did not run
is never reported as passed."""

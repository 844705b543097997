"""Reports of an image: one page for readers, results of checks for CI."""

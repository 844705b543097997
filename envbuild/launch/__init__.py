"""Starting jobs: what an image, its target, the site and the command line require becomes a command to type."""

"""The embedded engine: units in Linux namespaces over overlayfs."""

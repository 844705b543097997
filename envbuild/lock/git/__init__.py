"""Git sources: commits, submodules and canonical tarballs."""

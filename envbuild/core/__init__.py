"""The foundation: errors, reporters, YAML, text, the store and user namespaces."""

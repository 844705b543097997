"""What every room needs: errors, what a person sees, signals, texts, the store, user namespaces."""

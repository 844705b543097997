"""The store: content by digest, records of what was built and made, and what of it may go."""

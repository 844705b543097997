"""The network: mirrors of a site, downloads, registries and package indexes."""

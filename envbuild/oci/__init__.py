"""OCI: members of a layer, the canonical layer, image layouts."""

"""The docker engine: the same units through the BuildKit of a Docker Engine of this machine."""

"""The tests: a folder for each room of envbuild, and helpers in `support`."""

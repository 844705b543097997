"""Checks of GPUs and fabrics on a node: a program for the Python (>= 3.8) of an image or of a machine."""

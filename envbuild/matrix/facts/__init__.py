"""Compatibility facts: model, files, values and their evaluation."""

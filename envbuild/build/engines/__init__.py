"""Engines run the units of a plan. One file an engine; `base` defines what each must do."""

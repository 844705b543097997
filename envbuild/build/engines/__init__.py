"""Engines run the units of a plan. One file an engine; `base` says what each must do."""

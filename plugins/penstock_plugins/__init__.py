"""Policies and telemetry sources for Penstock: one file, one policy; each docstring is its manual.

`kinds` is what one of them learns.
"""

"""Policies and telemetry sources for Penstock: one file, one policy; each docstring is its manual."""

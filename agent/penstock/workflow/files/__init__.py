"""Workflow files: YAML and WfFormat, and whether one can run here."""

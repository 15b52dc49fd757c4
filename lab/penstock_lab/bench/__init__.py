"""Measurements of what the agent costs, each a command: `python -m penstock_lab.bench.NAME`."""

"""The machine that runs a workflow, and what drives it."""

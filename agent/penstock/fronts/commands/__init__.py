"""The command that puts front programs on PATH."""

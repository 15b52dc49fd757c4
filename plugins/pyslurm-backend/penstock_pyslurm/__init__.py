"""Slurm by pyslurm, in a process of its own."""

"""A pool that gets its own allocations: what it should ask Slurm for, and asking it."""

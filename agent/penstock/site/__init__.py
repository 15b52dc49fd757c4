"""One look at Slurm for all users of a host."""

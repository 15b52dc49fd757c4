"""The simulated Slurm: a discrete-event engine with backfilling, under a virtual or a wall clock."""

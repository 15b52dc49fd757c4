"""Everything that speaks to Slurm, real or simulated, behind the one Protocol of `base`."""

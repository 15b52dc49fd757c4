"""Slurm by slurmrestd, and by its commands for what that lacks."""

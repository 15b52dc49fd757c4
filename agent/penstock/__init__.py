"""Penstock: an agent for Slurm that works ahead of the queue and resizes MPI jobs while they run."""

__version__ = "0.2.0.dev0"

"""Penstock: an agent for Slurm that works ahead of the queue and lets MPI jobs breathe."""

__version__ = "0.2.0.dev0"

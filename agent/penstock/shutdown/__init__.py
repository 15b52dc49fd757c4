"""The way out: `penstock off` gives back what Penstock holds in Slurm and keeps it from acting until `penstock on`."""

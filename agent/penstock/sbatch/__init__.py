"""sbatch with `#PENSTOCK` directives: what of a command line is whose, and the real sbatch with it."""

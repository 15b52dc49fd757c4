"""The centre: one loop that looks at Slurm, asks the parts, and acts by one executor. It knows no part."""

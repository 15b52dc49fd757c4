"""A throw-away real Slurm of several nodes on one machine, for the demo and the tests."""

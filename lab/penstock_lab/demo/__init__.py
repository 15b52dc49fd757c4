"""`penstock demo`: everything at once, on a simulated or a real Slurm, with a verdict on whether it all happened."""

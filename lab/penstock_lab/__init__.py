"""The laboratory: a simulated Slurm, throw-away real ones, logs and their replay, the papers' experiments, soaks."""

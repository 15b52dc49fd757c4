"""Front programs of Slurm's commands, and what the agent answers them."""

"""What commands share: options, output, times, how they reach the agent and Slurm."""

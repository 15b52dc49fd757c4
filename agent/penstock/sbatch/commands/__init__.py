"""`penstock sbatch`, and how it hands jobs to the agent."""

"""What a job is expected to wait: learners, the live queue, Slurm's own plan and accounting, joined."""

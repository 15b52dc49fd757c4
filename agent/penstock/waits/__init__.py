"""What a job is expected to wait: learners, and what is known now."""

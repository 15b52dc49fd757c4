"""What administrators use: commands, `doctor`, one pass of the agent without a daemon."""

"""What the agent was good for, as its state file has it: `penstock report`, and the week that people are told of."""

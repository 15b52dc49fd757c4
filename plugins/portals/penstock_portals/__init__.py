"""Expected waits where a job is chosen: what portals ask Penstock's agent, and how they say it."""

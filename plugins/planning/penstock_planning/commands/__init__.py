"""Commands of slots, plans, and of where to run."""

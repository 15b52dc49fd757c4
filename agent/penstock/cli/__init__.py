"""The penstock command."""

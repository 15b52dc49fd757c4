"""Workflows of stages, and when to submit each of them."""

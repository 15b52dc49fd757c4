"""Malleable example programs."""

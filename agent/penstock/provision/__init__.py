"""Provisioning: the queue's plan as slots with prices, and workflows planned over them (paper 001, chapters 3 to 7)."""

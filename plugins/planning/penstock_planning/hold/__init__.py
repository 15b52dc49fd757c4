"""Slots that are held on a real cluster: the ledger, signed requests, and who does what the machine says."""

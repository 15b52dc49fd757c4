"""`penstock pool`."""

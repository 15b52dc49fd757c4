"""`penstock message`."""

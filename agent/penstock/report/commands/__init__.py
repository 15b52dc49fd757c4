"""`penstock report`."""

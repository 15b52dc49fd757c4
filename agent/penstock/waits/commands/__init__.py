"""`penstock waits`."""

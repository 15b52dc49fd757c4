"""`penstock report`, `penstock explain`."""

"""`penstock dashboard`."""

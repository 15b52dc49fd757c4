"""`penstock advise`, and shorter limits at submission."""

"""`penstock advise`, and shorter limits at submission."""

DAYS = 90
"""How far back is looked where nobody says it."""

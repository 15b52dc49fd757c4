"""Pure planning: the availability profile and the backfill plan over it."""

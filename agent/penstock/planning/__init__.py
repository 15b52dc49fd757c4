"""Pure planning: the availability profile, of named nodes and of counts, and the backfill plan over it."""

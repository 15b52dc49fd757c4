"""Pure planning: the availability profile, of pinned nodes and of counts, and the backfill plan over it."""

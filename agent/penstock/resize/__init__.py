"""Jobs whose size changes: while they run, and while they wait."""

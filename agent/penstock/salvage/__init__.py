"""What can still be read of a damaged state file, written to a new one."""

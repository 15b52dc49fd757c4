"""The state file: its tables, how it is made, read and brought up to date, and who may write it."""

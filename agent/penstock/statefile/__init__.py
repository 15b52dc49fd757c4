"""State files as files: whether they are whole, copies to keep, and what can be saved of damaged ones."""

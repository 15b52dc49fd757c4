"""What jobs could ask for less of: time and memory, from what earlier ones used. Pure, but for its commands."""

"""Resource selection (paper 000): where a task finishes first, or runs cheapest. Pure."""

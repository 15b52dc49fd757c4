"""Resource selection (Ha et al.): where a task finishes first, or runs cheapest. Pure."""

"""Commands for a site and its agent."""

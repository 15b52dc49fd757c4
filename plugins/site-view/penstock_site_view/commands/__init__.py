"""The command of the site's view."""

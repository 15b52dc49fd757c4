"""One look at Slurm for all users of a host."""

from typing import Final

__all__ = ["VIEW_SOCKET"]

VIEW_SOCKET: Final = "/run/penstock-site-view/view.sock"
"""Where the site's view listens, if nobody says otherwise."""

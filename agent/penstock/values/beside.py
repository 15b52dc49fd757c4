"""The distributions of Penstock's own that are installed beside the core, by the names that pip has for them."""

from __future__ import annotations

from typing import Final

__all__ = ["DASHBOARD", "FRONTS", "LABORATORY", "MESSAGES", "PLANNING", "POOL", "SITE_VIEW"]

FRONTS: Final = "penstock-fronts"
MESSAGES: Final = "penstock-messages"
POOL: Final = "penstock-pool"
PLANNING: Final = "penstock-planning"
DASHBOARD: Final = "penstock-dashboard"
SITE_VIEW: Final = "penstock-site-view"
LABORATORY: Final = "penstock-lab"

"""Where messages can be extended: the channels that they take."""

from __future__ import annotations

from typing import Final

from penstock.core.extensions import ExtensionPoint

__all__ = ["CHANNELS"]

CHANNELS: Final = ExtensionPoint(
    "penstock.channels",
    "channel",
    "`messages.channels`",
    {
        "mail": "penstock_messages.channels:Mail",
        "webhook": "penstock_messages.channels:Webhook",
        "command": "penstock_messages.channels:Command",
    },
    protocols=("penstock_messages.channels:Channel",),
)

"""`Channel`, `Undelivered` and `read_secret`, as channels of your own import them: they are penstock-messages'."""

from __future__ import annotations

from penstock_messages.channels import Channel, Undelivered, read_secret

__all__ = ["Channel", "Undelivered", "read_secret"]

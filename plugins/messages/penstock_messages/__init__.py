"""What the agent tells people by itself: by mail, to a webhook, through a command. docs/messages.md."""

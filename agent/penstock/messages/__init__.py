"""The name under which channels of your own import what they need; all of messages is penstock-messages'."""

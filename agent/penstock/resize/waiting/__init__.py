"""Jobs that may have one of several sizes, which is chosen before they start: their nodes follow the queue."""

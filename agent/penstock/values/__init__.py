"""Plain values that all parts speak of: durations, instants, who may be served, speed-up models. Pure."""

"""The machine that the agent runs on: clocks, folders, users, addresses, threads, logs, systemd."""

"""The laboratory's subcommands of `penstock`."""

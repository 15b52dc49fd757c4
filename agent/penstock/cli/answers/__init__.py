"""What every command prints with --json, described once: the JSON schemas of it are what readers can count on."""

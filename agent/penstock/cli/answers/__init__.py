"""What every command prints with --json, as models: their JSON schemas are what readers can count on."""

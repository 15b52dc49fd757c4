"""What comes before the first job: what is registered, what is forecast."""

"""The agent's door: a Unix socket for the command line, TCP for MPI jobs. Handlers wake the loop and never decide."""

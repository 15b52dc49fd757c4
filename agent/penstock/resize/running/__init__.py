"""Growing and shrinking running MPI jobs: the resize as a machine without I/O, and the controller that drives it."""

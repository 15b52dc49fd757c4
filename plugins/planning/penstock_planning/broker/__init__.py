"""Resource selection at work: files, profiles, real partitions and clusters, waits, bags of tasks and their jobs."""

"""Who asked for what, and what was done to Slurm: an append-only, hash-chained file, anchored in the system's journal.

`record` and `chain` say what a line is, `aggregate` keeps repeated refusals from filling the disk, `trail` writes the
files, `journal` tells the system's journal, `auditor` joins them for the doors and the executor, `reading` reads and
verifies.
"""

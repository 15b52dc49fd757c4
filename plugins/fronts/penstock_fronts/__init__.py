"""Status calls answered from the agent's cache: what squeue, sacct and scontrol would say, byte for byte, or nothing.

`squeue`, `sacct` and `scontrol` are pure: from a look (`rows`, Slurm's own text) and the words of a command they make
the answer, or say why the real command has to run. `door` keeps the looks and answers at the Unix socket.
"""

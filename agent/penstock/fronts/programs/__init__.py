"""The front programs: sbatch, squeue, sacct, scancel and scontrol, which stand first on PATH and run Slurm's own.

They start for every command of every tool, so they load little: what they need of this package is copied beside them
(`folder.MODULES`), and imports nothing but a few small modules of the standard library. They may be run by an older
Python than the agent's (`folder.OLDEST`), that of the system, which does not go away with a virtual environment.
"""

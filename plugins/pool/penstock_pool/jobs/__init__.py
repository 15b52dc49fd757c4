"""Tasks of a pool as jobs: submitted by `sbatch`, told by `squeue`, `sacct` and `scontrol`, ended by `scancel`.

`order` reads what sbatch is asked for, `rows` writes tasks as Slurm's commands write jobs; both are pure. `door`
answers front programs in the pool's scheduler, `conditions` looks up the jobs of Slurm's that jobs of the pool wait
for.
"""

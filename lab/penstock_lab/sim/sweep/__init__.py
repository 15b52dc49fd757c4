"""Many replays: every combination of logs and models, policies, estimates, tie orders, seeds and loads.

grid   what there is to compute, from options or a YAML file
one    computes one combination
parts  one file per combination beside the result, so that a sweep goes on where it was interrupted
local  computes in processes of this machine
array  submits the same command as a Slurm job array
table  the merged result: CSV or Parquet
"""

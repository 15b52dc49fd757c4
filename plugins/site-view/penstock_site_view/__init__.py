"""The service that looks at Slurm for all users of a host: `penstock site-view`.

It only looks. What it is made of reads (`slurm.queries`), and nothing in it can reach what changes Slurm.
"""

"""What a change of the site would have done: windows of a site's own jobs, simulated as the site is and as it would be.

`windows` takes windows from a history, `simulate` runs one both ways under the simulated Slurm,
`effects` says how far the simulation is from what was recorded, and what the change did.
"""

"""A look at Slurm that all users of a host share: how it is written down, and how it is asked for.

Who takes it, and who is shown what of it, is `penstock_site_view`, the service of `penstock site-view`.
"""

"""`penstock doctor`: what of Penstock works on this site, what does not, and what would change that.

`facts` says what can be known of a site, `reader` finds it out, `site`, `host` and `mpi` judge it check by check, and
`features` says what follows for each thing that Penstock does. Judging is pure: facts in, findings out.
"""

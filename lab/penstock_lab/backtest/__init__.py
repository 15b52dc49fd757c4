"""Which predictors would have been right on a site's own jobs: each is told only what was known by then.

`past` finds what was known, for all jobs at once; `plain` has the plain predictors, on every job; `sampled` walks
stretches of the log with the learners that the agent uses; `score` judges.
"""

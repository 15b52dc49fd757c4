"""Evidence: the papers' experiments and measurements on real logs, run by `penstock bench`.

fig5        figure 5 of the ASA paper: how fast the learners follow a wait that changes
fig5_plot   its curves
queue_log   a log walked in order of time: what the queue looked like when each job was submitted
logs        wait prediction on real logs
"""

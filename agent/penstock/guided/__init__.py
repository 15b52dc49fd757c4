"""Workflows whose jobs their owner has submitted, most of them held: the agent guides them through the queue.

It releases, moves and re-points jobs and never submits one, so that it may serve users whom it cannot act as: an
Operator without root (system mode), or a pass from somebody's crontab (`penstock tick`).
"""

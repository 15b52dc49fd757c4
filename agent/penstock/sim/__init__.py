"""Workloads and their replay: logs in Standard Workload Format, scheduling policies, and what the jobs waited.

    swf      reads, filters and writes logs (the only module here that touches files)
    trace    the jobs to replay, as columns of integers
    replay   the event loop and the choice of policy and tie order
    fcfs, easy, conservative, replan    the policies, one a module
    running  the running jobs by estimated end, which easy and replan share
    profile  free processors over time, which conservative and replan share
    score    mean wait, bounded slowdown, utilisation, and the digest by which simulators are compared

Processors are counted, not named: a job needs so many of them, any will do, and it keeps them until its end.
"""

"""Workloads and their replay: logs in Standard Workload Format, scheduling policies, and what the jobs waited.

    swf      reads and filters logs
    swfout   writes logs
    workloads  jobs that a model makes up
    trace    the jobs to replay, as columns of integers
    estimates  how long users say that jobs will run
    replay   the event loop and the choice of policy and tie order
    fcfs, easy, conservative, replan    the policies, one a module
    running  the running jobs by estimated end, which easy and replan share
    profile  free processors over time, which conservative and replan share
    score    mean wait, bounded slowdown, utilisation, and the digest by which simulators are compared

Processors are counted, not named: a job needs so many of them, any will do, and it keeps them until its end.
"""

"""The simulated Slurm: a discrete-event engine with backfilling, under a virtual or a wall clock.

    engine, scheduling in penstock.planning, dependency, model, durations    pure: events in, effects out
    controller                                                               what users may ask, as Slurm answers it
    backend       MockBackend and VirtualClock: everything in one process, time moves when told to
    wall, srun    real time, every job really runs on this host, MPI included (what that needs is told in `wall`)
    server, client, control    the cluster as a process of its own, a Backend over its socket, start and stop it

Unlike Slurm: time limits are not rounded up to minutes, nodes are free the moment a job is ended (no COMPLETING),
scheduling happens at every change at once, accounting never lags, and only the heads of queues have an expected start.
"""

"""The simulated Slurm: a discrete-event engine with backfilling, under a virtual or a wall clock.

Pure, events in and effects out:

    engine               time, events and changes; it joins the following
    blocked, queue       who waits for something, and who for nothing but its turn, by priority
    scheduler            one pass over the queue, with a planner of penstock.future
    machine, licenses    what jobs take
    reservations, reservation_lifecycle: what is kept for whom, and what becomes of it in time
    arrays, dependency, durations, speedup, failures, jobs, model

Around it:

    admission, controller    what users may ask, and what Slurm answers
    backend, clock           MockBackend and VirtualClock: everything in one process, time moves when told to
    faults                   calls that go wrong on order
    realtime, srun           every job really runs on this host, MPI included (`realtime` tells what that needs)
    server, client, control  a site as a process of its own, a Backend over its socket, start and stop it

`penstock_lab.sim.cluster` runs workloads of any length on it.

Unlike Slurm: time limits are not rounded up to minutes, nodes are free the moment a job is ended (no COMPLETING),
scheduling happens at every change at once (unless `cycle` is set), accounting never lags, only those who were promised
a start have an expected one, an array has one promise for all its tasks that wait, licences are not planned for, users
and accounts need not exist, and a reservation keeps its nodes when one of them dies.
"""

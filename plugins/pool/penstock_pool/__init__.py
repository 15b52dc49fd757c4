"""One pool of tasks over many allocations (ASA paper, section 3.1, the unified view), on Dask's `distributed`.

A scheduler process keeps the tasks; a worker on every node of every allocation that joins runs them. Dask carries the
members (registration, heartbeats, TLS); what runs where is decided by `machine` and a placement, both pure.
"""

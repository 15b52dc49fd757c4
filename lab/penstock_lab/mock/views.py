"""The engine's state in the words of the API: what squeue and sinfo would show."""

from __future__ import annotations

from penstock.api import Job, Node, Partition, Reservation
from penstock_lab.mock.engine import Engine

__all__ = ["jobs", "nodes", "partitions", "reservations"]


def jobs(engine: Engine) -> list[Job]:
    """Every job in the controller's memory, by id."""
    return [job.view(engine.priority(job), engine.config.cpus, engine.now) for job in engine.jobs.values()]


def nodes(engine: Engine) -> list[Node]:
    """Every node."""
    found: list[Node] = []
    features = {p.name: p.features for p in engine.config.partitions}
    for name, inside in engine.machine.partitions_of.items():
        base, trouble = "ALLOCATED" if name in engine.owner else "IDLE", engine.out_of_order.get(name)
        state = base if trouble is None else "DOWN" if trouble == "DOWN" else f"{base}+{trouble}"
        known = tuple(dict.fromkeys(one for partition in inside for one in features[partition]))
        idle = engine.machine.idle_since[name]
        found.append(Node(name, state, engine.config.cpus, trouble is None, inside, features=known, idle_since=idle))
    return found


def reservations(engine: Engine) -> list[Reservation]:
    """Every reservation, the first to begin first."""
    return sorted((held.view(engine.now) for held in engine.reservations), key=lambda r: (r.start, r.name))


def partitions(engine: Engine) -> list[Partition]:
    """Every partition with its limits; the first is the default."""
    return [
        Partition(
            name=p.name,
            nodes=engine.config.nodes_of(p),
            up=True,
            default=index == 0,
            max_time=p.max_time,
            default_time=p.default_time,
            max_nodes=p.max_nodes,
            own_qos=p.qos,
        )
        for index, p in enumerate(engine.config.partitions)
    ]

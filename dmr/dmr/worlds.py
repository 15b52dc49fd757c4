"""Which processes stay in a resize, which are started, and who is which rank afterwards. Pure arithmetic.

A *world* is what one mpiexec or one MPI_Comm_spawn started: the processes that share an MPI_COMM_WORLD. They can only
end together in MPI's sense, and Slurm can only take back a node on which no process of a world lives that has others
elsewhere. So a world stays or leaves as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Changes", "changes"]


@dataclass(frozen=True)
class Changes:
    """A resize in terms of processes.

    `stay` are the old ranks that stay. `starts` are the worlds to be started: the nodes of each. In a communicator of
    all, old ranks first and then those started, in order, `new[r]` is the rank of the process that becomes rank r.
    """

    stay: tuple[int, ...]
    starts: tuple[tuple[str, ...], ...]
    new: tuple[int, ...]


def changes(
    worlds: Sequence[str],
    places: Sequence[str],
    nodes: Sequence[str],
    per_node: int,
    *,
    merge: bool,
    jobs: Mapping[str, int] | None = None,
    factor: int = 1,
) -> Changes:
    """What to start, and who stays, to have `per_node` ranks on each of `nodes`.

    Args:
        worlds: by old rank, the name of its world.
        places: by old rank, its node; "" where it is not known, which is nowhere.
        nodes: all nodes after the resize, in order of the new ranks.
        per_node: ranks on each of them.
        merge: keep every world that can be kept, and start as few as can be for the other nodes, so that each can leave
            as a whole when its time comes. Else everybody is replaced, by one world for the nodes of each job.
        jobs: the job that holds a node, for those that another than the application's own holds. They are given back
            together, so they are of one world.
        factor: later sizes are this one divided by a power of it; 1: any, and each node needs a world of its own.
    """
    jobs = jobs or {}
    if not merge:
        order = sorted(range(len(nodes)), key=lambda i: (jobs.get(nodes[i], 0) != 0, jobs.get(nodes[i], 0)))
        holders = dict.fromkeys(jobs.get(nodes[i], 0) for i in order)
        starts = tuple(tuple(node for node in nodes if jobs.get(node, 0) == holder) for holder in holders)
        return Changes((), starts, _ranks(len(places), {}, starts, nodes, per_node))
    residents: dict[str, list[int]] = {}
    for rank, node in enumerate(places):
        residents.setdefault(node, []).append(rank)
    kept = {node for node in nodes if len(residents.get(node, ())) == per_node}
    leaving = {worlds[rank] for rank, node in enumerate(places) if node not in kept}
    kept = {node for node in kept if not leaving.intersection(worlds[rank] for rank in residents[node])}
    # A world that shares a node with one that leaves would go on with too few ranks there.
    while more := {worlds[rank] for rank, node in enumerate(places) if node not in kept} - leaving:
        leaving |= more
        kept = {node for node in kept if not leaving.intersection(worlds[rank] for rank in residents[node])}
    starts = _together(nodes, kept, jobs, factor)
    stay = tuple(rank for rank, node in enumerate(places) if node in kept)
    return Changes(stay, starts, _ranks(len(places), {n: residents[n] for n in kept}, starts, nodes, per_node))


def _together(
    nodes: Sequence[str], kept: Collection[str], jobs: Mapping[str, int], factor: int
) -> tuple[tuple[str, ...], ...]:
    """The nodes that are not kept, those together that leave together: the last first, down to a reachable size."""
    found: dict[object, list[str]] = {}
    count, sizes = len(nodes), [len(nodes)]
    while factor > 1 and count % factor == 0:
        count //= factor
        sizes.append(count)
    for place, node in enumerate(nodes):
        if node not in kept:
            stage = min(size for size in sizes if size > place)
            own = ("size", stage) if factor > 1 else ("node", node)
            found.setdefault(("job", jobs[node]) if jobs.get(node) else own, []).append(node)
    return tuple(tuple(together) for together in found.values())


def _ranks(
    before: int, kept: Mapping[str, Sequence[int]], starts: Sequence[Sequence[str]], nodes: Sequence[str], per_node: int
) -> tuple[int, ...]:
    at = {node: list(ranks) for node, ranks in kept.items()}
    following = before
    for world in starts:
        for node in world:
            at[node] = list(range(following, following + per_node))
            following += per_node
    return tuple(rank for node in nodes for rank in at[node])

"""Algorithms 1 to 3 of Ha et al., to the letter, and why a resource is not viable.

Two places of the printed text are read as they must be meant: line 9 of Algorithm 1 is "intersection = empty set", and
the header of Algorithm 2 swaps what a task (requirements) and a resource (capabilities) consist of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.values import Value

__all__ = ["matching", "nearest", "offered_nowhere", "res_select", "satisfy_req", "satisfy_task", "unmet"]

Id = TypeVar("Id")
Input = TypeVar("Input")


def satisfy_req(req: Requirement, cap: Capability) -> bool:
    """Whether the capability's consumable can be used for the requirement (Algorithm 1).

    Same type, every attribute of the requirement there, and at least one value in common for each. An empty form is met
    by every consumable of the type. What is held needs a capacity that is large enough.
    """
    if req.held != cap.held or (cap.capacity is not None and cap.capacity < req.amount):
        return False
    return _usable(req.consumable, cap.consumable)


def _usable(wanted: Consumable, offered: Consumable) -> bool:
    if wanted.type != offered.type:
        return False
    form = dict(offered.form)
    for attribute, condition in wanted.form:
        if attribute not in form:
            return False
        if not _meet(form[attribute], condition):
            return False
    return True


def _meet(offered: Iterable[Value], wanted: Iterable[Value]) -> bool:
    return any(have.meets(want) for want in wanted for have in offered)


def satisfy_task(res: Resource, task: Task) -> bool:
    """Whether the resource has a capability for each requirement of the task (Algorithm 2)."""
    return all(any(satisfy_req(req, cap) for cap in res.capabilities) for req in task.requirements)


def res_select(ids: Sequence[Id], inputs: Sequence[Input], affinity: Callable[[Input], float]) -> Id | None:
    """The id whose input has the highest affinity, the first of equals (Algorithm 3); None where all are -infinity.

    `inputs` belong to `ids` one by one, all of viable resources.
    """
    best: Id | None = None
    best_value = -math.inf
    for one, given in zip(ids, inputs, strict=True):
        value = affinity(given)
        if best_value < value:
            best_value, best = value, one
    return best


def matching(req: Requirement, res: Resource) -> list[Capability]:
    """The capabilities that satisfy the requirement."""
    return [cap for cap in res.capabilities if satisfy_req(req, cap)]


def unmet(task: Task, res: Resource) -> list[str]:
    """Why the resource cannot run the task, a sentence per requirement that it does not satisfy; [] if it can."""
    return [_why(req, res.capabilities) for req in task.requirements if not matching(req, res)]


def _why(req: Requirement, offered: Sequence[Capability]) -> str:
    same = [cap for cap in offered if cap.consumable.type == req.consumable.type and cap.held == req.held]
    if not same:
        return f"offers no {req.consumable.type}" + (" to hold" if req.held else "")
    best = min(same, key=lambda cap: _apart(req.consumable, cap.consumable))
    form = dict(best.consumable.form)
    for attribute, wanted in req.consumable.form:
        said = "|".join(sorted(map(str, wanted)))
        if attribute not in form:
            return f"{req.consumable.type}: does not say its {attribute}, {said} is required"
        if not _meet(form[attribute], wanted):
            have = form[attribute]
            kinds = {value.kind for value in wanted}, {value.kind for value in have}
            mixed = "" if kinds[0] & kinds[1] else f" (a {min(kinds[1])}, not a {min(kinds[0])})"
            return f"{req.consumable.type}: {attribute} is {'|'.join(sorted(map(str, have)))}{mixed}, not {said}"
    return f"{req.consumable.type}: has {best.capacity:g}, {req.amount:g} at once are required"


def _apart(wanted: Consumable, offered: Consumable) -> tuple[int, int, str]:
    """How far an offer is from what is wanted: another type, then how many attributes do not fit."""
    form = dict(offered.form)
    misfits = sum(name not in form or not _meet(form[name], values) for name, values in wanted.form)
    return (wanted.type != offered.type, misfits, str(offered))


def nearest(wanted: Consumable, resources: Iterable[Resource]) -> tuple[Consumable, str] | None:
    """The consumable that comes nearest to a wanted one, of all that are offered, and a resource that offers it."""
    offers = ((cap.consumable, res.name) for res in resources for cap in res.capabilities)
    return min(offers, key=lambda offer: (_apart(wanted, offer[0]), offer[1]), default=None)


def offered_nowhere(task: Task, resources: Sequence[Resource]) -> str | None:
    """What the task needs that no resource offers, and what comes nearest to it; None: each is offered somewhere."""
    for req in task.requirements:
        if not any(satisfy_req(req, cap) for res in resources for cap in res.capabilities):
            near = nearest(req.consumable, resources)
            hint = "" if near is None else f"; the nearest is {near[0]} of {near[1]}"
            return f"needs {req}, which no resource offers{hint}"
    return None

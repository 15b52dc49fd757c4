"""The file of an elastic job.

    name: survey
    time: 4h
    elastic: {min: 1, max: 8, use: farm, tasks: tasks.txt}

or without a recipe (`use`), with commands:

    elastic: {min: 1, max: 8, start: ./head, join: './worker "$PENSTOCK_ELASTIC_HEAD"', leave: ./drain, grace: 2m}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from dmr.elastic import plans
from dmr.elastic.words import ElasticPlan
from penstock.errors import UserError
from penstock.resize.recipes.recipes import RECIPES, Recipe, RecipeWish
from penstock.values.models import Duration, Entry, Name, Text, Words, kind, read_as, text, whole
from penstock.values.yaml12 import parse_yaml

__all__ = ["ElasticJob", "read_elastic"]

_MOST: Final = 2**31 - 1
_Nodes = Annotated[int, whole(1, _MOST)]
_Signal = Annotated[int, kind(lambda said: plans.signal_number(str(said)))]


class _Elastic(Entry):
    """Sizes are nodes. What a recipe says counts where nothing else is said."""

    min: _Nodes
    max: _Nodes
    preferred: _Nodes | None = None
    factor: _Nodes = 1
    use: Literal["dask", "farm", "pool", "ray", "restart", "torchrun"] | None = None
    run: Text | None = None
    tasks: Text | None = None
    pool: Name | None = None
    slots: _Nodes | None = None
    python: Text = "python3"
    options: Text | None = None
    start: Text | None = None
    join: Text | None = None
    base: bool | None = None
    leave: Text | None = None
    signal: _Signal | None = None
    grace: Duration | None = None
    ready: Text | None = None
    ready_line: Text | None = None
    settle: Duration | None = None
    ready_timeout: Duration | None = None
    notify: Text | None = None
    restart: Text | None = None
    checkpoint: Text | None = None
    finished: Text | None = None
    interval: Duration | None = None
    loans: bool | None = None


class _File(Entry):
    elastic: _Elastic
    name: Annotated[str, text("a name without blanks", r"[A-Za-z0-9_.-]{1,100}")] = "elastic"
    time: Duration | None = None
    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    output: Text | None = None
    exclusive: bool = True
    sbatch: Words | None = None


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """What is submitted: the plan for the job's supervisor, and what sbatch is asked for (`time` in seconds)."""

    name: str
    plan: ElasticPlan
    time: float | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    output: str | None = None
    exclusive: bool = True
    sbatch: tuple[str, ...] = ()


# The file's words, and the plan's where those are others.
_SAME: Final = (
    "preferred", "factor", "start", "join", "leave", "signal", "grace", "ready", "ready_line", "settle",
    "ready_timeout", "notify", "checkpoint", "finished", "interval", "loans",
)  # fmt: skip
_OTHER: Final = {"min": "minimum", "max": "maximum", "base": "base_joins", "restart": "again"}


def read_elastic(data: bytes | str, source: str, python: str) -> ElasticJob:
    """The job in a file; `python` is one that has `dmr`. Raises UserError naming file and key."""
    try:
        top = read_as(_File, parse_yaml(data, "elastic job"))
        return ElasticJob(
            top.name,
            _plan(top.elastic, python),
            top.time,
            top.partition,
            top.account,
            top.qos,
            top.output,
            top.exclusive,
            tuple(top.sbatch or ()),
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def _plan(said: _Elastic, python: str) -> ElasticPlan:
    if said.max < said.min:
        raise UserError(f"elastic.max: {said.max} is below the minimum of {said.min}")
    if said.preferred is not None and not said.min <= said.preferred <= said.max:
        raise UserError(f"elastic.preferred: {said.preferred} is outside {said.min}..{said.max}")
    wish = RecipeWish(
        said.min,
        said.max,
        said.run,
        said.tasks,
        said.pool,
        said.slots,
        said.python,
        said.options or "",
        said.grace,
        python,
    )
    found: dict[str, object] = {}
    allowed: frozenset[str] = frozenset()
    if said.use is not None:
        recipe: Recipe = RECIPES[said.use]
        missing = [name for name in recipe.needs if getattr(said, name) is None]
        if missing:
            raise UserError(f"elastic.{missing[0]}: is missing; `use: {said.use}` needs it: {recipe.needs[missing[0]]}")
        found, allowed = recipe.make(wish), recipe.takes | set(recipe.needs)
    for name in ("run", "tasks", "pool", "slots", "options"):
        if getattr(said, name) is not None and name not in allowed:
            users = ", ".join(n for n, r in RECIPES.items() if name in r.takes | set(r.needs))
            raise UserError(f"elastic.{name}: only a recipe has use for it (use: {users})")
    for name in (*_SAME, *_OTHER):
        if (value := getattr(said, name)) is not None:
            found[_OTHER.get(name, name)] = value
    try:
        return plans.of_mapping(found)
    except ValueError as error:
        problem = str(error)
        for ours, theirs in _OTHER.items():
            problem = problem.replace(f"{theirs}:", f"{ours}:").replace(f"`{theirs}`", f"`{ours}`")
        raise UserError(f"elastic.{problem}") from None

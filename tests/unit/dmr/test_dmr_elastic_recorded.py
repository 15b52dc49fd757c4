"""What elastic jobs of real tools were told on real Slurm (`tests/slurm/record_elastic.py`), told again."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dmr.elastic import plans, words
from dmr.elastic.dialogue import Dialogue, Phase
from dmr.elastic.group import Group
from dmr.elastic.resuming import Resuming

RECORDS = sorted((Path(__file__).parents[2] / "fixtures" / "elastic").glob("*.json.gz"))
KINDS: dict[str, type[Dialogue]] = {"Group": Group, "Resuming": Resuming}
TEXTS = (words.Say, words.RefuseResize)
"""What is said to people may change without a new record."""


def event_of(said: dict[str, Any]) -> words.Event:
    kind = getattr(words, said["is"])
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in said.items() if k != "is"})


def told(one: words.Instruction) -> dict[str, Any]:
    """As a record has it; but of what people read only the kind."""
    said = {} if isinstance(one, TEXTS) else json.loads(json.dumps(dataclasses.asdict(one)))
    said.pop("seconds", None)  # rounding
    return {"is": type(one).__name__, **said}


def recorded(one: dict[str, Any]) -> dict[str, Any]:
    if one["is"] in {kind.__name__ for kind in TEXTS}:
        return {"is": one["is"]}
    return {k: v for k, v in one.items() if k != "seconds"}


def test_each_tool_has_a_record() -> None:
    assert [p.name.split(".")[0] for p in RECORDS] == ["dask", "farm", "ray", "restart", "torchrun"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.name.split(".")[0])
def test_told_the_same_it_does_the_same(path: Path) -> None:
    record = json.loads(gzip.decompress(path.read_bytes()))
    plan = plans.of_mapping({k: v for k, v in record["plan"].items() if v is not None})
    machine = KINDS[record["kind"]](plan, record["base"], record["job"])
    sizes = []
    for at, event, done in record["steps"]:
        answer = machine.begin(at) if event is None else machine.on(event_of(event), at)
        assert [told(one) for one in answer] == [recorded(one) for one in done], (at, event)
        sizes += [len(one.nodes) for one in answer if isinstance(one, words.FinishResize)]
    assert machine.phase is Phase.OVER
    # It grew onto what was idle, gave nodes to a rival, grew again, and said that it needed fewer.
    assert max(sizes) == plan.maximum and [b - a > 0 for a, b in zip([1, *sizes], sizes, strict=False)][:3] == [
        True,
        False,
        True,
    ]
    assert plan.maximum // 2 in sizes[2:]

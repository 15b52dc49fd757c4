"""What the shell completes: workflows, stages and jobs that the agent knows.

It is asked at its socket, for half a second at most. Where none answers in time nothing is offered and nothing said: a
message would stand in the middle of what is being typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["jobs", "stages", "subjects", "workflows"]

_PATIENCE: Final = 0.5


def workflows(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of workflows, and wN and their names."""
    return _offer(_workflows(_answer()), incomplete)


def stages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the stages of the workflow that was given before."""
    which = str(context.params.get("workflow"))
    found = [w for w in _answer().get("workflows", ()) if which in (str(w["id"]), f"w{w['id']}", w["name"])]
    return _offer(((s["name"], s["phase"]) for w in found[-1:] for s in w["stages"]), incomplete)


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of the jobs of workflows, and of malleable jobs."""
    return _offer(_jobs(_answer()), incomplete)


def subjects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Workflows as wN and by name, and numbers of jobs."""
    answer = _answer()
    named = [found for found in _workflows(answer) if not found[0].isdecimal()]  # a bare number is a job's
    return _offer([*named, *_jobs(answer)], incomplete)


def _answer() -> dict[str, Any]:
    """What the agent says of the caller's work; empty where it does not answer."""
    # Slow to load, and of no use to a command that is run.
    from penstock.config import load
    from penstock.errors import PenstockError
    from penstock.ipc.client import ask

    try:
        answer: dict[str, Any] = ask(load().socket_path, "status", timeout=_PATIENCE)
    except PenstockError:
        return {}
    return answer


def _workflows(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for w in answer.get("workflows", ()):
        yield str(w["id"]), w["name"]
        yield f"w{w['id']}", w["name"]
        yield w["name"], f"workflow {w['id']}"


def _jobs(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for w in answer.get("workflows", ()):
        yield from ((str(s["job"]), f"{w['name']}, {s['name']}") for s in w["stages"] if s["job"] is not None)
    yield from ((str(m["job"]), "malleable") for m in answer.get("malleable", ()))


def _offer(found: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # wN is another way to say N: it is offered to those who have begun it, not to those who look at what there is.
    return [
        CompletionItem(value, help=text)
        for value, text in dict(found).items()
        if value.startswith(incomplete) and (incomplete or not (value[0] == "w" and value[1:].isdecimal()))
    ]

"""Tasks as JSON describes them, checked. Pure."""

from __future__ import annotations

import shlex
from typing import Annotated, Final

from pydantic import Field

from penstock.errors import UserError
from penstock.values.models import Duration, Entry, kind, number, read_as, text, whole
from penstock.values.units import AMOUNT_FORMS, parse_amount
from penstock_pool.model import RETRIES, PoolTask
from penstock_pool.terms import JobTerms, terms_from_dict

__all__ = ["memory_of", "task_from_dict"]

_MAX_RETRIES: Final = 100
_MAX_CORES: Final = 100_000


def _words(value: object) -> list[str] | None:
    good = isinstance(value, list) and all(isinstance(word, str) and "\0" not in word for word in value)
    return value if good else None  # type: ignore[return-value]


def _argv(value: object) -> list[str] | None:
    argv = _words(shlex.split(value) if isinstance(value, str) else value)
    if argv is None or not argv or not argv[0]:
        raise ValueError("must be a list of words or a text, not empty")
    return argv


def _environment(value: object) -> dict[str, str] | None:
    good = isinstance(value, dict) and all(
        isinstance(k, str) and isinstance(v, str) and "\0" not in k + v and k and "=" not in k for k, v in value.items()
    )
    return value if good else None  # type: ignore[return-value]


def _terms(value: object) -> JobTerms | None:
    try:
        return terms_from_dict(value) if isinstance(value, dict) else None
    except (KeyError, TypeError) as e:
        raise ValueError(f"these terms are of another version: {e}") from None


def _memory(value: object) -> int:
    try:
        return int(parse_amount(value))
    except ValueError as e:
        raise ValueError(str(e).replace(AMOUNT_FORMS, "an amount such as 512 MiB or 2 GB")) from None


_Line = Annotated[str, text("a printable text", ".{0,4096}")]
_Cores = number(above=True, most=_MAX_CORES, what="a number above 0, such as 1 or 0.5")


class _TaskEntry(Entry):
    command: Annotated[list[str], kind(_argv)]
    name: _Line = ""
    workflow: _Line = ""
    cores: Annotated[float, _Cores] = 1.0
    memory: Annotated[int, kind(_memory)] | None = None
    gpus: Annotated[int, whole(0, 1024)] = 0
    time: Duration | None = None
    inputs: Annotated[list[str], kind(_words, "a list of texts")] = Field(default_factory=list)
    workdir: Annotated[str, text("an absolute path", "/.{0,4095}")]
    environment: Annotated[dict[str, str], kind(_environment, "a map of texts")] = Field(default_factory=dict)
    retries: Annotated[int, whole(0, _MAX_RETRIES)] = RETRIES
    job: Annotated[JobTerms, kind(_terms, "the terms of a job")] | None = None


def task_from_dict(value: object, where: str, workdir: str) -> PoolTask:
    """The task that a JSON object describes; `workdir` is taken where it names none.

    Keys: command (a list, or a text that is split into words as a shell would), name, workflow, cores, memory, gpus,
    time, inputs, workdir, environment, retries. Raises UserError that begins with `where`.
    """
    if isinstance(value, dict) and not value.get("workdir"):
        value = {**value, "workdir": workdir}
    try:
        said = read_as(_TaskEntry, value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return PoolTask(
        argv=tuple(said.command),
        seconds=said.time,
        inputs=tuple(said.inputs),
        job=said.job,
        **said.model_dump(exclude={"command", "time", "inputs", "job"}),
    )


def memory_of(value: object, where: str) -> int | None:
    """Bytes, from a number or a text such as 2GB. Raises UserError that begins with `where`."""
    if value is None:
        return None
    try:
        return _memory(value)
    except ValueError as e:
        raise UserError(f"{where}: {e}") from None

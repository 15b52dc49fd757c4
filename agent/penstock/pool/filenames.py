"""sbatch's patterns for the names of a job's files (`man sbatch`, "filename pattern"). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.pool.jobqueue import job_number
from penstock.pool.terms import JobTerms

__all__ = ["error_name", "input_name", "output_name"]

_PATTERN: Final = re.compile(r"%(\d*)([%AJNabjnstux])")
_NUMBERS: Final = "AJabjnst"
_WIDEST: Final = 10
_NO_TASK: Final = 4294967294  # what %a is for a job that is no task of an array


def output_name(terms: JobTerms, number: int, workdir: str, node: str, user: str) -> str:
    """Where the standard output of task `number` goes."""
    usual = "slurm-%A_%a.out" if terms.array is not None else "slurm-%j.out"
    return _absolute(terms.stdout or usual, terms, number, workdir, node, user)


def error_name(terms: JobTerms, number: int, workdir: str, node: str, user: str) -> str:
    """Where its standard error goes; "": where its output does."""
    return _absolute(terms.stderr, terms, number, workdir, node, user) if terms.stderr else ""


def input_name(terms: JobTerms, number: int, workdir: str, node: str, user: str) -> str:
    """Where its standard input comes from."""
    return _absolute(terms.stdin, terms, number, workdir, node, user) if terms.stdin else "/dev/null"


def _absolute(pattern: str, terms: JobTerms, number: int, workdir: str, node: str, user: str) -> str:
    name = _filled(pattern, terms, number, node, user)
    return name if name.startswith("/") else f"{workdir}/{name}"


def _filled(pattern: str, terms: JobTerms, number: int, node: str, user: str) -> str:
    if "\\" in pattern:  # it is taken as it is, then
        return pattern.replace("\\", "")
    job, array = job_number(number, terms), terms.array
    values: Mapping[str, str] = {
        "%": "%",
        "A": str(job if array is None else job - array.position),
        "J": str(job),
        "N": node.partition(".")[0],
        "a": str(_NO_TASK if array is None else array.index),
        "b": str((_NO_TASK if array is None else array.index) % 10),
        "j": str(job),
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": user,
        "x": terms.name,
    }

    def fill(match: re.Match[str]) -> str:
        value = values[match[2]]
        width = min(int(match[1] or "0"), _WIDEST)
        return value.zfill(width) if match[2] in _NUMBERS and value.isdigit() else value

    return _PATTERN.sub(fill, pattern)

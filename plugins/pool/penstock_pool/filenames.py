"""sbatch's patterns for the names of a job's files (`man sbatch`, "filename pattern"). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.slurm.name_patterns import NO_TASK, filled
from penstock_pool.jobqueue import job_number
from penstock_pool.terms import JobTerms

__all__ = ["error_name", "input_name", "output_name"]


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
    job, array = job_number(number, terms), terms.array
    index = NO_TASK if array is None else str(array.index)
    values: Mapping[str, str] = {
        "%": "%",
        "A": str(job if array is None else job - array.position),
        "J": str(job),
        "N": node.partition(".")[0],
        "a": index,
        "b": str(int(index) % 10),
        "j": str(job),
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": user,
        "x": terms.name,
    }
    return filled(pattern, values)

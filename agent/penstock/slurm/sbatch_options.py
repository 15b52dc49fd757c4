"""sbatch's options where what is wrong is refused: in a stage's words and a script's `#SBATCH` lines; and those of a
job that is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.api import JobSpec
from penstock.errors import UserError
from penstock.slurm.option_table import VALUE
from penstock.slurm.option_words import options_in, script_directives

__all__ = ["DECIDED", "Option", "asked_words", "option_word", "read_options", "restricts_export", "script_words"]

Option = tuple[str, str | None]
"""An option of sbatch by its full name, and its value; None where it has none."""

DECIDED: Final = frozenset({"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT", "SLURM_CLUSTERS"})
"""Variables that sbatch itself reads, and which are not handed on to it: by these it would wait for the job, make other
jobs of it or send it elsewhere."""


def option_word(option: Option) -> str:
    """The option as one word of a command line."""
    name, value = option
    return f"--{name}" if value is None else f"--{name}={value}"


def read_options(words: Sequence[str]) -> list[Option]:
    """The options that these words are, in their order. Raises UserError for a word that is none, and for an option
    that lacks its value."""
    found: list[Option] = []
    left = list(words)
    for given, name, kind, value, _words in options_in(left):
        if kind is None and not given.startswith("--"):
            raise UserError(f"{given} is no option of sbatch")
        if kind == VALUE and value is None:
            raise UserError(f"{given} needs a value")
        found.append((name, value))
    if left:
        raise UserError(f"{left[0][:60]!r} is no option of sbatch (they begin with -)")
    return found


def script_words(lines: Iterable[str]) -> list[tuple[int, list[str]]]:
    """The words of a script's `#SBATCH` lines, with the lines' numbers. Raises UserError for a line with an open
    quote."""
    found = []
    for number, words in script_directives(lines):
        if words is None:
            raise UserError(f"line {number}: #SBATCH cannot be read: a quote is not closed")
        found.append((number, words))
    return found


def restricts_export(options: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether not all of sbatch's environment reaches the job, by these options or the variable that does for one."""
    said = dict(read_options(options))
    value = said.get("export") if "export" in said else environment.get("SBATCH_EXPORT", "ALL")
    return "export-file" in said or (value or "").split(",")[0].upper() != "ALL"


_ASKED: Final = {
    "memory": "mem",
    "gpus": "gpus",
    "gres": "gres",
    "ntasks": "ntasks",
    "cpus": "cpus-per-task",
    "constraint": "constraint",
    "output": "output",
    "error": "error",
    "array": "array",
    "licenses": "licenses",
}


def asked_words(spec: JobSpec) -> list[str]:
    """sbatch's options for what a job asks for besides nodes, time and where it runs; `spec.options` in front."""
    named = [f"--{option}={value}" for name, option in _ASKED.items() if (value := getattr(spec, name))]
    return [*spec.options, *named]

"""sbatch's options where what is wrong is refused: in a stage's words and a script's `#SBATCH` lines; and those of a
job that is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.api import JobSpec
from penstock.errors import UserError
from penstock.slurm.option_table import VALUE, VARIABLES, column
from penstock.slurm.option_words import exports_all, options_in, script_directives
from penstock.slurm.parse import format_minutes

__all__ = [
    "ASKED",
    "DECIDED",
    "Option",
    "option_word",
    "read_options",
    "restricts_export",
    "script_words",
    "spec_words",
]

Option = tuple[str, str | None]
"""An option of sbatch by its full name, and its value; None where it has none."""

DECIDED: Final = frozenset(name for name, option in VARIABLES.items() if option in ("array", "clusters", "wait"))
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
    return "export-file" in said or not exports_all((value or "").split(","))


ASKED: Final = ("memory", "gpus", "gres", "ntasks", "cpus", "constraint", "output", "error", "array", "licenses")
"""What of a job is asked for as it stands in a stage, in the order in which sbatch is told."""
_AS_NAMED: Final = ("dependency", "begin", "reservation", "comment")
_OPTIONS: Final = {key: option for option, key in column("stage").items()}


def spec_words(spec: JobSpec, workdir: str | None) -> list[str]:
    """sbatch's options for a job; `spec.options` in front, so that all others count before them."""
    nodes = f"{int(spec.nodes)}" if spec.min_nodes is None else f"{int(spec.min_nodes)}-{int(spec.nodes)}"
    words = [*spec.options, *(f"--{_OPTIONS[key]}={value}" for key in ASKED if (value := getattr(spec, key)))]
    words += [f"--job-name={spec.name}", f"--nodes={nodes}", f"--time={format_minutes(spec.time_limit)}"]
    words += [f"--{key}={value}" for key in ("partition", "account", "qos") if (value := getattr(spec, key))]
    # A stage may write a job script of another system, whose #PBS lines sbatch would take for its own.
    words += ["--requeue" if spec.requeue else "--no-requeue", "--kill-on-invalid-dep=no", "--ignore-pbs"]
    words += [f"--chdir={workdir}"] if workdir else []
    words += ["--hold"] if spec.hold else []
    words += [f"--{key}={value}" for key in _AS_NAMED if (value := getattr(spec, key))]
    return words + [f"--{key}={','.join(names)}" for key in ("nodelist", "exclude") if (names := getattr(spec, key))]

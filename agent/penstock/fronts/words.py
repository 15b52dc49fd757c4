"""The words of sbatch's command line and of a script's `#SBATCH` lines, as far as the front program has to know. Pure.

`penstock.sbatch.options` reads the same in full; a test holds the two together.
"""

from __future__ import annotations

from penstock.slurm.option_table import KINDS, LETTERS, NO_VALUE, VALUE, head_lines, meant, script_directives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Protocol

    class Words(Protocol):
        """What names a job, as this module or `penstock.sbatch.options` reads it."""

        @property
        def script(self) -> str | None: ...
        def has(self, name: str, /) -> bool: ...
        def value(self, name: str) -> str | None: ...


__all__ = ["SbatchWords", "job_name", "named", "names_penstock", "read_words", "script_words", "stage_name"]

_OURS = "--penstock-"


class SbatchWords:
    """`options`: all words before the script; `rest`: the script (a `--` before it) and its arguments; `found`: names
    and values of the options; `ours`: some are Penstock's own; `several`: a job of several components."""

    def __init__(self) -> None:
        self.options: list[str] = []
        self.rest: list[str] = []
        self.found: list[tuple[str, str | None]] = []
        self.ours = False
        self.several = False

    @property
    def script(self) -> str | None:
        """The script as it was named; None when it comes from standard input or `--wrap`."""
        words = self.rest[1:] if self.rest[:1] == ["--"] else self.rest
        return words[0] if words else None

    def has(self, *names: str) -> bool:
        """Whether any of the options of these full names is there."""
        return any(name in names for name, _value in self.found)

    def value(self, name: str) -> str | None:
        """The value that counts, which is the last one."""
        return next((value for found, value in reversed(self.found) if found == name), None)

    def words(self, *added: str) -> list[str]:
        """sbatch's arguments, with these options after those that were given, so that they win."""
        return [*self.options, *added, *self.rest]


def read_words(words: Sequence[str]) -> SbatchWords:
    """The words after sbatch, as getopt_long reads them there."""
    line, left = SbatchWords(), list(words)
    while left:
        word = left[0]
        if word == "--" or word == "-" or not word.startswith("-"):
            if word != ":":
                line.rest = left
                break
            line.several = True
            line.options.append(left.pop(0))
        elif word.startswith("--"):
            _long(line, left)
        else:
            _short(line, left)
    return line


def _long(line: SbatchWords, left: list[str]) -> None:
    word = left.pop(0)
    line.options.append(word)
    if word.startswith(_OURS):
        line.ours = True
        return
    given, equals, value = word[2:].partition("=")
    name, kind = meant(given)
    if equals:
        line.found.append((name, value))
    elif kind == VALUE and left:
        line.options.append(left.pop(0))
        line.found.append((name, line.options[-1]))
    else:
        line.found.append((name, None))


def _short(line: SbatchWords, left: list[str]) -> None:
    word = left.pop(0)
    line.options.append(word)
    for place, letter in enumerate(word[1:], start=1):
        name = LETTERS.get(letter, letter)
        kind = KINDS.get(name, NO_VALUE)
        if kind == NO_VALUE:
            line.found.append((name, None))
            continue
        value: str | None = word[place + 1 :] or None
        if kind == VALUE and value is None and left:
            value = left.pop(0)
            line.options.append(value)
        line.found.append((name, value))
        return


def script_words(lines: Iterable[str]) -> SbatchWords:
    """The options of a script's `#SBATCH` lines, as far as they can be read; sbatch itself will judge them."""
    return read_words([word for _number, words in script_directives(lines) for word in words or ()])


def names_penstock(lines: Iterable[str]) -> bool:
    """Whether a script has `#PENSTOCK` lines."""
    return any(text.startswith("#PENSTOCK") for _number, text in head_lines(lines))


def job_name(line: Words, script: Words, environ: Mapping[str, str]) -> str:
    """What Slurm calls the job."""
    return named(line, script, environ) or (_last(line.script) if line.script else _unnamed(line))


def stage_name(line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> str:
    """What it is called as a stage, where nobody says so."""
    found = named(line, script, environ) or (_stem(_last(line.script)) if line.script else None)
    return found or job_name(line, script, environ)


def named(line: Words, script: Words, environ: Mapping[str, str]) -> str | None:
    """The name that somebody has given it."""
    return line.value("job-name") or environ.get("SBATCH_JOB_NAME") or script.value("job-name")


def _unnamed(line: Words) -> str:
    return "wrap" if line.has("wrap") else "sbatch"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _stem(name: str) -> str:
    stem, dot, _suffix = name.rpartition(".")
    return stem if dot and stem else name

"""Which words of an sbatch command line are options, which is the script, and which are ours. Pure.

Read as getopt_long reads them in sbatch: long options with `=` or the next word, shortened to an unambiguous
beginning; bundles of short ones; the first word that is no option is the script, and all after it is the script's own.
Options that begin with `--penstock-` are ours: no option of sbatch does, and none can be shortened to it. All other
words are kept as they were given, in their order.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import UserError
from penstock.slurm.sbatch_options import KINDS, LETTERS, NO_VALUE, VALUE, SbatchOption, meant

__all__ = ["OURS", "CommandLine", "SbatchOption", "parse"]

OURS: Final = (
    "workflow", "stage", "after", "checkpoint", "elastic", "expect", "malleable", "moldable", "more", "strategy"
)  # fmt: skip
_PREFIX: Final = "--penstock-"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`options`: all words before the script but ours; `rest`: the script (a `--` before it) and its arguments.

    `found` are sbatch's options as far as they are known, `ours` ours by key. `several`: the words describe a job of
    several components, between which stands a ":".
    """

    options: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    found: tuple[SbatchOption, ...] = ()
    ours: dict[str, str] = field(default_factory=dict)
    several: bool = False

    @property
    def script(self) -> str | None:
        """The script as it was named; None when it comes from standard input or `--wrap`."""
        words = self.rest[1:] if self.rest[:1] == ("--",) else self.rest
        return words[0] if words else None

    def has(self, name: str) -> bool:
        """Whether the option of this full name is there."""
        return any(option.name == name for option in self.found)

    def value(self, name: str) -> str | None:
        """The value that counts, which is the last one."""
        return next((option.value for option in reversed(self.found) if option.name == name), None)

    def words(self, *added: str) -> tuple[str, ...]:
        """sbatch's arguments, with these options after those that were given, so that they win."""
        return (*self.options, *added, *self.rest)

    def without(self, name: str) -> CommandLine:
        """The same without an option that takes no value."""
        again = _Reader(self.options, leave_out=name)
        again.read()
        return CommandLine(tuple(again.options), self.rest, tuple(again.found), self.ours, self.several)


def parse(words: Sequence[str]) -> CommandLine:
    """Split the words after `penstock sbatch`. Raises UserError for an option of ours that is wrong."""
    reader = _Reader(words)
    reader.read()
    return CommandLine(
        tuple(reader.options), tuple(reader.rest), tuple(reader.found), reader.ours, several=reader.several
    )


class _Reader:
    def __init__(self, words: Sequence[str], leave_out: str | None = None) -> None:
        self._words = list(words)
        self._leave_out = leave_out
        self.options: list[str] = []
        self.rest: list[str] = []
        self.found: list[SbatchOption] = []
        self.ours: dict[str, str] = {}
        self.several = False

    def read(self) -> None:
        while self._words:
            word = self._words[0]
            if word == ":":
                self.several = True
                self.options.append(self._words.pop(0))
            elif word == "--" or not word.startswith("-") or word == "-":
                self.rest, self._words = self._words, []
            elif word.startswith(_PREFIX):
                self._ours(self._words.pop(0))
            elif word.startswith("--"):
                self._long(self._words.pop(0))
            else:
                self._short(self._words.pop(0))

    def _ours(self, word: str) -> None:
        key, equals, value = word.removeprefix(_PREFIX).partition("=")
        if key not in OURS:
            near = difflib.get_close_matches(key, OURS, 1)
            hint = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
            raise UserError(f"{_PREFIX}{key} is not an option (there are: {', '.join(OURS)}){hint}")
        if not equals:
            if not self._words:
                raise UserError(f"{_PREFIX}{key} needs a value: {_PREFIX}{key}=...")
            value = self._words.pop(0)
        if key in self.ours:
            raise UserError(f"{_PREFIX}{key} is given twice")
        self.ours[key] = value

    def _long(self, word: str) -> None:
        given, equals, value = word[2:].partition("=")
        kept = [word]
        name, kind = meant(given)
        if equals:
            option = SbatchOption(name, value)
        elif kind == VALUE and self._words:
            kept.append(self._words.pop(0))
            option = SbatchOption(name, kept[1])
        else:
            option = SbatchOption(name)
        if name != self._leave_out:
            self.options += kept
            self.found.append(option)

    def _short(self, word: str) -> None:
        kept = "-"
        for place, letter in enumerate(word[1:], start=1):
            name = LETTERS.get(letter, letter)
            kind = KINDS.get(name, NO_VALUE)
            if kind == NO_VALUE:
                if name != self._leave_out:
                    self.found.append(SbatchOption(name))
                    kept += letter
                continue
            attached = word[place + 1 :]
            more = [self._words.pop(0)] if kind == VALUE and not attached and self._words else []
            self.found.append(SbatchOption(name, attached or (more[0] if more else None)))
            self.options += [kept + word[place:], *more]
            return
        if kept != "-":
            self.options.append(kept)

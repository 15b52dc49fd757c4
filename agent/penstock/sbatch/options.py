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

__all__ = ["OURS", "CommandLine", "SbatchOption", "parse"]

OURS: Final = ("workflow", "stage", "after", "expect", "malleable", "strategy")
_PREFIX: Final = "--penstock-"

# sbatch's options from 22.05 to 26.05 (slurm_opt.c): name[/short letter]. What a newer release adds is taken for one
# whose value, if any, comes with "=".
_FLAGS: Final = (
    "consolidate-segments contiguous external help/h hold/H ignore-pbs no-requeue overcommit/O oversubscribe/s "
    "parsable quiet/Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes verbose/v version/V "
    "wait/W"
)
_WITH_VALUE_AT_WILL: Final = "exclusive get-user-env nice no-kill/k oom-kill-step propagate requeue resv-ports"
_WITH_VALUE: Final = (
    "account/A acctg-freq array/a autocomplete batch bb bbf begin/b chdir/D cluster cluster-constraint clusters/M "
    "comment constraint/C container container-id context core-spec/S cores-per-socket cpu-freq cpus-per-gpu "
    "cpus-per-task/c deadline delay-boot dependency/d distribution/m error/e exclude/x export export-file extra "
    "extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint "
    "input/i job-name/J kill-on-invalid-dep licenses/L mail-type mail-user mcs-label mem mem-bind mem-per-cpu "
    "mem-per-gpu mem-update mincpus network nodefile/F nodelist/w nodes/N ntasks/n ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output/o partition/p power prefer priority profile "
    "qos/q reservation resources runtime segment signal sockets-per-node switches tasks-per-node thread-spec "
    "threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap"
)
_NO, _AT_WILL, _YES = 0, 1, 2


def _tables() -> tuple[dict[str, int], dict[str, str]]:
    kinds: dict[str, int] = {}
    letters: dict[str, str] = {}
    for kind, words in ((_NO, _FLAGS), (_AT_WILL, _WITH_VALUE_AT_WILL), (_YES, _WITH_VALUE)):
        for word in words.split():
            name, _, letter = word.partition("/")
            kinds[name] = kind
            if letter:
                letters[letter] = name
    return kinds, letters


_KINDS, _LETTERS = _tables()


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """An option of sbatch by its full name; `value` None where it has none (yet: sbatch will complain)."""

    name: str
    value: str | None = None


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
        name, kind = _meant(given)
        if equals:
            option = SbatchOption(name, value)
        elif kind == _YES and self._words:
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
            name = _LETTERS.get(letter, letter)
            kind = _KINDS.get(name, _NO)
            if kind == _NO:
                if name != self._leave_out:
                    self.found.append(SbatchOption(name))
                    kept += letter
                continue
            attached = word[place + 1 :]
            more = [self._words.pop(0)] if kind == _YES and not attached and self._words else []
            self.found.append(SbatchOption(name, attached or (more[0] if more else None)))
            self.options += [kept + word[place:], *more]
            return
        if kept != "-":
            self.options.append(kept)


def _meant(given: str) -> tuple[str, int]:
    """The full name of a long option, and whether it takes a value."""
    if given in _KINDS:
        return given, _KINDS[given]
    fitting = [name for name in _KINDS if given and name.startswith(given)]
    if len(fitting) == 1:
        return fitting[0], _KINDS[fitting[0]]
    kinds = {_KINDS[name] for name in fitting}
    return given, kinds.pop() if len(kinds) == 1 else _NO

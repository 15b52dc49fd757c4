"""sbatch's options: which there are, which take a value, and how they stand in a script. Pure.

Nothing is imported here: the front programs, which start for every command, read these too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "AT_WILL",
    "KINDS",
    "LETTERS",
    "NO_VALUE",
    "VALUE",
    "head_lines",
    "meant",
    "script_directives",
    "tables",
    "untranslated",
]

# sbatch's options from 22.05 to 26.05 (slurm_opt.c): name[/short letter]. What a newer release adds is taken for one
# whose value, if any, comes with "=".
_FLAGS = (
    "consolidate-segments contiguous external help/h hold/H ignore-pbs no-requeue overcommit/O oversubscribe/s "
    "parsable quiet/Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes verbose/v version/V "
    "wait/W"
)
_WITH_VALUE_AT_WILL = "exclusive get-user-env nice no-kill/k oom-kill-step propagate requeue resv-ports"
_WITH_VALUE = (
    "account/A acctg-freq array/a autocomplete batch bb bbf begin/b chdir/D cluster cluster-constraint clusters/M "
    "comment constraint/C container container-id container-type context core-spec/S cores-per-socket cpu-freq "
    "cpus-per-gpu cpus-per-task/c deadline delay-boot dependency/d distribution/m error/e exclude/x export "
    "export-file extra extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket gpus-per-task "
    "gres gres-flags hint input/i job-name/J kill-on-invalid-dep licenses/L mail-type mail-user mcs-label mem "
    "mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile/F nodelist/w nodes/N ntasks/n "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output/o partition/p "
    "power prefer priority profile qos/q reservation resources runtime segment signal sockets-per-node switches "
    "tasks-per-node thread-spec threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey "
    "wrap"
)
NO_VALUE, AT_WILL, VALUE = 0, 1, 2


def tables(flags: str, at_will: str, with_value: str) -> tuple[dict[str, int], dict[str, str]]:
    """By the full names of options whether they take a value, and the full names of the short ones, from words such as
    `hold/H`: options without a value, with one at will, and with one."""
    kinds: dict[str, int] = {}
    letters: dict[str, str] = {}
    for kind, words in ((NO_VALUE, flags), (AT_WILL, at_will), (VALUE, with_value)):
        for word in words.split():
            name, _, letter = word.partition("/")
            kinds[name] = kind
            if letter:
                letters[letter] = name
    return kinds, letters


KINDS, LETTERS = tables(_FLAGS, _WITH_VALUE_AT_WILL, _WITH_VALUE)
"""By their full names whether options take a value, and the full names of the short ones."""


def meant(given: str) -> tuple[str, int]:
    """The full name of a long option, and whether it takes a value."""
    if given in KINDS:
        return given, KINDS[given]
    fitting = [name for name in KINDS if given and name.startswith(given)]
    if len(fitting) == 1:
        return fitting[0], KINDS[fitting[0]]
    kinds = {KINDS[name] for name in fitting}
    return given, kinds.pop() if len(kinds) == 1 else NO_VALUE


_BLANKS = " \t\n\v\f\r"
_DIRECTIVES = ("#SBATCH", "#SLURM")
_TRANSLATED = ("#BSUB", "#PBS")  # by sbatch, unless it is told --ignore-pbs
_MOST_COMMANDS = 100  # as many lines that are no comments has a script at most before the last line that it translates


def head_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines of a script that may hold directives, with their numbers: all before the first that is neither empty
    nor a comment."""
    for number, line in enumerate(lines, start=1):
        text = line.strip(_BLANKS)
        if text and not text.startswith("#"):
            return
        yield number, line.rstrip("\r\n")


def script_directives(lines: Iterable[str]) -> Iterator[tuple[int, list[str] | None]]:
    """The words of a script's `#SBATCH` and `#SLURM` lines, with the lines' numbers; None for a line with an open
    quote, which sbatch refuses."""
    for number, line in head_lines(lines):
        for begin in _DIRECTIVES:
            if line.startswith(begin):
                yield number, _words(line[len(begin) :])
                break


def untranslated(lines: Iterable[str]) -> str | None:
    """What is to be said of a script with lines of another system, which sbatch would translate, wherever they stand,
    and Penstock does not; None where there are none."""
    found: dict[str, int] = {}
    commands = 0
    for number, line in enumerate(lines, start=1):
        for begin in _TRANSLATED:
            if line.startswith(begin):
                found.setdefault(begin, number)
        commands += not line.startswith("#")
        if commands > _MOST_COMMANDS:
            break
    for begin in _TRANSLATED:
        if begin in found:
            advice = "write it as an #SBATCH line, or say --ignore-pbs"
            return f"line {found[begin]}: {begin} lines are translated by sbatch and not here: {advice}"
    return None


def _words(text: str) -> list[str] | None:
    """As sbatch takes a line apart: quotes group, a backslash takes the next character as it is, # begins a comment,
    and an empty word ends it all."""
    words: list[str] = []
    word, quote = "", ""
    place = 0
    while True:
        letter = text[place : place + 1]
        if letter == "" or (letter == "#" and not quote) or (letter in _BLANKS and not quote):
            if word:
                words.append(word)
            elif place and text[place - 1] in "\"'\\":  # an empty word, and not the blank between two
                letter = ""
            word = ""
            if letter in ("", "#"):
                return None if quote else words
        elif letter == "\\":
            place += 1
            after = text[place : place + 1]
            if after and (after == " " or quote or after not in _BLANKS):
                word += after
            else:
                place -= 1  # it goes without a trace, and the blank ends the word
        elif letter == quote:
            quote = ""
        elif letter in "\"'" and not quote:
            quote = letter
        else:
            word += letter
        place += 1

"""The words of sbatch's and srun's command lines and of a script's `#SBATCH` lines, as getopt_long reads them: long
options with `=` or the next word, shortened to an unambiguous beginning; bundles of short ones. Pure.

The front programs, which start for every command, read these too: nothing is imported that takes time.
"""

from __future__ import annotations

from penstock.slurm.option_table import KINDS, LETTERS, VALUE, VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "OURS",
    "SbatchWords",
    "elsewhere",
    "exports_all",
    "given_name",
    "head_lines",
    "job_name",
    "names_penstock",
    "options_in",
    "read_words",
    "script_directives",
    "script_words",
    "stage_name",
    "untranslated",
    "value_of",
]

OURS = "--penstock-"
"""How Penstock's own options begin: no option of sbatch does, and none can be shortened to it."""
_BLANKS = " \t\n\v\f\r"
_DIRECTIVES = ("#SBATCH", "#SLURM")
_TRANSLATED = ("#BSUB", "#PBS")  # by sbatch, unless it is told --ignore-pbs
_MOST_COMMANDS = 100  # as many lines that are no comments has a script at most before the last line that it translates
_COMPONENTS = ("hetjob", "packjob")  # between the components of a job, in a script's lines


def options_in(
    left: list[str], kinds: Mapping[str, int] = KINDS, letters: Mapping[str, str] = LETTERS
) -> Iterator[tuple[str, str, int | None, str | None, list[str]]]:
    """Takes the options from the beginning of `left`, up to the first word that is none. Of each: how it was given
    (`-c`, `--cpus-per`), its full name, whether it takes a value (None: no option is known by this), its value (None:
    it has none, also where it lacks one), and the words that say it alone."""
    while left and left[0].startswith("-") and left[0] not in ("-", "--"):
        word = left.pop(0)
        if word.startswith("--"):
            given, equals, text = word.partition("=")
            name, kind = _meant(given[2:], kinds)
            value = text if equals else left.pop(0) if kind == VALUE and left else None
            yield given, name, kind, value, [word] if equals or value is None else [word, value]
            continue
        for place, letter in enumerate(word[1:], start=1):
            name = letters.get(letter, letter)
            kind = kinds.get(name)
            if not kind:
                yield f"-{letter}", name, kind, None, [f"-{letter}"]
                continue
            value = word[place + 1 :] or None
            words = [f"-{word[place:]}"]
            if kind == VALUE and value is None and left:
                value = left.pop(0)
                words.append(value)
            yield f"-{letter}", name, kind, value, words
            break


def _meant(given: str, kinds: Mapping[str, int]) -> tuple[str, int | None]:
    """The full name of a long option, and whether it takes a value."""
    if given in kinds:
        return given, kinds[given]
    fitting = [name for name in kinds if given and name.startswith(given)]
    if len(fitting) == 1:
        return fitting[0], kinds[fitting[0]]
    alike = {kinds[name] for name in fitting}
    return given, alike.pop() if len(alike) == 1 else None


class SbatchWords:
    """What follows sbatch on a command line. `options`: all words before the script but Penstock's own; `rest`: the
    script (a `--` before it) and its arguments; `found`: names and values of sbatch's options; `ours`: those of
    Penstock's own, without how they begin. `several`: a job of several components."""

    def __init__(self) -> None:
        self.options: list[str] = []
        self.rest: list[str] = []
        self.found: list[tuple[str, str | None]] = []
        self.ours: list[tuple[str, str | None]] = []
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

    def adding(self, *words: str) -> SbatchWords:
        """The same with these options, after those that were given."""
        return read_words(self.words(*words)) if words else self

    def without(self, name: str) -> SbatchWords:
        """The same without an option."""
        return read_words(self.words(), leave_out=name) if self.has(name) else self


def read_words(words: Sequence[str], leave_out: str = "") -> SbatchWords:
    """The words after sbatch, but for an option to `leave_out`."""
    line, left, read = SbatchWords(), list(words), 0
    while True:
        for given, name, _kind, value, alone in options_in(left):
            if given.startswith(OURS):
                line.ours.append((given[len(OURS) :], left.pop(0) if value is None and left else value))
            elif name != leave_out:
                line.found.append((name, value))
                line.options += alone if leave_out else words[read : len(words) - len(left)]
            read = len(words) - len(left)
        if left[:1] != [":"]:
            line.rest = left
            return line
        line.several, read = True, read + 1
        line.options.append(left.pop(0))


def script_words(lines: Iterable[str]) -> SbatchWords:
    """The options of a script's `#SBATCH` lines, as far as they can be read; sbatch itself will judge them."""
    found = read_words([word for _number, words in script_directives(lines) for word in words or ()])
    found.several = found.several or found.script in _COMPONENTS
    return found


def names_penstock(lines: Iterable[str]) -> bool:
    """Whether a script has `#PENSTOCK` lines."""
    return any(text.startswith("#PENSTOCK") for _number, text in head_lines(lines))


def job_name(line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> str:
    """What Slurm calls the job."""
    return given_name(line, script, environ) or (_last(line.script) if line.script else _unnamed(line))


def stage_name(line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> str:
    """What it is called as a stage, where nobody says so."""
    found = given_name(line, script, environ) or (_stem(_last(line.script)) if line.script else None)
    return found or job_name(line, script, environ)


def given_name(line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> str | None:
    """The name that somebody has given it."""
    return value_of("job-name", line, script, environ)


def value_of(name: str, line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> str | None:
    """The value of an option that counts: the command line's, else that of a variable, else the script's."""
    told = [value for variable, option in VARIABLES.items() if option == name and (value := environ.get(variable))]
    return line.value(name) or (told[-1] if told else script.value(name))


def exports_all(words: Sequence[str]) -> bool:
    """Whether these parts of a value of `--export` hand on the whole environment, with whatever else they say."""
    return any(word.upper() == "ALL" for word in words)


def elsewhere(line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> bool:
    """Whether the job is for another cluster, or may be."""
    named = line.has("cluster", "clusters") or script.has("cluster", "clusters")
    return named or value_of("clusters", line, script, environ) is not None


def _unnamed(line: SbatchWords) -> str:
    return "wrap" if line.has("wrap") else "sbatch"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _stem(name: str) -> str:
    stem, dot, _suffix = name.rpartition(".")
    return stem if dot and stem else name


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

"""A command's words, read as glibc's `getopt_long` does, and what an answer is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["CommandAnswer", "Option", "Through", "parse_words"]


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What the command prints and how it ends. Bytes that are no UTF-8 are surrogates (`surrogateescape`)."""

    out: str
    err: str = ""
    code: int = 0


class Through(Exception):
    """The real command has to run; says why. `ids`: the jobs that the look lacks, where a newer one might have them."""

    def __init__(self, why: str, ids: frozenset[int] = frozenset()) -> None:
        super().__init__(why)
        self.ids = ids


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it was given: the name it stands for, and its value; None where it has none."""

    name: str
    value: str | None = None


def parse_words(
    words: Sequence[str], letters: str, longs: Mapping[str, tuple[str, int]]
) -> tuple[list[Option], list[str]]:
    """The options in their order, and the other words.

    `letters` is getopt's ("ab:c::"), and a letter's option has its name. `longs` gives for each long option the name
    that it stands for and whether it takes a value: 0 no, 1 yes, 2 one that is joined to it by `=`. Raises `Through`
    for what getopt would complain about, and for whatever it would read otherwise where POSIXLY_CORRECT is set.
    """
    kinds = _kinds(letters)
    options: list[Option] = []
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            others += rest
        elif word.startswith("--"):
            options.append(_long(word[2:], longs, rest))
        elif word.startswith("-") and len(word) > 1:
            options += _short(word[1:], kinds, rest)
        else:
            others.append(word)
    return options, others


def _kinds(letters: str) -> dict[str, int]:
    kinds: dict[str, int] = {}
    last = ""
    for letter in letters:
        if letter == ":":
            kinds[last] += 1
        else:
            kinds[letter], last = 0, letter
    return kinds


def _long(text: str, longs: Mapping[str, tuple[str, int]], rest: Iterator[str]) -> Option:
    given, joined, value = text.partition("=")
    if given in longs:
        name, kind = longs[given]
    else:  # abbreviated: not ambiguous while all that it may be are one option
        found = {longs[name] for name in longs if name.startswith(given)}
        if len(found) != 1:
            raise Through(f"--{given} is not, or not only, the beginning of one option")
        ((name, kind),) = found
    if kind == 0 and joined:
        raise Through(f"--{given} takes no value")
    if kind == 1 and not joined:
        return Option(name, _next(given, rest))
    return Option(name, value if joined else None)


def _short(text: str, kinds: Mapping[str, int], rest: Iterator[str]) -> Iterator[Option]:
    for at, letter in enumerate(text):
        kind = kinds.get(letter)
        if kind is None:
            raise Through(f"-{letter} is no option")
        if kind == 0:
            yield Option(letter)
            continue
        value = text[at + 1 :]
        if kind == 1:
            yield Option(letter, value or _next(letter, rest))
        else:
            yield Option(letter, value or None)
        return


def _next(option: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise Through(f"{option} lacks its value")
    return value

"""The documentation's pages as the tests of it see them: fenced blocks, links, and the command lines in both."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from penstock.cli import cli
from places import PROJECT

DOCS = PROJECT / "docs"
GENERATED = DOCS / "reference" / "generated"

_READMES = {PROJECT / "README.md", PROJECT / "lab" / "README.md"}
PAGES = sorted(_READMES | {p for p in DOCS.rglob("*.md") if GENERATED not in p.parents})


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, the language, and its text without the indentation of the fence."""

    where: str
    language: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    lines = path.read_text(encoding="utf-8").splitlines()
    i = 0
    while i < len(lines):
        opened = re.match(r"( *)(`{3,})(\S*)", lines[i])
        if opened:
            begin, indent, fence = i, opened[1], opened[2]
            i += 1
            while lines[i].strip() != fence:
                i += 1
            text = "\n".join(line.removeprefix(indent) for line in lines[begin + 1 : i])
            yield Block(f"{path.relative_to(PROJECT)}:{begin + 1}", opened[3], text)
        i += 1


def outside_blocks(path: Path) -> str:
    """The page's text without its fenced blocks."""
    return re.sub(r"^( *)(`{3,}).*?^\1\2$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that a forge and Sphinx make of the headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w -]", "", plain).replace(" ", "-"))
    return found


def links(text: str) -> list[str]:
    """Targets of Markdown's links and pictures, without those to other sites."""
    text = re.sub(r"`[^`\n]*`", "", text)
    return [t for t in re.findall(r"\]\(<?([^)\s>]+)>?\)", text) if not re.match(r"[a-z]+:", t)]


HERE_DOCUMENT = re.compile(r"> *(\S+) <<'?(\w+)'?\n(.*?\n)\2$", re.MULTILINE | re.DOTALL)
"""A file that a shell block writes: its path and text."""

_BEFORE = re.compile(r"\w+=.*|sudo|env|eval|as-alice")
_OPERATORS = frozenset("();|&<>")


def commands_in(block: Block) -> Iterator[list[str]]:
    """The command lines of a shell block that call penstock, as words; `$(penstock env)` and what sudo runs, too."""
    text = HERE_DOCUMENT.sub("", block.text).replace("\\\n", " ")
    for line in text.splitlines():
        if block.language != "console":
            yield from _commands(line)
        elif line.startswith("$ "):
            yield from _commands(line.removeprefix("$ "))


def _commands(line: str) -> Iterator[list[str]]:
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from _commands(inner)
    split = shlex.shlex(line, posix=True, punctuation_chars=True)
    split.whitespace_split = True
    words: list[str] = []
    for word in [*split, ";"]:
        if not set(word) <= _OPERATORS:
            words.append(word)
            continue
        if word.startswith((">", "<")) and words and words[-1].isdigit():
            del words[-1]  # 2> FILE
        while words and (_BEFORE.fullmatch(words[0]) or words[0] == "-u"):
            del words[: 2 if words[0] == "-u" else 1]
        if words and words[0] == "penstock":
            yield words
        words = []


def objection(words: Sequence[str], *, whole: bool = True) -> str | None:
    """What is wrong with a command line by click's own declarations, which runs nothing; None: nothing.

    Without `whole` arguments and values may be missing, as in running text.
    """
    rest = list(words[1:])
    context = click.Context(cli, info_name="penstock")
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not rest and (command.invoke_without_command or not whole):
            return None
        if rest and rest[0] in ("--help", "-h", "--version"):
            return None
        if rest and rest[0].isupper():  # COMMAND stands for any
            return None
        if rest and rest[0].startswith("-") and "run" in command.commands:
            rest.insert(0, "run")  # as `penstock profile` does it
        try:
            name, below, rest = command.resolve_command(context, rest)
        except (click.UsageError, IndexError):
            return f"{context.command_path} has no command {(rest or ['at all'])[0]!r}"
        assert below is not None
        command, context = below, click.Context(below, info_name=name, parent=context, **below.context_settings)
    if command.name == "sbatch":  # its options are sbatch's
        return None
    try:
        values, left, order = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as e:
        return None if isinstance(e, click.BadOptionUsage) and not whole else e.format_message()
    if left:
        return f"takes no {left[0]!r}"
    for parameter in order:
        value = values.get(str(parameter.name))
        of_some = isinstance(parameter.type, click.Choice) and isinstance(value, str) and not value.isupper()
        if of_some and value not in parameter.type.choices:
            return f"{value!r} is not one of {', '.join(parameter.type.choices)}"
    for parameter in command.params if whole else ():
        if isinstance(parameter, click.Argument) and parameter.required:
            given = values.get(str(parameter.name))
            if not isinstance(given, str | tuple | list) or not given:
                return f"lacks {parameter.human_readable_name}"
    return None

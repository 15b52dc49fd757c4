"""A page for `penstock` and for each of its subcommands, made from click's own objects; so are the man pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from penstock.cli import cli
from penstock_docs.markdown import code_block, escape

__all__ = ["Command", "commands"]


@dataclass(frozen=True)
class Command:
    """A command with all commands below it: they share one page."""

    context: click.Context

    @property
    def page(self) -> str:
        """The name of the page and of the man page: `penstock-pool`."""
        return self.context.command_path.replace(" ", "-")

    @property
    def summary(self) -> str:
        """One line without a full stop."""
        return _summary(self.context.command)

    def markdown(self) -> str:
        """The page."""
        parts = [f"# {self.context.command_path}", *_body(self.context, "##")]
        if self.context.parent is None:
            parts += ["## Commands", _listed(self.context), _ROOT_NOTES]
        else:
            for below in _below(self.context):
                parts += [f"## {below.command_path}", *_body(below, "###")]
        return "\n\n".join(part for part in parts if part) + "\n"


_ROOT_NOTES = """\
The errors behind the exit codes are in [Exit codes and errors](../exit-codes.md).

## Files and environment

`$PENSTOCK_CONFIG`, `~/.config/penstock/config.yaml`, `/etc/penstock/penstock.yaml`
: The configuration: the first of these that is there.

`PENSTOCK_SECTION__KEY`
: One key of the configuration, such as `PENSTOCK_AGENT__INTERVAL=30s`."""


def commands() -> Iterator[Command]:
    """`penstock`, then its subcommands by name."""
    root = click.Context(cli, info_name="penstock")
    yield Command(root)
    for context in _below(root):
        yield Command(context)


def _below(context: click.Context) -> Iterator[click.Context]:
    """The subcommands of a group, and theirs."""
    command = context.command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is None or below.hidden:
            continue
        inner = click.Context(below, info_name=name, parent=context)
        yield inner
        if context.parent is not None:
            yield from _below(inner)


def _body(context: click.Context, mark: str) -> Iterator[str]:
    """How it is called, what it does, its options; `mark` begins the headings. On top in the order of man pages."""
    command = context.command
    usage = code_block(" ".join([context.command_path, *command.collect_usage_pieces(context)]))
    if mark == "##":
        yield f"{mark} Synopsis\n\n{usage}\n\n{mark} Description"
    else:
        yield usage
    yield _help(command.help or "")
    records = [record for record in (_record(p, context) for p in command.get_params(context)) if record]
    if records:
        yield f"{mark} Options\n\n" + "\n\n".join(records)
    formatter = click.HelpFormatter(width=100)
    command.format_epilog(context, formatter)
    if more := formatter.getvalue().strip("\n"):
        yield code_block(inspect.cleandoc(more))


def _record(parameter: click.Parameter, context: click.Context) -> str | None:
    """One option as an entry of a definition list; arguments are in the synopsis, unless they say more."""
    record = parameter.get_help_record(context)
    if record is None or not record[1]:
        return None
    names, meaning = record
    return f"`{names}`\n: {escape(' '.join(meaning.split()))}"


def _listed(context: click.Context) -> str:
    return "\n\n".join(
        f"[`{below.command_path}`]({Command(below).page}.md)\n: {escape(_summary(below.command))}"
        for below in _below(context)
    )


def _summary(command: click.Command) -> str:
    first = inspect.cleandoc(command.help or "").split("\n\n")[0].split("\f")[0]
    sentence = re.split(r"(?<=[.:])\s", " ".join(first.split()))[0]
    return sentence.rstrip(".:")


def _help(text: str) -> str:
    """click's help text: paragraphs, and blocks after `\\b` whose lines stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\f")[0].split("\n\n")
    return "\n\n".join(
        code_block(paragraph.lstrip().removeprefix("\b").strip("\n"))
        if paragraph.lstrip().startswith("\b")
        else escape(" ".join(paragraph.split()))
        for paragraph in paragraphs
    )

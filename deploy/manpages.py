"""Man pages of every command, written from the commands themselves: `python deploy/manpages.py FOLDER`.

One page a command, section 1, as `git` does it: `penstock cluster up` is in penstock-cluster-up.1. Dates come from
SOURCE_DATE_EPOCH where it is set, so that two builds of one source give the same bytes.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from man_examples import EXAMPLES
from penstock import __version__
from penstock.errors import EXIT_CODES

__all__ = ["pages", "write"]

_FILES = (
    ("/etc/penstock/penstock.yaml", "The configuration of a site; `penstock config show` prints all keys."),
    ("$XDG_CONFIG_HOME/penstock/config.yaml", "The configuration of a user, which counts before it."),
    ("/var/lib/penstock", "State of the agent of a site."),
    ("$XDG_STATE_HOME/penstock", "State of the agent of a user."),
)
_ENVIRONMENT = (
    ("PENSTOCK_CONFIG", "The configuration file, before all others."),
    ("PENSTOCK_SECTION__KEY", "One key of the configuration, such as PENSTOCK_AGENT__INTERVAL=30s."),
    ("SLURM_CONF", "Where Slurm's configuration is not in its usual place."),
)


def pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """(file name, text in troff) of a command and of all below it that are not hidden."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    children = _children(command, context)
    yield f"{_dashed(context)}.1", _page(context, children)
    for child_name, child in children:
        yield from pages(child, child_name, context)


def write(folder: Path) -> list[Path]:
    """Write the page of every command into this folder, which is made if it is not there."""
    from penstock.cli import cli

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages(cli, "penstock"):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _children(command: click.Command, context: click.Context) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return []
    found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def _dashed(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, children: list[tuple[str, click.Command]]) -> str:
    command, name = context.command, _dashed(context)
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    lines = [
        f'.TH "{_text(name.upper())}" "1" "{date}" "penstock {__version__}" "Penstock"',
        # Options and paths are not to be broken or stretched.
        ".ad l",
        ".nh",
        ".SH NAME",
        f"{_text(name)} \\- {_text(_summary(command))}",
        ".SH SYNOPSIS",
        f"\\fB{_text(context.command_path)}\\fR {_text(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    lines += _section("OPTIONS", [record for record in records if record is not None])
    lines += _section("COMMANDS", [(child_name, _summary(child)) for child_name, child in children])
    lines += _section("EXAMPLES", EXAMPLES.get(context.command_path.partition(" ")[2], ()))
    if context.parent is None:
        lines += _section("EXIT STATUS", [(str(code), meaning) for code, meaning in EXIT_CODES.items()])
        lines += _section("ENVIRONMENT", _ENVIRONMENT)
        lines += _section("FILES", _FILES)
    near = [_dashed(context.parent)] if context.parent is not None else []
    near += [f"{name}-{child_name}" for child_name, _child in children]
    if near:
        lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_text(page)}\\fR(1)" for page in near)]
    return "\n".join(lines) + "\n"


def _summary(command: click.Command) -> str:
    """The first sentence, without its stop."""
    return command.get_short_help_str(limit=1000).removesuffix(".")


def _section(title: str, entries: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> list[str]:
    if not entries:
        return []
    lines = [f".SH {title}"]
    for term, meaning in entries:
        lines += [".TP", f"\\fB{_text(term)}\\fR", *_paragraphs(meaning, apart=".IP")]
    return lines


def _paragraphs(text: str, apart: str = ".PP") -> list[str]:
    """Blank lines divide paragraphs; one that begins with \\b, click's sign for it, keeps its lines."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text.split("\f")[0]).split("\n\n"):
        if not paragraph.strip():
            continue
        if lines:
            lines.append(apart)
        if paragraph.startswith("\b"):
            lines += [".nf", *map(_line, paragraph.removeprefix("\b").strip("\n").split("\n")), ".fi"]
        else:
            lines.append(_line(" ".join(paragraph.split())))
    return lines


def _line(text: str) -> str:
    """A line of text: a dot or a quote at its begin would make it a request to troff."""
    line = _text(text)
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python deploy/manpages.py FOLDER")
    write(Path(sys.argv[1]))

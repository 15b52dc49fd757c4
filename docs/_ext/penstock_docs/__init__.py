"""The parts of the documentation site that are made from the program, and its equations as MathML.

Before Sphinx looks for pages, `reference/generated/` is written anew from the configuration's models, the answers of
--json, the catalogue of metrics, click's commands, the tree of errors and the docstrings. The folder is not under
version control.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from sphinx.util.matching import patfilter

from penstock_docs import commands, mathml, python, tables

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

__all__ = ["man_pages", "pages", "setup"]

FOLDER = "reference/generated"
"""Where the pages lie, relative to the documentation's folder."""


def pages() -> Iterator[tuple[str, str]]:
    """Every generated page: its name below `FOLDER` without `.md`, and its Markdown."""
    yield "configuration", tables.configuration()
    yield "metrics", tables.metrics()
    yield "exit-codes", tables.exit_codes()
    yield "json", tables.answers()
    yield "plug-ins", python.plug_ins()
    yield "words", python.words()
    yield "dmr", python.dmr_api()
    for command in commands.commands():
        yield f"commands/{command.page}", command.markdown()


def man_pages() -> list[tuple[str, str, str, list[str], int]]:
    """The value of Sphinx's `man_pages`: one page in section 1 for `penstock` and for each of its subcommands."""
    return [
        (f"{FOLDER}/commands/{command.page}", command.page, command.summary, [], 1) for command in commands.commands()
    ]


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes the pages into a folder that holds nothing else, leaving alone what has not changed."""
    wanted = {folder / f"{name}.md": text for name, text in texts.items()}
    for path in folder.rglob("*.md"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _generate(app: Sphinx, config: Config) -> None:
    write(Path(app.srcdir) / FOLDER, dict(pages()))


def _drop_empty_patterns(app: Sphinx, docname: str, source: list[str]) -> None:
    """Takes out of the lists of pages each pattern that matches no page, about which Sphinx would warn."""
    pages = app.project.docnames
    source[0] = re.sub(
        r"^[\w/-]+\*\n",
        lambda line: line[0] if patfilter(pages, str(PurePosixPath(docname).parent / line[0].strip())) else "",
        source[0],
        flags=re.MULTILINE,
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.connect("config-inited", _generate)
    app.connect("source-read", _drop_empty_patterns)
    mathml.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Text of docstrings and help pages as Markdown: what is in backticks stays code, everything else stays text."""

from __future__ import annotations

import ast
import re

__all__ = ["cell", "code_block", "escape", "prose"]

_SPECIAL = re.compile(r"([*_<>$\[\]|~])")
_SPAN = re.compile(r"(`[^`]+`)")
_ITEM = re.compile(r"\s*- ")
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
_ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)$")


def escape(text: str) -> str:
    """Text that Markdown shows as it stands, but for what is in backticks."""
    parts = _SPAN.split(text)
    return "".join(part if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def cell(text: str) -> str:
    """The same for one cell of a table."""
    parts = _SPAN.split(" ".join(text.split()))
    return "".join(part.replace("|", r"\|") if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def code_block(text: str, language: str = "text") -> str:
    """A fenced block, with a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def prose(text: str) -> str:
    """A cleaned docstring: paragraphs, lists, blocks indented by four as code, and Google's sections as lists."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if _SECTION.match(lines[0]):
            out.append(_section(lines))
        elif lines[0].startswith("    "):
            # Neighbouring blocks of code are one, with the blank line that was between them.
            code = "\n".join(line.removeprefix("    ") for line in lines)
            if out and out[-1].startswith("    "):
                out[-1] += "\n\n    " + code.replace("\n", "\n    ")
            else:
                out.append("    " + code.replace("\n", "\n    "))
        else:
            out.append("\n".join(_line(line) for line in lines))
    return "\n\n".join(_fenced(part) for part in out)


def _line(line: str) -> str:
    text = escape(line)
    return text if _ITEM.match(line) else re.sub(r"^(\s*)([#+>=-])", r"\1\\\2", text)


def _fenced(part: str) -> str:
    if not part.startswith("    "):
        return part
    code = "\n".join(line.removeprefix("    ") for line in part.split("\n"))
    return code_block(code, "python" if _is_python(code) else "text")


def _is_python(code: str) -> bool:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    # A line of words may be valid Python as well; a program does something.
    kinds = (ast.Assign, ast.Call, ast.ClassDef, ast.FunctionDef, ast.ImportFrom)
    return any(isinstance(node, kinds) for node in ast.walk(tree))


def _section(lines: list[str]) -> str:
    entries: list[str] = []
    for line in lines[1:]:
        if entry := _ENTRY.match(line):
            entries.append(f"- `{entry[1]}`: {escape(entry[2])}")
        elif entries:
            entries[-1] += " " + escape(line.strip())
        else:
            entries.append("- " + escape(line.strip()))
    return f"*{lines[0].removesuffix(':')}*\n\n" + "\n".join(entries)

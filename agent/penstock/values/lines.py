"""Lines of scripts, of files with a line for each thing, and of what commands print. Pure; the front programs, which
start for every command, read it too."""

__all__ = ["split_lines"]


def split_lines(text: str) -> list[str]:
    """The lines of a text as sbatch, shells and JSON find them: one ends at a line feed, and at nothing else that
    `str.splitlines` takes for an end (form feeds, U+2028 ...)."""
    return text.removesuffix("\n").split("\n") if text else []

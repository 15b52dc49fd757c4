"""A job script as sbatch finds it; and scripts that come through a pipe, which can be read once: they are read, and put
back for sbatch to read, as often as it is tried.

`cat s.sh | sbatch`, `... | sbatch /dev/stdin`, `sbatch <(cat s.sh)`, which names /dev/fd/63, and a pipe with a name.
"""

from __future__ import annotations

import os
import stat

from penstock.fronts.programs.process import signal
from penstock.slurm.option_words import job_name
from penstock.values.lines import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.slurm.option_words import SbatchWords

__all__ = ["PipedScript", "order_of", "script_lines", "script_path", "take_in"]

_LONGEST_HEAD = 1_000_000  # characters of a script that are looked through for directives
_PATIENCE = 60  # s until who puts a named pipe's text back gives up: sbatch has not opened it


class PipedScript:
    """What came, and the `descriptor` of this process that has it now; None: a pipe with a name of its own."""

    def __init__(self, content: bytes, descriptor: int | None) -> None:
        self.content = content
        self.descriptor = descriptor

    @property
    def lines(self) -> list[str]:
        """Its lines, as far as they are text."""
        return split_lines(self.content.decode(errors="replace"))

    @property
    def passed_on(self) -> tuple[int, ...]:
        """The descriptors that sbatch has to find."""
        return () if self.descriptor is None else (self.descriptor,)


def take_in(script: str | None, folder: str | None = None) -> PipedScript | None:
    """Read the script that sbatch is given by this name (None: standard input), so that sbatch can read it still.

    None where it is no pipe: a file can be read as often as one likes; and where it cannot be read, which sbatch will
    say better.
    """
    try:
        if script is None:
            return _own(0)
        number = _descriptor(script)
        path = script if number is not None else script_path(script, folder)
        mode = os.stat(path).st_mode
        if number is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return _own(number)
        if number is None and stat.S_ISFIFO(mode):
            with open(path, "rb") as file:
                content = file.read()
            _feed(path, content)
            return PipedScript(content, None)
    except OSError:
        pass
    return None


def _descriptor(script: str) -> int | None:
    """The descriptor of this process that a path stands for."""
    if script == "/dev/stdin":
        return 0
    for folder in ("/dev/fd/", "/proc/self/fd/"):
        number = script[len(folder) :]
        if script.startswith(folder) and number.isascii() and number.isdigit() and len(number) < 10:
            return int(number)
    return None


def _own(descriptor: int) -> PipedScript:
    """Read a descriptor of this process to its end, and put a file of the same content in its place."""
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        content = stream.read()
    memory = os.memfd_create("script")
    with os.fdopen(memory, "wb", closefd=True) as file:
        file.write(content)
        file.flush()
        os.lseek(memory, 0, os.SEEK_SET)
        os.dup2(memory, descriptor, inheritable=True)
    return PipedScript(content, descriptor)


def _feed(path: str, content: bytes) -> None:
    """Have a process of its own write this into a named pipe as soon as somebody reads it."""
    if os.fork() > 0:
        return
    try:
        signal.alarm(_PATIENCE)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # who waits for the end of our output does not wait for this
            os.dup2(nothing, stream)
        with open(path, "wb") as file:
            file.write(content)
    finally:
        os._exit(0)


def script_lines(name: str, folder: str | None = None) -> list[str]:
    """The beginning of a script, found as sbatch finds it: where it is named, else on PATH. Empty when it cannot be
    read, which sbatch will say better."""
    try:
        with open(script_path(name, folder), encoding="utf-8", errors="replace", newline="\n") as file:
            return split_lines(file.read(_LONGEST_HEAD))
    except OSError:
        return []


def script_path(name: str, folder: str | None = None) -> str:
    """Where sbatch finds a script of this name, if there is one."""
    here = os.path.join(folder or ".", name)
    if "/" in name or os.path.isfile(here):
        return here
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = os.path.join(place, name)
        if not os.path.isdir(found) and os.access(found, os.R_OK):
            return found
    return name


def order_of(
    words: Sequence[str],
    line: SbatchWords,
    script: SbatchWords,
    piped: PipedScript | None,
    environ: Mapping[str, str],
    workdir: str | None = None,
    stdin: bytes | None = None,
) -> dict[str, object]:
    """How a job can be submitted again (`penstock.workflow.state.Order`), as JSON-able values: `line`, submitted with
    these `words`. What came through a pipe comes from standard input then."""
    content = stdin if piped is None else piped.content
    if piped is not None and line.script is not None:
        place = len(words) - len(line.rest) + (line.rest[:1] == ["--"])
        named = line.has("job-name") or script.has("job-name")
        called = [] if named else [f"--job-name={job_name(line, script, environ)}"]
        words = [*called, *words[:place], "/dev/stdin", *words[place + 1 :]]
    return {
        "words": list(words),
        "workdir": workdir or os.getcwd(),
        "script": None if content is None else content.decode(errors="replace"),
    }

"""The short way of `penstock sbatch`: what needs no more than sbatch is submitted as by the front program of sbatch."""

from __future__ import annotations

import os
import sys

from penstock.fronts.programs.known import known_settings
from penstock.fronts.programs.path import Refused, beheaded, find
from penstock.fronts.programs.process import end_as, first_environment
from penstock.fronts.programs.sbatch import ONLY_SAYS, read_script, submit_plain
from penstock.slurm.option_words import read_words, stage_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["submit_directly"]

_NOT_READ = 141  # whoever read the output has gone


def submit_directly(words: Sequence[str], record: Callable[[str, bool], object]) -> None:
    """Submit a job with these words after sbatch, and end; return where there is more to do than that, and nothing is
    done. `record(stage, quiet)` writes down afterwards, in a process of its own, that it was submitted."""
    environ = first_environment()
    settings = known_settings(environ)
    line = read_words(words)
    if settings is None or line.ours or line.several or line.has(*ONLY_SAYS):
        return
    try:
        environ["PATH"] = beheaded(environ.get("PATH", os.defpath))
    except Refused:
        return  # which is said better there
    real = find("sbatch", environ)
    if real is None:
        return
    found = read_script(line)
    if found.more or found.options.several:
        return
    stage = stage_name(line, found.options, environ)

    def afterwards() -> None:
        _apart(lambda: record(stage, line.has("quiet")))

    # From here on nobody else may submit it, whatever happens.
    try:
        code = submit_plain(real, line, found, environ, settings, afterwards)
    except BrokenPipeError:
        code = _NOT_READ
    except OSError as e:
        sys.stderr.write(f"penstock: {real}: {e.strerror}\n")
        sys.stderr.flush()
        code = 1
    end_as(code if code >= 0 else 128 - code)


def _apart(do: Callable[[], object]) -> None:
    """In a process of its own, which nobody waits for: it holds no descriptor of this one."""
    if os.fork() > 0:
        return
    code = 1
    try:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.closerange(3, 1024)
        do()
        code = 0
    finally:
        os._exit(code)

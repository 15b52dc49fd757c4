"""The fronts of squeue, sacct, scancel and scontrol: what asks is answered by the agent where it can, what changes is
run, and both are tried again while Slurm does not answer (`again` says when)."""

from __future__ import annotations

import os
import time

from penstock.fronts.programs.again import (
    ASKS,
    CHANGES,
    done_before,
    may_repeat,
    purpose,
    touched,
    unanswered_text,
    without_errors,
)
from penstock.fronts.programs.agent import NoAnswer, about, ask, tell_touched
from penstock.fronts.programs.path import guarded
from penstock.fronts.programs.pools import pools_of
from penstock.fronts.programs.process import Child, become, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["front_command"]

_ANSWER = 12.0  # seconds: the agent may have to look at Slurm first
_A_DAY = 86400.0


def front_command(
    program: str,
    real: str,
    words: Sequence[str],
    environ: dict[str, str],
    settings: Mapping[str, str],
    folder: str,
) -> int:
    """Run one of these commands; the exit code, of a signal negative. Raises OSError."""
    what = purpose(program, words)
    part = None
    if pools_of(settings):
        from penstock.fronts.programs.pooled import pool_part, say_left_out  # few have pools

        part = pool_part(program, what, words, settings)
        if what not in (ASKS, CHANGES):
            say_left_out(program, settings)
    if part is None:
        if what not in (ASKS, CHANGES):
            become(real, words, guarded(real, environ))
        code, output, errors = _of_slurm(program, what, real, words, environ, settings, folder)
    else:
        from penstock.fronts.programs.pooled import beside_slurm

        code, output, errors = 0, b"", b""
        if part.slurm is not None:
            code, output, errors = _of_slurm(program, what, real, part.slurm, environ, settings, folder)
        if part.slurm is None or not part.parts.listing or code == 0:
            worse, more, wrong = beside_slurm(program, part, environ)
            code = code or worse
            output += more.encode(errors="surrogateescape")
            errors += wrong.encode(errors="surrogateescape")
    say(2, errors)
    say(1, output)
    return code


def _of_slurm(
    program: str,
    what: str,
    real: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    folder: str,
) -> tuple[int, bytes, bytes]:
    """What Slurm, or the agent for it, says: the code, output and errors."""
    if what == ASKS:
        answer = _ask(program, words, environ, settings, folder)
        if answer is not None:
            out, errors = (answer[key].encode(errors="surrogateescape") for key in ("out", "err"))
            return int(answer["code"]), out, errors
    found = _run(program, real, words, environ, changes=what == CHANGES)
    if what == CHANGES:
        tell_touched(settings, environ, touched(words))
    return found


def _ask(
    program: str, words: Sequence[str], environ: Mapping[str, str], settings: Mapping[str, str], folder: str
) -> dict[str, Any] | None:
    """The agent's answer, None for none."""
    try:
        for word in words:
            word.encode()
        request = {"op": "answer", "program": program, "words": list(words), "environ": about(environ)}
        answer = ask(settings, environ, request, _ANSWER)
    except NoAnswer as e:
        if e.absent:
            _say_once(folder)
        return None
    except UnicodeError:  # which JSON cannot carry
        return None
    whole = isinstance(answer, dict) and isinstance(answer.get("code"), int)
    return answer if whole and all(isinstance(answer.get(key), str) for key in ("out", "err")) else None


def _run(
    program: str, real: str, words: Sequence[str], environ: Mapping[str, str], *, changes: bool
) -> tuple[int, bytes, bytes]:
    """What the real command says, tried again while Slurm does not answer."""
    from penstock.fronts.programs.once import delays, patience

    pauses = iter(delays(os.urandom(2)))
    limit = patience(environ.get("PENSTOCK_SHIM_PATIENCE"))
    until = None
    doubtful = False
    while True:
        child = Child(real, words, guarded(real, environ))
        code, output, errors = child.whole()
        text = errors.decode(errors="replace")
        if doubtful and done_before(text):
            return 0, output, without_errors(text).encode()
        if code == 0 or child.signalled or not unanswered_text(text) or not may_repeat(program, words, text, changes):
            return code, output, errors
        doubtful = changes
        until = time.monotonic() + limit if until is None else until
        pause = next(pauses)
        if time.monotonic() + pause > until:
            return code, output, errors
        time.sleep(pause)


def _say_once(folder: str) -> None:
    """That no agent answers, once a day, and to a person only: tools read what stands there."""
    try:
        if not os.isatty(2):
            return
        stamp = os.path.join(os.path.dirname(folder), ".said")
        try:
            if time.time() - os.stat(stamp).st_mtime < _A_DAY:
                return
        except OSError:
            pass
        os.close(os.open(stamp, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.utime(stamp)
    except OSError:
        return
    say(2, b"penstock: no agent runs here, so Slurm itself answers; start one with `penstock agent`\n")

"""The front of sbatch: submits what needs no more than sbatch itself, and leaves the rest to `penstock sbatch`."""

from __future__ import annotations

import os
import time

from penstock.fronts.agent import tell_touched
from penstock.fronts.memory import cluster_name, keep, memory_folder
from penstock.fronts.once import patience
from penstock.fronts.path import Refused, guarded
from penstock.fronts.process import become, say
from penstock.fronts.script import PipedScript, script_lines, take_in
from penstock.fronts.submit import submit_once
from penstock.fronts.words import SbatchWords, job_name, names_penstock, read_words, script_words, stage_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["front_sbatch"]

_ONLY_SAYS = ("usage", "version", "test-only", "autocomplete", "help")
"""With these sbatch submits nothing."""
_NOT_NAMED = ("clusters", "cluster", "quiet")
"""With these sbatch names no job of this cluster."""


def front_sbatch(real: str, words: Sequence[str], environ: dict[str, str], settings: Mapping[str, str]) -> int:
    """Submit a job with these words after sbatch; the exit code, of a signal negative. Raises Refused and OSError."""
    line = read_words(words)
    if line.has(*_ONLY_SAYS) and not line.ours:
        become(real, words, guarded(real, environ))
    folder = line.value("chdir")
    piped = None if line.script is None and line.has("wrap") else take_in(line.script, folder)
    named = [] if line.script is None or piped is not None else script_lines(line.script, folder)
    lines = named if piped is None else piped.lines
    script = script_words(lines)
    ours = line.ours or names_penstock(lines)
    if ours or (_depends(line, script) and not line.several) or (piped is not None and piped.descriptor is None):
        _leave_to_penstock(words, environ, settings, ours)
    if line.several or script.several:
        become(real, words, guarded(real, environ))
    answer = submit_once(
        real,
        line,
        script,
        environ,
        patience(environ.get("PENSTOCK_SHIM_PATIENCE")),
        stdin=0 if piped is not None and piped.descriptor == 0 else None,
    )
    if answer.job is not None and not line.has(*_NOT_NAMED) and not script.has(*_NOT_NAMED):
        _note(answer.job, line, script, piped, environ, settings)
    say(2, answer.errors)
    say(1, answer.output)
    return answer.end()


def _depends(line: SbatchWords, script: SbatchWords) -> bool:
    return bool((line if line.has("dependency") else script).value("dependency"))


def _leave_to_penstock(words: Sequence[str], environ: dict[str, str], settings: Mapping[str, str], ours: bool) -> None:
    """Become `penstock sbatch`; return where it is gone, and sbatch itself can do it as well."""
    python = settings.get("python", "")
    try:
        become(python, ["-P", "-m", "penstock", "sbatch", *words], environ, python)
    except OSError as e:
        if ours:
            text = f"Penstock cannot be run ({python}: {e.strerror}), and the job has #PENSTOCK lines or options of it"
            raise Refused(f'{text}; `eval "$(penstock shim)"` once more', 1) from e


def _note(
    job: int,
    line: SbatchWords,
    script: SbatchWords,
    piped: PipedScript | None,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
) -> None:
    """Tell the agent of it, and remember it as `penstock sbatch` does, for a job that will depend on it."""
    tell_touched(settings, environ, [job])
    import json

    name = job_name(line, script, environ)
    known = {
        "job": job,
        "name": name,
        "stage": stage_name(line, script, environ),
        "at": time.time(),
        "dependency": "",
        "order": _order(line, script, piped, name),
    }
    try:
        keep(memory_folder(settings["own"], cluster_name(environ)), job, json.dumps(known))
    except (OSError, KeyError):  # a job that depends on it will not be followed with it
        return


def _order(line: SbatchWords, script: SbatchWords, piped: PipedScript | None, name: str) -> dict[str, object]:
    """How it can be submitted again (`penstock.workflow.state.Order`): what came through a pipe comes from standard
    input then."""
    words = line.words()
    if piped is not None and line.script is not None:
        place = len(line.options) + (line.rest[:1] == ["--"])
        called = [] if line.has("job-name") or script.has("job-name") else [f"--job-name={name}"]
        words = [*called, *words[:place], "/dev/stdin", *words[place + 1 :]]
    content = None if piped is None else piped.content.decode(errors="replace")
    return {"words": words, "workdir": os.getcwd(), "script": content}

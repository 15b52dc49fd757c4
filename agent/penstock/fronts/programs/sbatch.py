"""The front of sbatch: submits what needs no more than sbatch itself, and leaves the rest to `penstock sbatch`."""

from __future__ import annotations

import time

from penstock.fronts.programs.agent import tell_touched
from penstock.fronts.programs.memory import cluster_name, keep, memory_folder
from penstock.fronts.programs.once import patience
from penstock.fronts.programs.path import Refused, guarded
from penstock.fronts.programs.plainjson import dumps
from penstock.fronts.programs.pooled import submit_to_pool
from penstock.fronts.programs.process import BY_FRONT, become, say
from penstock.fronts.programs.room import room_for
from penstock.fronts.programs.script import PipedScript, order_of, script_lines, take_in
from penstock.fronts.programs.submit import submit_once
from penstock.slurm.option_words import (
    SbatchWords,
    elsewhere,
    job_name,
    names_penstock,
    read_words,
    script_words,
    stage_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ONLY_SAYS", "FoundScript", "front_sbatch", "read_script", "submit_plain"]

ONLY_SAYS = ("usage", "version", "test-only", "autocomplete", "help")
"""With these sbatch submits nothing."""


def front_sbatch(
    real: str, words: Sequence[str], environ: dict[str, str], settings: Mapping[str, str], folder: str
) -> int:
    """Submit a job with these words after sbatch; the exit code, of a signal negative. Raises Refused and OSError.
    `folder` is that of the front programs."""
    line = read_words(words)
    if line.has(*ONLY_SAYS) and not line.ours:
        become(real, words, guarded(real, environ))
    found = read_script(line)
    if not line.ours and not found.ours:
        code = submit_to_pool(line, found.options, found.piped, environ, settings, folder)
        if code is not None:
            return code
    if line.ours or found.more:
        _leave_to_penstock(words, environ, settings, bool(line.ours) or found.ours)
    if line.several or found.options.several:
        become(real, words, guarded(real, environ))
    return submit_plain(real, line, found, environ, settings)


class FoundScript:
    """What is known of the script: its `lines`, as far as they were read, the `options` of its `#SBATCH` lines, and how
    it came, if through a pipe. `ours`: it has `#PENSTOCK` lines; `more`: for any reason sbatch alone is not enough."""

    def __init__(
        self, lines: list[str], options: SbatchWords, piped: PipedScript | None, *, ours: bool, more: bool
    ) -> None:
        self.lines = lines
        self.options = options
        self.piped = piped
        self.ours = ours
        self.more = more


def read_script(line: SbatchWords) -> FoundScript:
    """Look at the script that a command line names."""
    folder = line.value("chdir")
    piped = None if line.script is None and line.has("wrap") else take_in(line.script, folder)
    named = [] if line.script is None or piped is not None else script_lines(line.script, folder)
    lines = named if piped is None else piped.lines
    options, ours = script_words(lines), names_penstock(lines)
    depends = bool((line if line.has("dependency") else options).value("dependency")) and not line.several
    # A pipe with a name can be read once by sbatch alone.
    once = piped is not None and piped.descriptor is None
    return FoundScript(lines, options, piped, ours=ours, more=ours or depends or once)


def submit_plain(
    real: str,
    line: SbatchWords,
    found: FoundScript,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    afterwards: Callable[[], object] | None = None,
) -> int:
    """Submit it, tell the agent, remember it, do what there is to do `afterwards`, and say what sbatch says; the exit
    code, of a signal negative. Raises OSError where sbatch cannot be run, or nobody hears what it says."""
    script, piped = found.options, found.piped
    here = not elsewhere(line, script, environ)
    answer = submit_once(
        real,
        line,
        script if here else None,
        environ,
        patience(environ.get("PENSTOCK_SHIM_PATIENCE")),
        stdin=0 if piped is not None and piped.descriptor == 0 else None,
        in_line=room_for(settings.get("own"), cluster_name(environ), line, script, environ),
    )
    # With -Q it names no job.
    if answer.job is not None and here and not (line.has("quiet") or script.has("quiet")):
        _note(answer.job, line, script, piped, environ, settings)
    if afterwards is not None:
        afterwards()
    say(2, answer.errors)
    say(1, answer.output)
    return answer.end()


def _leave_to_penstock(words: Sequence[str], environ: dict[str, str], settings: Mapping[str, str], ours: bool) -> None:
    """Become `penstock sbatch`; return where it is gone, and sbatch itself can do it as well."""
    python = settings.get("python", "")
    try:
        become(python, ["-X", BY_FRONT, "-P", "-m", "penstock", "sbatch", *words], environ, python)
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
    try:
        known = {
            "job": job,
            "name": job_name(line, script, environ),
            "stage": stage_name(line, script, environ),
            "at": time.time(),
            "dependency": "",
            "order": order_of(line.words(), line, script, piped, environ),
        }
        keep(memory_folder(settings["own"], cluster_name(environ)), job, dumps(known))
    except (OSError, KeyError):  # a job that depends on it will not be followed with it
        return

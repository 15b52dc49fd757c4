"""Jobs that are tasks of pools: submitted there by sbatch, told and ended beside those of Slurm."""

from __future__ import annotations

import os
import time

from penstock.fronts.programs.again import ASKS, CHANGES
from penstock.fronts.programs.agent import about
from penstock.fronts.programs.once import Form, new_key, patience
from penstock.fronts.programs.pools import FrontPool, NoPool, ask_pool, pool_named, pools_of
from penstock.fronts.programs.process import say
from penstock.fronts.programs.rules import pool_of
from penstock.fronts.programs.script import script_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from penstock.fronts.programs.divide import Divided
    from penstock.fronts.programs.script import PipedScript
    from penstock.slurm.option_words import SbatchWords

__all__ = ["PoolPart", "beside_slurm", "pool_part", "say_left_out", "submit_to_pool"]

_AGAIN = 2.0  # seconds between looks at a job that is waited for
_UNANSWERED = "Unable to contact slurm controller (connect failure)"


def submit_to_pool(
    line: SbatchWords,
    script: SbatchWords,
    piped: PipedScript | None,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    folder: str,
) -> int | None:
    """Submit it to the pool that a rule names, and say what sbatch would; the exit code. None: no rule names one, or it
    can be no task of a pool, and sbatch has to do it."""
    choice = pool_of(line, script, environ, settings)
    if choice is None:
        return _refused_dependency(line, script)
    pool = pool_named(settings, choice.pool)
    try:
        content = _content(line, piped)
    except OSError:
        say(2, f"sbatch: error: Unable to open file {line.script}\n".encode(errors="surrogateescape"))
        return 1
    request = {
        "op": "submit",
        "words": line.words(),
        "script": content,
        "environ": dict(environ),
        "workdir": os.getcwd(),
        "umask": _umask(),
        "key": new_key(os.urandom(8)),
        "host": os.uname().nodename,
        "fronts": folder,
    }
    try:
        answer = ask_pool(pool, request, patience(environ.get("PENSTOCK_SHIM_PATIENCE")))
    except NoPool as e:
        if e.stopped and not choice.only:
            return _refused_dependency(line, script)
        say(2, f"sbatch: error: Batch job submission failed: {e}\n".encode())
        return 1
    if "through" in answer:
        if not choice.only:
            return _refused_dependency(line, script)
        say(2, f"sbatch: error: {answer['through']}\nsbatch: error: Batch job submission failed\n".encode())
        return 1
    if "job" not in answer:
        say(2, answer["err"].encode(errors="surrogateescape"))
        return int(answer["code"])
    form = Form.of(line, script, environ)
    say(1, form.said(answer["job"]))
    if form.waits:
        return _waited(pool, answer["job"])
    return 0


def _content(line: SbatchWords, piped: PipedScript | None) -> str | None:
    if piped is not None:
        return piped.content.decode(errors="surrogateescape")
    if line.script is None:
        return None
    with open(script_path(line.script, line.value("chdir")), "rb") as file:
        return file.read().decode(errors="surrogateescape")


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _refused_dependency(line: SbatchWords, script: SbatchWords) -> int | None:
    """Slurm knows nothing of jobs of pools, and would take one that it does not know for one that has ended."""
    told = line.value("dependency") or script.value("dependency")
    if not told:
        return None
    from penstock.fronts.programs.divide import FIRST_JOB, job_of_word

    for word in told.replace("?", ",").replace(",", ":").split(":"):
        if word[:1].isdigit() and word.split("_")[0].split("+")[0].isdigit() and job_of_word(word) >= FIRST_JOB:
            text = f"job {word} is a task of a pool, which no job of Slurm's can wait for; submit this one there, too"
            say(
                2,
                f"sbatch: error: {text}\nsbatch: error: Batch job submission failed: Job dependency problem\n".encode(),
            )
            return 1
    return None


def _waited(pool: FrontPool, job: int) -> int:
    while True:
        try:
            answer = ask_pool(pool, {"op": "wait", "job": job}, 3600.0)
        except NoPool as e:
            say(2, f"sbatch: error: {e}\n".encode())
            return 1
        if answer.get("done"):
            return int(answer["code"])
        time.sleep(_AGAIN)


class PoolPart:
    """What of a command is for pools: `slurm` are the words that are left for Slurm, None for none."""

    def __init__(self, parts: Divided, pools: list[FrontPool], what: str) -> None:
        self.parts = parts
        self.pools = pools
        self.what = what
        self.slurm = parts.theirs


def pool_part(program: str, what: str, words: Sequence[str], settings: Mapping[str, str]) -> PoolPart | None:
    """What of a command is for pools; None for nothing."""
    if what not in (ASKS, CHANGES):
        return None
    pools = pools_of(settings)
    if not pools:
        return None
    from penstock.fronts.programs.divide import divided  # few have pools

    parts = divided(program, words)
    if parts.ours is None:
        return None
    if not parts.listing:
        known = [pool for pool in pools if any(pool.has(job) for job in parts.jobs)]
        return PoolPart(parts, known, what) if known else None
    if program == "scontrol" and (what == CHANGES or not _shows_jobs(words)):
        return None
    pools = [pool for pool in pools if not pool.stopped]
    return PoolPart(parts, pools, what) if pools else None


def say_left_out(program: str, settings: Mapping[str, str]) -> None:
    """A list that Slurm's own squeue goes on writing lacks the jobs of pools, and must not look like a whole one."""
    if program == "squeue" and any(not pool.stopped for pool in pools_of(settings)):
        say(2, b"penstock: jobs of pools are left out: squeue --iterate is Slurm's own\n")


def _shows_jobs(words: Sequence[str]) -> bool:
    named = [word.lower() for word in words if not word.startswith("-")]
    return named[:1] == ["show"] and len(named) == 2 and named[1] in ("job", "jobs")


def beside_slurm(program: str, part: PoolPart, environ: Mapping[str, str]) -> tuple[int, str, str]:
    """What the pools say: a code, output and errors. Output is without headings where Slurm's own stands before it."""
    beside = part.slurm is not None or len(part.pools) > 1
    code, out, errors = 0, "", ""
    for pool in part.pools:
        request = {
            "op": "answer" if part.what == ASKS else "act",
            "program": program,
            "words": part.parts.ours,
            "environ": about(environ),
            "beside": beside,
        }
        found = _asked(pool, request, program, environ, listing=part.parts.listing)
        out += found["out"]
        errors += found["err"]
        code = max(code, int(found["code"]))
    return code, out, errors


def _asked(
    pool: FrontPool, request: Mapping[str, Any], program: str, environ: Mapping[str, str], *, listing: bool
) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask_pool(pool, request, patience(environ.get("PENSTOCK_SHIM_PATIENCE")))
    except NoPool as e:
        if listing and e.stopped:
            return {"out": "", "err": "", "code": 0}
        why = str(e) if e.stopped else f"{_UNANSWERED}: {e}"
        return {"out": "", "err": f"{program}: error: {why}\n", "code": 1}
    if "through" not in answer:
        return answer
    if listing:  # an answer that lacks jobs must not look like a whole one
        text = f"penstock: jobs of pool {pool.name!r} are left out: {answer['through']}\n"
        return {"out": "", "err": text, "code": 0}
    return {"out": "", "err": f"{program}: error: of a job of a pool: {answer['through']}\n", "code": 1}

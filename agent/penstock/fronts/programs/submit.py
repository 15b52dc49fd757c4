"""Runs the real sbatch until its answer stands: once, however often it is tried (`once` says what to do next)."""

from __future__ import annotations

import os
import time

from penstock.fronts.programs.once import (
    DONE,
    LOOK_ONCE,
    ROOM,
    Form,
    after_try,
    delays,
    jobs_with,
    key_option,
    named,
    new_key,
    without_key,
)
from penstock.fronts.programs.path import find, guarded
from penstock.fronts.programs.process import Child, heard, say
from penstock.fronts.programs.room import RoomLine
from penstock.slurm.error_texts import submit_limit
from penstock.values.lines import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.slurm.option_words import SbatchWords

__all__ = ["ALIVE", "SbatchAnswer", "submit_once"]

_LOOK = 20.0  # seconds
_SAID = 0.2  # seconds in which an sbatch that waits for its job has said all that it says at its submission
_AGAIN = 2.0  # seconds between looks at a job that is waited for
ALIVE = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "STOPPED",
    "STAGE_OUT", "SIGNALING", "SPECIAL_EXIT",
)  # fmt: skip
"""The states of a job that has not ended, in long words."""
_ROOM = 2.0  # seconds between tries of the one that is next to get room in the queue
_TRIED_AGAIN = b"retrying"
_EARLIER = 3600.0  # seconds before the first try from which on accounting is looked through


class SbatchAnswer:
    """sbatch's answer: the `job` that it has named and its `cluster`, or None and ""; what it has said so far of its
    output and errors, which nobody has been told yet. `child`: the sbatch that goes on (`--wait`), if any does."""

    def __init__(
        self, job: tuple[int, str] | None, output: bytes, errors: bytes, child: Child | None, code: int
    ) -> None:
        self.job = None if job is None else job[0]
        self.cluster = "" if job is None else job[1]
        self.output = output
        self.errors = errors
        self._child = child
        self._code = code

    @property
    def ended(self) -> bool:
        """Whether sbatch has ended."""
        return self._child is None

    def end(self, *, tell: bool = True) -> int:
        """Say what more it says (`tell`: of its output, too), and wait for its end; its exit code, of a signal
        negative."""
        if self._child is not None:
            while pieces := self._child.read():
                for stream, text in pieces:
                    if tell or stream != 1:
                        say(stream, text)
            self._code = self._child.end()
            self._child = None
        return self._code


def submit_once(
    program: str,
    line: SbatchWords,
    script: SbatchWords | None,
    environ: Mapping[str, str],
    patience: float,
    *,
    stdin: int | None = None,
    workdir: str | None = None,
    in_line: RoomLine,
) -> SbatchAnswer:
    """Submit a job, once. Raises OSError where sbatch cannot be run.

    `script`: the options of its `#SBATCH` lines; None: it is tried once, as nobody but sbatch can read them, or as it
    cannot be looked for under a key (several components, another cluster). So is one whose comment has no room for the
    key; and with no `patience` (s) everything is, without a key. `stdin`: the descriptor of a file that is its standard
    input, at whose beginning each try finds it. Nothing is tried again when nobody reads the answer any more: a tool
    that has waited for long enough submits the job anew.

    Where a limit of jobs in the queue refuses it, it waits for room, for `patience` at most, behind those that came
    before it `in_line`, and says so.
    """
    key = new_key(os.urandom(8))
    option = None if script is None or patience <= 0 else key_option(line, script, key)
    words = line.words() if option is None else line.words(option)

    def one_try() -> tuple[SbatchAnswer, bool]:
        _rewind(stdin)
        child = Child(program, words, guarded(program, environ), terminal=True, stdin=stdin, workdir=workdir)
        answer = _try(child)
        answer.errors = without_key(answer.errors, key)
        return answer, bool(child.signalled)

    if option is None or script is None:
        return one_try()[0]
    try:
        return _once(one_try, in_line, key, Form.of(line, script, environ), environ, patience)
    finally:
        in_line.leave()


def _once(
    one_try: Callable[[], tuple[SbatchAnswer, bool]],
    in_line: RoomLine,
    key: str,
    form: Form,
    environ: Mapping[str, str],
    patience: float,
) -> SbatchAnswer:
    """The answer that stands, after as many tries as it takes."""
    pauses = iter(delays(os.urandom(2)))
    began = time.time()
    until = None
    doubtful = waits = False
    if in_line.others_before():
        waits, until = True, time.monotonic() + patience
        _say_that_it_waits("others of your jobs wait for room in the queue", patience)
        in_line.join()
        in_line.comes_up(until)
    while True:
        answer, signalled = one_try()
        if signalled:
            return answer
        verdict = DONE if not answer.ended else after_try(answer.end(), _job(answer), _text(answer))
        if verdict == DONE:
            return _one_of(answer, key, environ, began, form) if doubtful else answer
        until = time.monotonic() + patience if until is None else until
        if verdict == ROOM and not waits:
            waits = True
            _say_that_it_waits(
                f"as many of your jobs are in the queue as may be ({submit_limit(_text(answer))})", patience
            )
            in_line.join()
            in_line.comes_up(until)
        # One that sbatch has tried again itself may be in the queue.
        doubtful = doubtful or verdict != ROOM or _TRIED_AGAIN in answer.errors
        while True:
            pause = _ROOM if verdict == ROOM else next(pauses)
            if time.monotonic() + pause > until:
                return answer
            time.sleep(pause)
            jobs = _jobs_with(key, environ, began) if doubtful else []
            if jobs is not None:
                break
        if jobs:
            _cancel(jobs[1:], environ)
            return _found(jobs[0], form, environ)
        if verdict == LOOK_ONCE or not heard(1):
            return answer


def _say_that_it_waits(why: str, patience: float) -> None:
    say(2, f"sbatch: penstock: {why}: waiting, at most {patience:g} s\n".encode())


def _rewind(stdin: int | None) -> None:
    """sbatch has read its standard input; a script that came through a pipe lies in a file there (`script.take_in`)."""
    try:
        if stdin is not None:
            os.lseek(stdin, 0, os.SEEK_SET)
    except OSError:  # no file: then it is tried once
        pass


def _try(child: Child) -> SbatchAnswer:
    """Until sbatch has named its job, or has ended."""
    output, errors = bytearray(), bytearray()
    job = None
    limit = None
    while pieces := child.read(limit):
        for stream, text in pieces:
            (output if stream == 1 else errors).extend(text)
        if job is None and (job := named(bytes(output))) is not None:
            limit = _SAID
    if limit is not None and child.running:
        return SbatchAnswer(job, bytes(output), bytes(errors), child, 0)
    return SbatchAnswer(job, bytes(output), bytes(errors), None, child.end())


def _job(answer: SbatchAnswer) -> tuple[int, str] | None:
    return None if answer.job is None else (answer.job, answer.cluster)


def _text(answer: SbatchAnswer) -> str:
    return answer.errors.decode(errors="replace")


def _found(job: int, form: Form, environ: Mapping[str, str]) -> SbatchAnswer:
    """The answer that sbatch would have given."""
    answer = SbatchAnswer((job, ""), form.said(job), b"", None, 0)
    if form.waits:
        say(1, answer.output)
        answer.output = b""
        answer = SbatchAnswer((job, ""), b"", b"", None, _waited(job, environ))
    return answer


def _waited(job: int, environ: Mapping[str, str]) -> int:
    """The exit code of a job when it has ended, as `sbatch --wait` ends: the largest of an array's."""
    scontrol = find("scontrol", environ)
    code = 1
    while scontrol is not None:
        ended, output, errors = Child(scontrol, ["-o", "show", "job", str(job)], guarded(scontrol, environ)).whole(
            _LOOK
        )
        if ended == 0:
            rows = split_lines(output.decode(errors="replace"))
            states = [_field(row, "JobState=") for row in rows]
            code = max((_exit(_field(row, "ExitCode=")) for row in rows), default=1)
            if not any(state in ALIVE for state in states):
                return code
        elif b"Invalid job id" in errors:
            return code
        time.sleep(_AGAIN)
    return code


def _field(row: str, name: str) -> str:
    return row.partition(f" {name}")[2].partition(" ")[0]


def _exit(field: str) -> int:
    """What sbatch makes of "CODE:SIGNAL"."""
    code, _, signal = field.partition(":")
    return int(code) if code.isdigit() and signal in ("", "0") else 1


def _one_of(answer: SbatchAnswer, key: str, environ: Mapping[str, str], began: float, form: Form) -> SbatchAnswer:
    """The answer of a try after another whose answer was lost: that one may have come in since the queue was looked
    through. Then the first is the job, and the others are cancelled before anybody knows of them."""
    jobs = _jobs_with(key, environ, began) or []
    if len(jobs) < 2 or not _cancel(jobs[1:], environ) or answer.job == jobs[0]:
        return answer
    return _found(jobs[0], form, environ)


def _cancel(jobs: list[int], environ: Mapping[str, str]) -> bool:
    """Cancel what came in twice; whether that could be done."""
    scancel = find("scancel", environ)
    if scancel is None or not jobs:
        return False
    words = [str(job) for job in jobs]
    return Child(scancel, words, guarded(scancel, environ)).whole(_LOOK)[0] == 0


def _jobs_with(key: str, environ: Mapping[str, str], began: float) -> list[int] | None:
    """The jobs that have this key; None where Slurm does not say."""
    squeue = find("squeue", environ)
    if squeue is None:
        return None
    plain = {name: value for name, value in environ.items() if not name.startswith(("SQUEUE_", "SACCT_"))}
    words = ["--me", "-h", "-t", "all", "-o", "%k %F"]
    code, output, _ = Child(squeue, words, guarded(squeue, plain)).whole(_LOOK)
    if code != 0:
        return None
    jobs = jobs_with(key, split_lines(output.decode(errors="surrogateescape")))
    sacct = find("sacct", environ)
    if jobs or sacct is None:
        return jobs
    # One that has ended already may have left the queue; accounting keeps comments where the site says so.
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began - _EARLIER))
    words = ["-X", "-n", "-P", "--delimiter= ", "-S", since, "-o", "Comment,JobID"]
    code, output, _ = Child(sacct, words, guarded(sacct, plain)).whole(_LOOK)
    rows = split_lines(output.decode(errors="surrogateescape")) if code == 0 else []
    return jobs_with(key, map(_whole_array, rows))


def _whole_array(row: str) -> str:
    """A line of accounting with the number of the array in the place of that of a task."""
    comment, _, job = row.rpartition(" ")
    return f"{comment} {job.partition('_')[0]}"

"""The process that holds pyslurm, for `penstock_pyslurm.backend`; the only module that imports it.

    python -P -m penstock_pyslurm.worker        (-P: nothing is imported from the current folder)

Why a process: pyslurm keeps Python's global lock while libslurm waits for an answer (tried: ten seconds in which no
other thread ran), so a thread would stop the whole agent with it; libslurm ends its process with exit() when it cannot
read its configuration, which happens at the import; and what it leaks or corrupts dies with it.

It speaks over stdin and stdout, one request after the other, each message 4 bytes of length and JSON: first it says
which releases it is made of, then it answers `{"call": …, "params": {…}}` with one of
`{"result": …}`; `{"refused": text}` (what Slurm said), `{"invalid": text}` (pyslurm would not send it; nothing
was sent), `{"lacking": text}` (pyslurm cannot do it; nothing was sent) or `{"broken": text}`.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, BinaryIO

__all__ = ["HEADER", "HISTORY", "JOB", "NODE", "RESERVATION", "main"]

HEADER = 4  # bytes of length before each message, most significant first

# What is asked of pyslurm's objects, in the order of the answer's rows. Texts that users write are not among them.
JOB = (
    "id",
    "user_id",
    "user",
    "account",
    "partition",
    "qos",
    "state",
    "state_reason",
    "submit_time",
    "eligible_time",
    "start_time",
    "end_time",
    "time_limit",
    "num_nodes",
    "cpus",
    "allocated_nodes",
    "priority",
    "dependencies",
    "array_id",
    "array_task_id",
    "array_tasks_waiting",
    "requeue_count",
    "reservation",
    "is_batch_job",
    "batch_host",
)
NODE = (
    "name",
    "state",
    "total_cpus",
    "partitions",
    "architecture",
    "real_memory",
    "active_features",
    "configured_gres",
    "last_busy_time",
)
RESERVATION = ("name", "start_time", "end_time", "node_list", "users", "accounts", "flags", "partition")
HISTORY = (
    "id",
    "name",
    "user",
    "partition",
    "qos",
    "account",
    "state",
    "exit_code",
    "exit_code_signal",
    "submit_time",
    "eligible_time",
    "start_time",
    "end_time",
    "time_limit",
    "num_nodes",
)

_INVALID_JOB_ID = 2017  # slurm_errno.h, the same in all releases
_ALREADY_DONE = 2021
_WAITS = "Job is pending execution"
_DONE_ALL_THE_SAME = "are not persistent"  # of changes to a priority, which Slurm will compute anew
_SINGLE = "pyslurm changes single jobs only, not arrays"
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
# "Not given", as sbatch leaves them: then srun in the job starts one task on every node.
_NO_TASKS, _NO_CPUS_PER_TASK = 0xFFFFFFFE, 0xFFFE

pyslurm: Any = None


class Lacking(Exception):
    """Pyslurm cannot do this."""


# -- looking -----------------------------------------------------------------------------------------------------


@cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _value(thing: Any, name: str) -> Any:  # noqa: ANN401 (pyslurm has no types)
    try:
        # pyslurm's own user_name raises for a user whom this host does not know.
        return _user(thing.user_id) if name == "user" else getattr(thing, name)
    except UnicodeDecodeError:
        return _UNREADABLE  # anybody may name an account, a job or a folder in bytes that are no text


def _row(thing: Any, fields: Sequence[str]) -> list[Any]:  # noqa: ANN401
    return [_value(thing, name) for name in fields]


def _queue() -> Iterator[Any]:
    """The jobs of this cluster; in a federation the controller lists those of all."""
    here = pyslurm.settings.LOCAL_CLUSTER
    return (job for job in pyslurm.Jobs.load().values() if job.cluster in (None, here))


def _jobs() -> list[list[Any]]:
    return [_row(job, JOB) for job in _queue()]


def _nodes() -> list[list[Any]]:
    return [_row(node, NODE) for node in pyslurm.Nodes.load().values()]


def _reservations() -> list[list[Any]]:
    if not hasattr(pyslurm, "reservation"):
        raise Lacking("this pyslurm does not give the flags of reservations as Slurm names them")
    found = pyslurm.reservation().get()
    return [[name, *(values[field] for field in RESERVATION[1:])] for name, values in found.items()]


def _texts(ids: Collection[int]) -> list[list[Any]]:
    wanted = set(ids)
    fields = ("id", "name", "comment", "working_directory", "command")
    return [_row(job, fields) for job in _queue() if job.id in wanted]


def _find(name: str) -> list[int]:
    own = os.geteuid()
    return sorted(job.id for job in _queue() if job.user_id == own and _value(job, "name") == name)


def _steps(job: int) -> list[list[Any]]:
    try:
        found = pyslurm.JobSteps.load(job)
    except KeyError:  # a pending job: pyslurm looks for it among the answers all the same
        return []
    except pyslurm.RPCError as error:
        # The last is what pyslurm says of a job whose answer is good and has no steps.
        if error.errno in (_INVALID_JOB_ID, _ALREADY_DONE) or "Failed to load step info" in str(error):
            return []
        raise
    return [[str(step.id), step.state, step.allocated_nodes] for step in found.values()]


def _history(ids: Collection[int], name: str | None, since: int) -> list[list[Any]]:
    chosen: dict[str, Any] = {"ids": sorted(ids)} if ids else {"users": [os.geteuid()]}
    if name is not None:
        chosen["names"] = [name]
    if since:
        chosen["start_time"] = since
    found = pyslurm.db.Jobs.load(pyslurm.db.JobFilter(**chosen))
    return [_row(job, HISTORY) for job in found.values()]


# -- changing ----------------------------------------------------------------------------------------------------


def _submit(description: Mapping[str, Any], script: str, environment: Mapping[str, str]) -> int:
    variables = {**environment, **_submission()}
    size = {"ntasks": _NO_TASKS, "cpus_per_task": _NO_CPUS_PER_TASK, "min_cpus_per_node": description["nodes"]}
    if not script:
        raise ValueError("the batch script is empty")
    # As a text pyslurm takes it for the name of a file first, which a long one cannot be.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file, _without_slurm_variables():
        file.write(script)
        file.flush()
        made = pyslurm.JobSubmitDescription(**description, **size, script=file.name, environment=variables)
        return int(made.submit())


def _submission() -> dict[str, str]:
    """What sbatch tells slurmd by way of the job's environment."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "SLURM_PRIO_PROCESS": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "SLURM_SUBMIT_DIR": str(os.getcwd()),  # noqa: PTH109 (stdlib only and one word)
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_UMASK": f"0{mask:03o}",
    }


@contextmanager
def _without_slurm_variables() -> Iterator[None]:
    """Pyslurm would hand this process's own on to the job."""
    own = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    for name in own:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(own)


def _load(job: int) -> Any:  # noqa: ANN401
    """The job, which is none of an array: a change by its number reaches one task only, and some reach none."""
    try:
        seen = pyslurm.Job.load(job)
    except KeyError:
        # It looks for the steps of this number, and of an array slurmctld gives those of the tasks, by their own.
        raise Lacking(_SINGLE) from None
    if seen.array_id is not None:
        raise Lacking(_SINGLE)
    return seen


def _modify(job: int, changes: Mapping[str, Any]) -> None:
    try:
        _load(job).modify(pyslurm.JobSubmitDescription(**changes))
    except pyslurm.RPCError as error:
        if "priority" not in changes or _DONE_ALL_THE_SAME not in str(error):
            raise


def _hold(job: int) -> str:
    """The state that the job was in; it is held if that was PENDING."""
    seen = _load(job)
    if seen.state == "PENDING":
        # Not Job.hold(): its mode "user" writes to memory that is not there yet (22.5.3 and 25.11.2).
        seen.modify(pyslurm.JobSubmitDescription(priority=0))
    return str(seen.state)


def _release(job: int) -> None:
    """A job that does not wait was released."""
    seen = _load(job)
    if seen.state == "PENDING":
        seen.release()


def _requeue(job: int) -> None:
    """A job that waits is left alone."""
    try:
        _load(job).requeue()
    except pyslurm.RPCError as error:
        if _WAITS not in str(error):
            raise


def _cancel(job: int) -> None:
    seen = _load(job)  # Job.cancel() takes an unknown id for a job that is done
    try:
        seen.cancel()
    except pyslurm.RPCError:
        # It reads errno, where anything may be left of an earlier call: what counts is how the job looks.
        if pyslurm.Job.load(job).state in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"):
            raise


# -- serving -----------------------------------------------------------------------------------------------------

_CALLS: Mapping[str, Callable[..., object]] = {
    "jobs": _jobs,
    "nodes": _nodes,
    "reservations": _reservations,
    "texts": _texts,
    "find": _find,
    "steps": _steps,
    "history": _history,
    "submit": _submit,
    "update": _modify,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
    "cancel": _cancel,
}


def _answer(request: Mapping[str, Any]) -> dict[str, object]:
    try:
        return {"result": _CALLS[request["call"]](**request["params"])}
    except Lacking as error:
        return {"lacking": str(error)}
    except UnicodeEncodeError:
        return {"lacking": "pyslurm takes texts in UTF-8 only"}
    except pyslurm.RPCError as error:
        return {"refused": str(error)}
    except ValueError as error:
        # pyslurm's older half says what Slurm said as a ValueError of text and number.
        if len(error.args) == 2 and isinstance(error.args[1], int):
            return {"refused": str(error.args[0])}
        return {"invalid": f"{error}"}
    except Exception as error:  # whatever it is, the agent must hear of it
        return {"broken": f"pyslurm: {type(error).__name__}: {error}"}


def _read(stream: BinaryIO) -> Any:  # noqa: ANN401 (JSON)
    size = stream.read(HEADER)
    if len(size) < HEADER:
        raise EOFError
    return json.loads(stream.read(int.from_bytes(size, "big")))


def _write(stream: BinaryIO, message: object) -> None:
    data = json.dumps(message).encode()
    stream.write(len(data).to_bytes(HEADER, "big") + data)
    stream.flush()


def main() -> None:
    """Serve until stdin ends."""
    global pyslurm  # what takes seconds to load and may end the process waits until somebody can be told
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not stand between the messages
    # Task lists of arrays are cut off at 64 letters otherwise.
    os.environ["SLURM_BITSTR_LEN"] = "0"
    try:
        import pyslurm as loaded
        import pyslurm.settings
    except ImportError as error:
        _write(answers, {"missing": f"{error}"})
        return
    pyslurm = loaded
    library = ".".join(str(part) for part in pyslurm.slurm_api_version())
    _write(answers, {"pyslurm": str(pyslurm.__version__), "libslurm": library})
    try:
        while True:
            _write(answers, _answer(_read(requests)))
    except (EOFError, BrokenPipeError):
        sys.exit(0)


if __name__ == "__main__":
    main()

"""What front programs ask the scheduler of a pool: to submit jobs, to say what `squeue`, `sacct` and `scontrol` would
say of them, and to do what `scancel` and `scontrol` would do to them.

One JSON object a line, over TLS with the pool's certificate on both sides: whoever has that is the pool's owner. A
connection without it has some seconds to prove that, and makes room for others (`host.gate`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from penstock.errors import PenstockError, SlurmUnavailable, UserError
from penstock.fronts.programs.pools import DOOR
from penstock.host import descriptors
from penstock.host.files import replace as replace_file
from penstock.host.gate import bounds_for
from penstock.host.guests import Guests, streams
from penstock.host.listener import Listener
from penstock.host.logs import get_logger
from penstock.host.owners import peer_of
from penstock.slurm.states import LONG_STATES
from penstock.values.documents import brief, show
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import CommandAnswer, Through
from penstock_pool.folder import PoolFolder
from penstock_pool.jobenv import exported
from penstock_pool.jobfiles import JobFiles
from penstock_pool.jobqueue import job_number
from penstock_pool.jobs import order, sacct, squeue
from penstock_pool.jobs.conditions import SlurmJobs
from penstock_pool.jobs.control import CancelAsk, ControlAsk, read_cancel, read_control
from penstock_pool.jobs.rows import JobOwner, record, sacct_table, squeue_table, state_of, wait_code
from penstock_pool.machine import Kill, Machine, SignalAttempt, TaskEntry
from penstock_pool.model import PoolTask, task_to_dict
from penstock_pool.taskjson import task_from_dict
from penstock_pool.terms import JobTerms

__all__ = ["JobsDoor", "PoolSide"]

_log = get_logger(__name__)
_LONGEST: Final = 16 * 2**20
_KNOWN: Final = 300.0  # seconds for which squeue shows what has ended, as Slurm's MinJobAge usually is
_SLURM: Final = 10.0  # seconds between looks at jobs of Slurm's that are waited for
_SIGN: Final = 60.0  # seconds between signs of life
_PAST_IDS: Final = 10**12
_MOST: Final = 1024  # connections
_BACKLOG: Final = 128
_HANDSHAKE: Final = 10.0  # seconds
_IDLE: Final = 60.0
_TOLD: Final = 60.0  # seconds between lines about connections in the log
_OWNER: Final = "the pool's owner"
_INVALID: Final = "Invalid job id specified"

Orders = Iterable[Kill | SignalAttempt]


class PoolSide(Protocol):
    """What it needs of a pool's scheduler."""

    folder: PoolFolder
    machine: Machine

    def now(self) -> float:
        """The scheduler's clock, in seconds since 1970."""
        ...

    def take_in(self, tasks: list[PoolTask], *, larger: bool, again: bool) -> list[int]:
        """Take tasks in, and write them down; their numbers. Raises UserError, StoreError."""
        ...

    def carry_out(self, orders: Orders) -> None:
        """Write down what was decided, and send what is to be done."""
        ...


class JobsDoor:
    """See the module's text. `host` is where to listen; `environment` are the scheduler's own variables."""

    def __init__(
        self, folder: PoolFolder, owner: JobOwner, slurm: SlurmJobs, host: str, environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._files = JobFiles(folder)
        self._owner = owner
        self._slurm = slurm
        self._host = host
        self._environment = environment
        self._site = ShimSite(owner.cluster, (99,), alone=True, past_ids=_PAST_IDS)
        self._tasks: list[asyncio.Task[None]] = []
        self._pool: PoolSide
        self._guests = Guests(peer_of, self._serve, self._may_tell)
        self._listener: Listener | None = None
        self._tells_from = 0.0

    async def open(self, pool: PoolSide) -> None:
        """Answer from now on. Raises OSError where it cannot listen."""
        self._pool = pool
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self._folder.certificate))
        self._tls.load_cert_chain(self._folder.certificate, self._folder.key)
        self._tls.verify_mode = ssl.CERT_REQUIRED
        family, *_, address = socket.getaddrinfo(self._host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address, family=family, backlog=_BACKLOG)
        host, port = listening.getsockname()[:2]
        # Half of what there is: members of the pool come to Dask's own door.
        self._guests.gate.bounds = bounds_for(max(4, min(_MOST, descriptors.room() // 2)))
        self._guests.gate.first = {_OWNER}
        self._listener = Listener(
            "jobs", listening, self._guests.admit, descriptors.room, self._may_tell, self._guests.make_room
        )
        self._door = self._folder.path / DOOR
        replace_file(self._door, json.dumps({"host": host, "port": port}))
        self._tasks = [asyncio.create_task(one()) for one in (self._sign, self._watch_slurm)]

    async def close(self) -> None:
        """Answer nobody any more."""
        for task in self._tasks:
            task.cancel()
        self._door.unlink(missing_ok=True)
        if self._listener is not None:
            self._listener.close()
        await self._guests.close()

    async def _sign(self) -> None:
        """Who is not heard of for long is not waited for by front programs."""
        while True:
            await asyncio.sleep(_SIGN)
            with contextlib.suppress(OSError):
                os.utime(self._door)

    async def _watch_slurm(self) -> None:
        queue = self._pool.machine.queue
        while True:
            if awaited := queue.awaited():
                try:
                    queue.learn(await self._slurm.look(awaited))
                    self._pool.carry_out(())
                except (SlurmUnavailable, PenstockError) as e:
                    _log.warning("jobs that are waited for cannot be looked up", why=str(e))
            await asyncio.sleep(_SLURM if awaited else 1.0)

    def _may_tell(self, _of: str = "") -> bool:
        now = time.monotonic()
        tells = now >= self._tells_from
        if tells:
            self._tells_from = now + _TOLD
        return tells

    async def _serve(self, connection: socket.socket, _peer: str) -> None:
        # Gone, too slow, or sends what is none of ours: that connection ends, and nothing else does.
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with streams(connection, _LONGEST, tls=self._tls, handshake=_HANDSHAKE) as (reader, writer):
                self._guests.prove(connection, _OWNER)
                self._guests.rest(connection)
                while line := await asyncio.wait_for(reader.readline(), _IDLE):
                    self._guests.prove(connection)
                    answer = await self._answered(line)
                    self._guests.rest(connection)
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await asyncio.wait_for(writer.drain(), _IDLE)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _HANDSHAKE)

    async def _answered(self, line: bytes) -> dict[str, Any]:
        doors: dict[str, Callable[[Mapping[str, Any]], Awaitable[object]]] = {
            "submit": self._submit,
            "answer": self._answer,
            "act": self._act,
            "wait": self._wait,
        }
        try:
            request = json.loads(line)
            return {"ok": True, "result": await doors[request["op"]](request)}
        except Through as e:
            return {"ok": True, "result": {"through": str(e)}}
        except PenstockError as e:
            return {"ok": False, "error": str(e)}
        except (KeyError, TypeError, ValueError) as e:
            return {"ok": False, "error": f"no request of this version: {brief(e)}"}

    # -- submissions --------------------------------------------------------------------------------------------

    async def _submit(self, request: Mapping[str, Any]) -> object:
        script = request["script"]
        asked = order.JobRequest(
            words=list(request["words"]),
            script=None if script is None else script.encode(errors="surrogateescape"),
            environ=dict(request["environ"]),
            workdir=str(request["workdir"]),
            umask=int(request["umask"]),
            key=str(request["key"]),
            host=str(request["host"]),
            fronts=str(request["fronts"]),
        )
        try:
            return self._submitted(asked)
        except order.NotForPools as e:
            return {"through": str(e)}
        except order.SbatchError as e:
            return _refusal(e.lines)
        except UserError as e:
            return _refusal([f"Batch job submission failed: {e}"])

    def _submitted(self, asked: order.JobRequest) -> object:
        content = order.script_content(asked)
        # First without files: what is refused leaves none.
        tasks = order.read_order(asked, self._files.first(), "", "", self._pool.now())
        self._known_dependencies(tasks[0])
        task_from_dict(task_to_dict(tasks[0]), "task", "/")  # as its member will read it
        script = self._files.keep_script(content)
        environment = self._files.keep_environment(exported(asked.environ, order.export_of(asked)))
        kept = [replace(task, job=_with(task.job, script, environment)) for task in tasks]
        numbers = self._pool.take_in(kept, larger=True, again=False)
        first = self._pool.machine.entries[numbers[0]]
        assert first.task.job is not None
        return {"job": job_number(numbers[0], first.task.job), "code": 0, "err": "", "out": ""}

    def _known_dependencies(self, task: PoolTask) -> None:
        assert task.job is not None
        for after in task.job.after:
            ours = after.job is not None and after.job >= task.job.first
            if ours and after.job is not None and not self._pool.machine.queue.of_job(after.job, after.task):
                raise order.SbatchError("Batch job submission failed: Job dependency problem")

    # -- answers ------------------------------------------------------------------------------------------------

    async def _answer(self, request: Mapping[str, Any]) -> object:
        program, words, environ = request["program"], list(request["words"]), dict(request["environ"])
        beside = bool(request.get("beside"))
        match program:
            case "squeue":
                said = self._squeue(words, environ, beside=beside)
            case "sacct":
                said = self._sacct(words, environ, beside=beside)
            case "scontrol":
                said = self._shown(read_control(words), beside=beside)
            case _:
                raise UserError(f"program: {show(program)} is not known to pools")
        return {"out": said.out, "err": said.err, "code": said.code}

    def _squeue(self, words: list[str], environ: Mapping[str, str], *, beside: bool) -> CommandAnswer:
        asked = squeue.read(words, environ, self._site)
        entries = list(self._visible())
        if asked.ids is not None:
            known = [(job, task) for job, task in asked.ids if self._of(job, task)]
            entries = [one for job, task in known for one in self._of(job, task) if self._fresh(one)]
            if not entries:
                return CommandAnswer("", "" if beside else f"slurm_load_jobs error: {_INVALID}\n", int(not beside))
        machine = self._pool.machine
        seen = iter(_each_once(entries))
        table = squeue_table(seen, machine.queue, self._owner, self._pool.now(), asked.unit)
        return squeue.answer(asked, table, self._asker(environ), beside=beside)

    def _sacct(self, words: list[str], environ: Mapping[str, str], *, beside: bool) -> CommandAnswer:
        asker, now, machine = self._asker(environ), self._pool.now(), self._pool.machine
        asked = sacct.read(words, asker, self._site, now)
        entries = list(self._jobs()) if asked.ids is None else [e for name in asked.ids for e in self._of(*name)]
        table = sacct_table(iter(_each_once(entries)), machine.queue, self._owner, now, asked.unit, asked.keeps)
        return sacct.answer(asked, table, asker, beside=beside)

    def _shown(self, asked: ControlAsk, *, beside: bool) -> CommandAnswer:
        if asked.verb != "show":
            raise Through("not served")
        if asked.ids:
            entries = [e for job, task in asked.ids for e in self._of(job, task) if self._fresh(e)]
        else:
            entries = list(self._visible())
        if not entries:
            return CommandAnswer("", "" if beside else f"slurm_load_jobs error: {_INVALID}\n", int(not beside))
        now, queue = self._pool.now(), self._pool.machine.queue
        records = [record(entry, queue, self._owner, now, line=asked.line) for entry in _each_once(entries)]
        return CommandAnswer("".join(records))

    # -- acts ---------------------------------------------------------------------------------------------------

    async def _act(self, request: Mapping[str, Any]) -> object:
        program, words, beside = request["program"], list(request["words"]), bool(request.get("beside"))
        if program == "scancel":
            said = self._cancel(read_cancel(words), beside=beside)
        elif program == "scontrol":
            said = self._control(read_control(words))
        else:
            raise UserError(f"program: {show(program)} is not known to pools")
        return {"out": said.out, "err": said.err, "code": said.code}

    def _cancel(self, asked: CancelAsk, *, beside: bool) -> CommandAnswer:
        machine, errors = self._pool.machine, []
        entries: list[TaskEntry] = []
        for job, task in asked.ids:
            found = self._of(job, task)
            if not found:
                name = f"{job}" if task is None else f"{job}_{task}"
                errors.append(f"scancel: error: Kill job error on job id {name}: {_INVALID}\n")
            entries += found
        if not asked.ids:
            entries = [entry for entry in self._pool.machine.entries.open() if entry.task.job is not None]
        entries = [entry for entry in _each_once(entries) if self._passes(entry, asked)]
        live = [entry.id for entry in entries if not entry.phase.final]
        if asked.signal:
            self._pool.carry_out(machine.signals(live, asked.signal, str(asked.whom)))
        else:
            self._pool.carry_out(machine.cancel(live, self._pool.now()))
        return CommandAnswer("", "" if asked.quiet else "".join(errors), int(bool(errors)))

    def _passes(self, entry: TaskEntry, asked: CancelAsk) -> bool:
        terms = entry.task.job
        assert terms is not None
        has = {"n": {terms.name}, "p": {terms.partition}, "A": {terms.account}, "q": {terms.qos}}
        has |= {"u": {self._owner.user, str(self._owner.uid)}, "t": {state_of(entry)}}
        for letter, value in asked.filters.items():
            wanted = {part.upper() if letter == "t" else part for part in value.split(",")}
            wanted |= {LONG_STATES.get(part, part) for part in wanted} if letter == "t" else set()
            if letter != "me" and not wanted & has[letter]:
                return False
        return True

    def _control(self, asked: ControlAsk) -> CommandAnswer:
        machine, now, errors = self._pool.machine, self._pool.now(), []
        numbers = []
        for job, task in asked.ids:
            found = self._of(job, task)
            if not found:
                errors.append(f"{_INVALID} for job {job}\n")
            numbers += [entry.id for entry in found]
        kills: list[Kill] = []
        match asked.verb:
            case "hold" | "uhold":
                machine.hold(numbers, now, held=True)
            case "release":
                machine.hold(numbers, now, held=False)
            case "requeue" | "requeuehold":
                kills = machine.requeue(numbers, now)
                if asked.verb == "requeuehold":
                    machine.hold(numbers, now, held=True)
            case _:
                raise Through(f"scontrol {asked.verb} is not served")
        self._pool.carry_out(kills)
        return CommandAnswer("", "".join(errors), int(bool(errors)))

    async def _wait(self, request: Mapping[str, Any]) -> object:
        """Whether a job, of an array all of it, has ended, and with which code `sbatch --wait` does."""
        entries = self._of(int(request["job"]), None)
        done = all(entry.phase.final for entry in entries)
        codes = [wait_code(entry) for entry in entries]
        return {"done": done, "code": max(codes, default=1)}

    # -- the pool -----------------------------------------------------------------------------------------------

    def _jobs(self) -> Iterator[TaskEntry]:
        entries = self._pool.machine.entries
        return (entries[number] for number in sorted(entries.jobs))

    def _visible(self) -> Iterator[TaskEntry]:
        """What squeue still shows."""
        recent = self._pool.machine.recent(self._pool.now() - _KNOWN)
        return (entry for entry in recent if entry.task.job is not None and self._fresh(entry))

    def _fresh(self, entry: TaskEntry) -> bool:
        return not entry.phase.final or self._pool.now() - (entry.ended or 0.0) < _KNOWN

    def _of(self, job: int, task: int | None) -> list[TaskEntry]:
        return [self._pool.machine.entries[number] for number in self._pool.machine.queue.of_job(job, task)]

    def _asker(self, environ: Mapping[str, str]) -> Asker:
        same = environ.get("TZ") == self._environment.get("TZ")
        same = same and environ.get("SLURM_TIME_FORMAT", "") in ("", "standard")
        own = {self._owner.user: self._owner.uid, str(self._owner.uid): self._owner.uid}
        now = time.localtime(self._pool.now())
        midnight = time.strftime("%Y-%m-%dT00:00:00", now)
        # Whoever else is asked for has no job here.
        return Asker(self._owner.uid, environ, same, lambda name: own.get(name, -1), time.asctime(now), midnight)


def _with(terms: JobTerms | None, script: str, environment: str) -> JobTerms:
    assert terms is not None
    return replace(terms, script=script, environment=environment)


def _each_once(entries: Iterable[TaskEntry]) -> list[TaskEntry]:
    return list({entry.id: entry for entry in entries}.values())


def _refusal(lines: Iterable[str]) -> dict[str, Any]:
    return {"out": "", "err": "".join(f"sbatch: error: {line}\n" for line in lines), "code": 1}

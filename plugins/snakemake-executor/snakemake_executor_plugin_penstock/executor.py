"""The executor: Snakemake hands it the jobs that are ready, and is told how they ended.

A job of one node is a task of a pool; all that are ready go in one request. One of several nodes, or that no member of
the pool could hold, is a job of Slurm, and so are the jobs after it that can be known already, each behind those
that it needs.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from snakemake.io import is_flagged
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from penstock.config import load
from penstock.errors import PenstockError
from penstock_pool.extra import INSTALL, missing
from penstock_pool.folder import pool_folder
from penstock_pool.output import output_path
from snakemake_executor_plugin_penstock.ahead import Ahead, JobAhead
from snakemake_executor_plugin_penstock.foresight import Foresight
from snakemake_executor_plugin_penstock.graph import UnknownGraph
from snakemake_executor_plugin_penstock.ledger import SubmissionLedger, job_key
from snakemake_executor_plugin_penstock.naming import POOL, SLURM, ExternalName, fingerprint, name_from
from snakemake_executor_plugin_penstock.needs import JobNeeds, needs_of, sbatch_options
from snakemake_executor_plugin_penstock.poolline import PoolTasks
from snakemake_executor_plugin_penstock.rendering import NotPlain, shell_call
from snakemake_executor_plugin_penstock.runtimes import Runtimes
from snakemake_executor_plugin_penstock.script import start_script, task_argv, too_long
from snakemake_executor_plugin_penstock.settings import INNER, NO_POOL
from snakemake_executor_plugin_penstock.slurmjobs import JobsAtSlurm, SlurmRefused

__all__ = ["SnakemakeExecutor"]

_PATIENCE: Final = 600.0  # seconds that a pool may be without a scheduler
_PACE: Final = 0.05
_SLURM_PACE: Final = 1.0  # seconds between looks for the files that jobs of Slurm leave
_ENDING: Final = 15.0  # seconds that cancelled tasks are waited for
_SILENCE: Final = 30.0  # seconds without an end after which it is looked what tasks wait for
_TAIL: Final = 2000  # bytes of a failed task's output that are shown
_MAIN: Final = "main"
_SAMPLE: Final = 10  # tasks whose time is asked for at once


class SnakemakeExecutor(RemoteExecutor):  # type: ignore[misc]
    """See the module's text."""

    # The base's thread asks before `__post_init__` has run.
    _ready = False

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        self._said: set[str] = set()
        self._heard = time.monotonic()
        self._inner = str(settings.inner or INNER[0])
        if self._inner not in INNER:
            raise WorkflowError(f"--penstock-inner: {self._inner!r} is none of {', '.join(INNER)}")
        if self.workflow.remote_execution_settings.immediate_submit:
            raise WorkflowError("--immediate-submit: a pool does not know which task needs which; leave it out")
        self._runtimes = Runtimes(self.workflow.async_run)
        self._run = uuid.uuid4().hex[:12]
        self._count = 0
        self._pool_name = settings.pool or _MAIN
        self._pool = self._open_pool(required=settings.pool is not None)
        self._script = ""
        own = Path(".snakemake").absolute() / "penstock"
        self._slurm = JobsAtSlurm(own)
        self._ledger = SubmissionLedger(own / "submitted")
        self._slurm_looked = 0.0
        self._where: dict[str, Any] = {}  # the job of each name that has not ended
        self._done: dict[str, str] = {}  # names that have ended, and why not well
        self._ahead = Ahead(int(settings.ahead or 0))
        self._foresight = Foresight(f"snakemake-{self._run}")
        self._ready = True

    def additional_general_args(self) -> str:
        """The second Snakemake runs its job itself."""
        return ""

    async def sleep(self) -> None:
        """Ends are told, not asked for: there is nothing to spare by sleeping longer."""
        await asyncio.sleep(_PACE)

    # Jobs that are ready.

    def run_jobs(self, jobs: Iterable[Any]) -> None:
        """All of them, in one request where they are tasks."""
        tasks: list[tuple[SubmittedJobInfo, ExternalName, dict[str, Any]]] = []
        for job in jobs:
            try:
                self.run_job_pre(job)
                if self._taken_up(job) or self._was_ahead(job):
                    continue
                if self._is_of_slurm(job):
                    self._to_slurm(job)
                else:
                    tasks.append(self._task(job))
            except Exception as e:  # of the user's functions as well: one job less, and not the workflow
                self.report_job_error(SubmittedJobInfo(job), msg=f"{e} ")
        if tasks:
            self._to_pool(tasks)
        self._look_ahead()

    def run_job(self, job: Any) -> None:  # noqa: ANN401
        """One of them."""
        self.run_jobs([job])

    def _task(self, job: Any) -> tuple[SubmittedJobInfo, ExternalName, dict[str, Any]]:  # noqa: ANN401
        argv, plain, mark = self._command(job)
        needs = self._needs(job, inner=not plain)
        name = self._name(POOL, mark)
        task: dict[str, Any] = {
            "name": name.name,
            "workflow": f"snakemake-{self._run}",
            "command": argv,
            "cores": needs.cores,
            "gpus": needs.gpus,
            "workdir": str(Path.cwd()),
            "retries": 0,  # those of Snakemake count
        }
        if needs.memory is not None:
            task["memory"] = needs.memory
        if needs.seconds is not None:
            task["time"] = needs.seconds
        return SubmittedJobInfo(job, external_jobid=str(name)), name, task

    def _command(self, job: Any) -> tuple[list[str], bool, str]:  # noqa: ANN401
        """What a task runs, whether that is the shell command alone, and the fingerprint."""
        why = "it was asked for"
        if self._inner == INNER[0]:
            try:
                call = shell_call(job, self.workflow, os.environ)
                inputs = [str(f) for f in job.input]
                folders = [str(f) for f in job.output if is_flagged(f, "directory")]
                files = [str(f) for f in [*job.output, *job.log] if not is_flagged(f, "directory")]
                if too_long([*inputs, *files, *folders]):
                    raise NotPlain("it has many files")
                self.workflow.async_run(job.prepare())
                argv = task_argv(
                    self._start_script(),
                    call.argv,
                    environment=call.environment,
                    latency=self.workflow.execution_settings.latency_wait,
                    inputs=inputs,
                    files=files,
                    folders=folders,
                )
            except NotPlain as e:
                why = str(e)
            else:
                return argv, True, self._fingerprint(job)
        self.logger.debug(f"Penstock: a second Snakemake runs job {job.jobid}: {why}")
        return task_argv(self._start_script(), [self._jobscript(job)]), False, self._fingerprint(job)

    def _to_pool(self, tasks: Sequence[tuple[SubmittedJobInfo, ExternalName, dict[str, Any]]]) -> None:
        assert self._pool is not None
        # First: a Snakemake that is killed now finds the tasks again.
        self._register({info.job: name for info, name, _task in tasks})
        for info, name, _task in tasks:
            self._where[name.name] = info.job
        try:
            refused = self._pool.submit([task for _info, _name, task in tasks])
        except PenstockError as e:
            # Some may be there and run: Snakemake ends, and finds them again when it is started again.
            raise WorkflowError(f"pool {self._pool_name!r} has not answered: {e}") from e
        for info, name, _task in tasks:
            if name.name not in refused:
                self.report_job_submission(info, register_job=False)
                continue
            self._where.pop(name.name, None)
            self._say(f"{refused[name.name]}: it becomes a job of Slurm")
            try:
                self._to_slurm(info.job)
            except (WorkflowError, SlurmRefused, OSError, ValueError) as e:
                self.report_job_error(info, msg=f"{refused[name.name]}; as a job of Slurm: {e} ")

    def _to_slurm(self, job: Any) -> None:  # noqa: ANN401
        name = self._name(SLURM, self._fingerprint(job, inputs=False))
        self._register({job: name})
        self._submit_job(job, name, self._resources(job), ())
        self._follow(job, name)

    def _submit_job(self, job: Any, name: ExternalName, resources: Mapping[str, Any], after: Sequence[str]) -> None:  # noqa: ANN401
        options = sbatch_options(resources, job.threads)
        number = self._slurm.submit(name.name, [self._jobscript(job)], options, str(job.name), after)
        self.logger.info(
            f"Penstock: job {job.jobid} is job {number} of Slurm" + (", behind what it needs" if after else "")
        )

    def _follow(self, job: Any, name: ExternalName) -> None:  # noqa: ANN401
        self._where[name.name] = job
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=str(name)), register_job=False)

    # What an earlier run of Snakemake, or a look ahead, has submitted.

    def _taken_up(self, job: Any) -> bool:  # noqa: ANN401
        """Whether the job runs already, or has run while no Snakemake was there. One that is not the same any more is
        ended first."""
        name = self._ledger.left.pop(_key(job), None)
        if name is None:
            return False
        same = name.fingerprint == self._fingerprint(job, inputs=name.where == POOL)
        if not same:
            self._end(name)
        elif self._goes_on(job, name):
            self.logger.info(f"Penstock: job {job.jobid} goes on where an earlier Snakemake left it ({name.name})")
            self._mark(job, name)
            self._follow(job, name)
            return True
        return False

    def _goes_on(self, job: Any, name: ExternalName) -> bool:  # noqa: ANN401
        """Whether it is still to come or runs, or has ended well and its output is there."""
        if name.where == POOL:
            phase = None if self._pool is None else self._pool.adopt(name.name)
            if phase in ("waiting", "running"):
                return True
            done = phase == "complete"
        else:
            if self._slurm.adopt(name.name):
                return True
            done = self._slurm.done(name.name)
        if done and _is_current(job):
            self._done[name.name] = ""
            return True
        return False

    def _end(self, name: ExternalName) -> None:
        """End what an earlier run has left, and wait until it has."""
        if name.where == SLURM:
            if self._slurm.adopt(name.name):
                self._slurm.cancel([name.name])
            return
        if self._pool is not None and self._pool.adopt(name.name) in ("waiting", "running"):
            self._pool.cancel([name.name])
            until = time.monotonic() + _ENDING
            while not self._pool.phase(name.name) and time.monotonic() < until:
                time.sleep(_PACE)

    def _was_ahead(self, job: Any) -> bool:  # noqa: ANN401
        """Whether it is in Slurm's queue already, with enough for what it is known to need by now."""
        found = self._ahead.take(job)
        if found is None:
            return False
        if not found.enough(self._needs(job)):
            self.logger.info(f"Penstock: job {job.jobid} needs more than was thought: it is submitted anew")
            self._slurm.cancel([found.name.name])
            return False
        self._mark(job, found.name)
        self._follow(job, found.name)
        return True

    def _look_ahead(self) -> None:
        """Tell the pool what is to come, and submit what comes next to Slurm."""
        try:
            given = list(self._where.items())
            if self._pool is not None:
                self._foresight.tell(self._pool, self.dag, {job for _name, job in given}, self._needs)
            numbers = {job: number for name, job in given if (number := self._slurm.number(name))}
            self._ahead.each(self.dag, numbers, self._is_of_slurm, self._submit_ahead)
        except UnknownGraph as e:
            self._say(f"nothing is foreseen, as this Snakemake has another graph: {e}")
        except Exception as e:  # whatever it is, what is ready runs
            self._say(f"nothing is foreseen: {e!r}")

    def _submit_ahead(self, job: Any, resources: Mapping[str, Any], after: Sequence[str]) -> JobAhead | None:  # noqa: ANN401
        name = self._name(SLURM, self._fingerprint(job, inputs=False))
        resources = self._runtimes.rounded(job, resources)
        try:
            self._ledger.begun({_key(job): name})
            self._submit_job(job, name, resources, after)
        except (WorkflowError, SlurmRefused, OSError, ValueError) as e:
            self._say(f"job {job.jobid} could not be submitted ahead: {e}")
            return None
        number = self._slurm.number(name.name)
        assert number is not None
        return JobAhead(name, number, needs_of(resources, job.threads))

    # How they end.

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report those that have ended."""
        if not self._ready or not active_jobs:
            return
        by_name = {name.name: name for info in active_jobs if (name := name_from(info.external_jobid)) is not None}
        self._hear(by_name)
        ended = [name for name in list(self._done) if name in by_name and by_name[name].where == POOL]
        details = self._details([name for name in ended if self._done[name]])
        self._learn([name for name in ended if not self._done[name]][:_SAMPLE])
        for info in active_jobs:
            name = name_from(info.external_jobid)
            assert name is not None
            why = self._done.pop(name.name, None)
            if why is None:
                yield info
                continue
            self._where.pop(name.name, None)
            log = self._slurm.log(name.name)
            if name.where == SLURM:
                self._slurm.forget(name.name, keep_log=bool(why))
            if not why:
                self.report_job_success(info)
                continue
            there = [log] if log.exists() else []
            text, logs = details.get(name.name, (why + _end_of(there), [str(path) for path in there]))
            self.report_job_error(info, msg=f"{text}\n", aux_logs=logs)

    def _hear(self, names: Mapping[str, ExternalName]) -> None:
        if self._pool is not None:
            if self._pool.broken:
                # The tasks may well run: Snakemake ends, and finds them again when it is started again.
                raise WorkflowError(f"pool {self._pool_name!r} cannot be asked any more: {self._pool.broken}")
            self._foresight.again(self._pool)
            if time.monotonic() - self._heard > _SILENCE:
                self._heard = time.monotonic()
                self._say_what_hinders(self._pool)
            while not self._pool.ends.empty():
                self._heard = time.monotonic()
                name = self._pool.ends.get()
                phase = self._pool.phase(name)
                self._done[name] = "" if phase == "complete" else phase
        of_slurm = [name for name, one in names.items() if one.where == SLURM and name not in self._done]
        if of_slurm and time.monotonic() - self._slurm_looked > _SLURM_PACE:
            self._slurm_looked = time.monotonic()
            try:
                self._done |= self._slurm.ended(of_slurm)
            except SlurmRefused as e:
                self._say(f"Slurm does not tell of its jobs for now: {e}")

    def _say_what_hinders(self, pool: PoolTasks) -> None:
        try:
            why = pool.hindrance()
        except PenstockError as e:
            why = str(e)
        if why:
            self._say(f"pool {self._pool_name!r}: {why}")

    def _details(self, failed: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
        """Of failed tasks: what to say, and the files with what they wrote."""
        if self._pool is None or not failed:
            return {}
        try:
            told = self._pool.told(failed)
        except PenstockError as e:
            self._say(str(e))
            return {}
        found = {}
        for name, task in zip(failed, told, strict=True):
            files = [output_path(self._folder.output, task["id"], task["attempt"], kind) for kind in ("out", "err")]
            there = [path for path in files if path.exists()]
            text = f"Task {task['id']} of pool {self._pool_name!r} {task['phase']} on {task['node'] or 'no node'}"
            text += f": {task['why']}" if task["why"] else ""
            found[name] = (text + _end_of(there), [str(path) for path in there])
        return found

    def _learn(self, names: Sequence[str]) -> None:
        """How long jobs of a rule take."""
        if self._pool is None or not names:
            return
        try:
            told = self._pool.told(names)
        except PenstockError:
            return
        for name, task in zip(names, told, strict=True):
            if (job := self._where.get(name)) is not None:
                self._foresight.ran(str(job.name), float(task["wall"]))

    def handle_job_success(self, job: Any) -> None:  # noqa: ANN401
        """Snakemake has looked at its output."""
        super().handle_job_success(job)
        self._over([job])

    def handle_job_error(self, job: Any) -> None:  # noqa: ANN401
        """What was submitted ahead behind a job that has failed will not be."""
        super().handle_job_error(job)
        lost = self._ahead.drop(self.dag, job)
        self._slurm.cancel([one.name.name for one in lost.values()])
        self._over([job, *lost])

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End all, also those that are on their way, and wait until they have."""
        self._slurm.cancel(list(self._where))
        if self._pool is None:
            return
        try:
            if self._pool.cancel_all(_ENDING):
                self._where.clear()
            else:
                self.logger.warning("Penstock: some tasks of the pool have been told to end, and have not yet")
        except PenstockError as e:
            self.logger.warning(f"Penstock: tasks of the pool may be left: {e}")

    def shutdown(self) -> None:
        """Leave nothing that was only thought to come."""
        super().shutdown()
        self._slurm.cancel([one.name.name for one in self._ahead.all()])
        if not self._where and not self._ledger.left:
            self._ledger.close()
        if self._pool is not None:
            if not self._pool.broken:
                self._foresight.forget(self._pool)
            self._pool.close()

    # Small things.

    def _open_pool(self, *, required: bool) -> PoolTasks | None:
        if self._pool_name == NO_POOL:
            return None
        if lacking := missing():
            raise WorkflowError(f"a pool needs {', '.join(lacking)} where Snakemake runs: {INSTALL}")
        try:
            self._folder = pool_folder(load(), self._pool_name)
            pool = PoolTasks(self._folder, _PATIENCE)
            if why := pool.hindrance():
                self._say(f"pool {self._pool_name!r}: {why}")
            return pool
        except PenstockError as e:
            if required:
                raise WorkflowError(str(e)) from e
            self.logger.info(f"Penstock: all jobs are jobs of Slurm, as {e}")
            return None

    def _start_script(self) -> str:
        if not self._script:
            path = Path(self.tmpdir) / "start.sh"
            path.touch(mode=0o600)  # variables may be secret
            path.write_text(start_script(os.environ, _umask()), encoding="utf-8", errors="surrogateescape")
            self._script = str(path)
        return self._script

    def _jobscript(self, job: Any) -> str:  # noqa: ANN401
        path = self.get_jobscript(job)
        self.write_jobscript(job, path)
        return str(path)

    def _name(self, where: str, mark: str) -> ExternalName:
        self._count += 1
        return ExternalName(where, mark, self._run, self._count)

    def _register(self, names: Mapping[Any, ExternalName]) -> None:
        """Write down what is about to be submitted."""
        try:
            self._ledger.begun({_key(job): name for job, name in names.items()})
        except OSError as e:
            self._say(f"a Snakemake that is started again will not know these jobs: {e}")
        for job, name in names.items():
            self._mark(job, name)

    def _mark(self, job: Any, name: ExternalName) -> None:  # noqa: ANN401
        """For Snakemake itself: the output is incomplete until it is looked at."""
        try:
            job.register(external_jobid=str(name))
        except OSError as e:
            self._say(f"jobs that are started are not marked as such: {e}")

    def _over(self, jobs: Iterable[Any]) -> None:
        try:
            self._ledger.ended(map(_key, jobs))
        except OSError as e:
            self._say(f"what has ended is not written down: {e}")

    def _is_of_slurm(self, job: Any) -> bool:  # noqa: ANN401
        return self._pool is None or self._needs(job).of_slurm

    def _needs(self, job: Any, *, inner: bool = False) -> JobNeeds:  # noqa: ANN401
        return needs_of(self._resources(job), job.threads, inner=inner)

    def _resources(self, job: Any) -> dict[str, Any]:  # noqa: ANN401
        return self._runtimes.rounded(job, job.resources)

    def _fingerprint(self, job: Any, *, inputs: bool = True) -> str:  # noqa: ANN401
        """Of what the job does; with its inputs as they are, where its end alone will be known."""
        words: list[str] = []
        for one in job.jobs if job.is_group() else (job,):
            code = one.rule.shellcmd or one.rule.script or one.rule.wrapper or one.rule.run_func_src or ""
            words += [one.rule.name, str(code), str(one.params), str(one.threads), *(str(f) for f in one.output)]
        return fingerprint(words, [_seen(str(path)) for path in job.input] if inputs else [])

    def _say(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            self.logger.info(f"Penstock: {text}")


def _umask() -> int:
    current = os.umask(0o077)  # it cannot be asked for, and what another thread makes now may be too closed, not open
    os.umask(current)
    return current


def _key(job: Any) -> str:  # noqa: ANN401
    outputs = [str(path) for path in job.output]
    if job.is_group():  # its own name is another one in each run
        return job_key("", outputs, "")
    return job_key(str(job.name), outputs, str(sorted(job.wildcards_dict.items())))


def _seen(path: str) -> tuple[str, int, int]:
    """A file, when it was changed (ns), and its size."""
    try:
        found = os.stat(path)  # noqa: PTH116 # Path() costs as much again, for each of many
    except OSError:
        return path, 0, -1
    return path, found.st_mtime_ns, found.st_size


def _is_current(job: Any) -> bool:  # noqa: ANN401
    """Whether all its output is there, and not older than its inputs."""
    outputs = [_seen(str(path)) for path in job.output]
    newest = max((changed for _path, changed, _size in (_seen(str(path)) for path in job.input)), default=0)
    return all(size >= 0 and changed >= newest for _path, changed, size in outputs)


def _end_of(paths: Sequence[Path]) -> str:
    """The last lines of the files, to be appended to a message."""
    parts = []
    for path in paths:
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - _TAIL, 0))
                text = file.read().decode(errors="replace").rstrip()
        except OSError:
            continue
        parts.append("\n    " + text.replace("\n", "\n    "))
    return "".join(parts)

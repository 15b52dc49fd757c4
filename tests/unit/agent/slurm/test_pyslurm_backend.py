"""pyslurm where it cannot be seen with the real one: another release, none, one that ends its process or hangs.

A stand-in named pyslurm is found by the process that loads it, and a stand-in for scontrol tells the site's release.
"""

import asyncio
import re
import textwrap
from importlib.metadata import EntryPoint

import pytest
import structlog

from penstock.api import JobSpec
from penstock.config import config_of
from penstock.core.backends import make_backend, pyslurm_extension
from penstock.errors import (
    ConfigError,
    Infeasible,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    PenstockError,
    SlurmUnavailable,
)
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.parse import ParseError
from penstock.slurm.records import partition_from_line
from penstock_pyslurm.backend import PyslurmBackend
from penstock_pyslurm.extension import extension
from penstock_pyslurm.link import Versions, misfit
from penstock_pyslurm.records import (
    job_from_values,
    node_from_values,
    record_from_values,
    understood,
    unreadable_dependency,
)
from penstock_pyslurm.worker import HISTORY, JOB
from places import FIXTURES

SITE = FIXTURES / "slurm" / "22.05" / "config.txt"
PARTITIONS = SITE.with_name("partitions.txt")

FITS = """
    class RPCError(Exception):
        def __init__(self, text, errno=-1):
            super().__init__(text)
            self.errno = errno
    class settings:
        LOCAL_CLUSTER = "c"
    import sys
    sys.modules["pyslurm.settings"] = settings
    __version__ = "22.5.3"
    def slurm_api_version():
        return (22, 5, 8)
    class Jobs:
        @staticmethod
        def load():
            return {}
"""


@pytest.fixture
def site(tmp_path):
    """Makes a backend for a site of 22.05.8 where `import pyslurm` runs the given text."""

    def make(pyslurm, **options):
        modules, programs = tmp_path / "modules", tmp_path / "programs"
        modules.mkdir()
        programs.mkdir()
        (modules / "pyslurm").mkdir()
        (modules / "pyslurm" / "__init__.py").write_text(textwrap.dedent(pyslurm))
        # An empty queue is a heading, whose end is drawn anew for every request.
        shown = f'case "$*" in *partition) cat {PARTITIONS};; *) cat {SITE};; esac'
        texts = {"scontrol": shown, "squeue": 'echo "JOBID${SQUEUE_FORMAT2#*:}"'}
        for name, text in texts.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        environment = {"PYTHONPATH": str(modules), "PATH": f"{programs}:/usr/bin:/bin"}
        budget = RequestBudget(BudgetLimits(1000, 1000.0, 1000))
        return PyslurmBackend(user="alice", environment=environment, budget=budget, timeout=10.0, **options)

    return make


def run(backend, call):
    async def ask():
        try:
            return await call(backend)
        finally:
            await backend.close()

    return asyncio.run(ask())


def test_a_pyslurm_that_fits_is_used(site):
    backend = site(FITS, fallback=pytest.fail)
    assert run(backend, lambda b: b.find("x")) == []
    assert (backend.requests["pyslurm find"], backend.requests["squeue"]) == (1, 0)
    assert backend.meter.purposes.total() == backend.requests.total(), "for whatever it was"


def test_who_may_use_a_partition_is_asked_of_the_command(site):
    """pyslurm would not say all of it, and what is not known is taken for no limit."""
    backend = site(FITS, fallback=pytest.fail)
    found = run(backend, lambda b: b.partitions())
    lines = [line for line in PARTITIONS.read_text().splitlines() if line.strip()]
    assert list(found) == [partition_from_line(line) for line in lines]
    assert not [label for label in backend.requests if label.startswith("pyslurm")]


UNFIT = {
    "another release": (
        FITS.replace("22.5.3", "25.11.2"),
        r"pyslurm 25\.11\.2 .*Slurm 22\.05: install pyslurm 22\.5\.x",
    ),
    "another library": (FITS.replace("(22, 5, 8)", "(23, 2, 1)"), r"libslurm 23\.2\.1.*Slurm 22\.05"),
    "no version": (FITS.replace("22.5.3", "unknown"), "install pyslurm"),
    "cannot be imported": ("raise ImportError('libslurm.so.38: no such file')", r"libslurm\.so\.38"),
    "ends its process": (
        "import os, sys; print('fatal: no slurm.conf', file=sys.stderr); os._exit(1)",
        "no slurm.conf",
    ),
    "crashes": ("import os; os.abort()", "ends when it is loaded"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_a_pyslurm_that_does_not_fit(site, kind):
    text, why = UNFIT[kind]
    with pytest.raises(ConfigError, match=rf"`slurm\.backend: pyslurm`: .*{why}"):
        run(site(text), lambda b: b.site())


@pytest.mark.parametrize("kind", UNFIT)
def test_a_pyslurm_that_does_not_fit_gives_way_to_the_commands(site, kind):
    text, why = UNFIT[kind]
    told = []
    backend = site(text, fallback=told.append)

    async def ask(b):
        return (await b.site()).version, await b.find("x"), await b.find("y")

    assert run(backend, ask) == ((22, 5, 8), [], [])
    (reason,) = told
    assert reason and re.search(why, reason)
    assert (backend.requests["squeue"], backend.requests["pyslurm find"]) == (2, 0)


def test_what_does_not_answer_is_not_what_does_not_fit(site):
    """Before Slurm says its release nothing is known; auto must not settle for the commands because it was early."""
    backend = site(FITS, fallback=pytest.fail)
    backend._runner._environment["PATH"] = "/nonexistent"
    with pytest.raises(SlurmUnavailable):
        run(backend, lambda b: b.jobs())


def test_a_call_that_hangs_is_given_up_and_its_process_killed(site):
    backend = site(FITS.replace("return {}", "import time; time.sleep(600)"))
    backend._limit = 1.0

    async def ask(b):
        with pytest.raises(SlurmUnavailable, match=r"no answer within"):
            await b.jobs()
        assert not b._link.alive
        waiting = [asyncio.ensure_future(b.jobs()) for _ in range(2)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(error, SlurmUnavailable) for error in run(backend, ask))


def refusing(raised):
    return FITS + textwrap.indent(
        textwrap.dedent(f"""
            class Job:
                @staticmethod
                def load(job):
                    raise {raised}
        """),
        "    ",
    )


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("RPCError('Invalid job id specified', 2017)", NotFound),
        ("RPCError('Access/permission denied', 2002)", NotPermitted),
        ("RPCError('Socket timed out on send/recv operation', 5004)", OutcomeUnknown),
        ("RPCError('Unable to contact slurm controller (connect failure)', 1)", SlurmUnavailable),
        ("RPCError('Something new', 9999)", OutcomeUnknown),
        ("ValueError('Job is no longer pending execution', 2033)", Infeasible),
        ("ValueError('Invalid Time Specification: whenever')", Infeasible),
        ("TypeError('an integer is required')", OutcomeUnknown),
        ("SystemExit(1)", OutcomeUnknown),
    ],
)
def test_errors_by_what_slurm_said(site, raised, error):
    with pytest.raises(error) as caught:
        run(site(refusing(raised)), lambda b: b.update(7, time_limit=60.0))
    assert type(caught.value) is error


def test_an_array_whose_steps_are_its_tasks_goes_to_the_commands(site):
    """Of an array without waiting tasks pyslurm 25.11.2 looks for steps under a number that none has."""
    backend = site(refusing("KeyError(36)"))
    with pytest.raises(PenstockError) as caught:
        run(backend, lambda b: b.cancel(36))
    assert "KeyError" not in str(caught.value)
    assert backend.requests["scancel"] == 1


def test_a_node_with_all_that_is_known_of_it():
    values = ("n1", "IDLE", 2, ["p"], "x86_64", 64000, ["fast"], {"gpu:a100": 4}, 1_700_000_000)
    node = node_from_values(values)
    assert (node.arch, node.memory, node.features, node.gres) == ("x86_64", 64000.0, ("fast",), "gpu:a100:4")
    assert node.idle_since == 1_700_000_000
    bare = node_from_values(("n1", "IDLE", 2, ["p"], None, 1, None, {}, None))
    assert (bare.arch, bare.memory, bare.features, bare.gres, bare.idle_since) == ("", None, (), "", None)


def test_what_a_look_is_refused_is_never_final(site):
    text = FITS.replace("return {}", "raise RPCError('Access/permission denied', 2002)")
    with pytest.raises(SlurmUnavailable):
        run(site(text), lambda b: b.jobs())


def test_no_call_goes_round_the_budget(site):
    async def ask(b):
        await b.find("x")  # it fits, and its process runs
        before = b.requests.copy()
        for service in ("slurmctld", "slurmdbd") * 2:
            ticket = await b.budget.admit(service, changing=True, patience=1.0)
            b.budget.answered(ticket, ok=False)
        stopped = b.budget.clock()
        b.budget.clock = lambda: stopped  # or the pause might be over
        spec = JobSpec("a", "#!/bin/sh\n", 1, 60.0)
        calls = [
            b.jobs(),
            b.nodes(),
            b.partitions(),
            b.reservations(),
            b.texts([1]),
            b.steps(1),
            b.find("x"),
            b.history(),
        ]
        calls += [b.submit(spec), b.update(1, priority=1), b.hold(1), b.release(1), b.requeue(1), b.cancel(1)]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, SlurmUnavailable) and "gave no answer" in str(answer)
        assert b.requests == before

    run(site(FITS), ask)


def test_the_major_release_is_what_must_match():
    assert misfit(Versions("22.5.3", "22.5.8"), (22, 5, 0)) is None
    assert misfit(Versions("25.11.0", "25.11.7"), (25, 11, 2)) is None
    for other in ((22, 4, 1), (25, 5), (23, 11)):
        assert "`slurm.backend: cli`" in misfit(Versions("22.5.3", "22.5.8"), other)


def test_the_configured_backend(monkeypatch):
    def made(backend, there):
        monkeypatch.setattr("penstock.core.backends.find_spec", lambda name: object() if there else None)
        return type(make_backend(config_of({"slurm": {"backend": backend}}))).__name__

    assert [made(kind, True) for kind in ("auto", "pyslurm", "cli")] == [
        "PyslurmBackend",
        "PyslurmBackend",
        "CliBackend",
    ]
    with structlog.testing.capture_logs() as lines:
        assert made("auto", False) == "CliBackend"
    (line,) = lines
    assert (line["event"], line["why"]) == ("Slurm is asked through its commands", "pyslurm is not installed")
    assert made("cli", False) == "CliBackend"
    with pytest.raises(ConfigError, match=r"pyslurm is not installed.*penstock\[pyslurm\]"):
        made("pyslurm", False)


def test_without_its_distribution_pyslurm_counts_for_nothing(monkeypatch):
    monkeypatch.setattr("penstock.core.backends.find_spec", lambda name: object())
    assert pyslurm_extension() is extension
    monkeypatch.setattr("penstock.core.backends.entry_points", lambda **sought: ())
    assert pyslurm_extension() is None
    assert type(make_backend(config_of({"slurm": {"backend": "auto"}}))).__name__ == "CliBackend"
    with pytest.raises(ConfigError, match="pyslurm is not installed"):
        make_backend(config_of({"slurm": {"backend": "pyslurm"}}))


def test_a_distribution_that_cannot_be_loaded_is_a_wrong_configuration(monkeypatch):
    broken = EntryPoint("pyslurm", "no_such_module:extension", "penstock.backends")
    monkeypatch.setattr("penstock.core.backends.find_spec", lambda name: object())
    monkeypatch.setattr("penstock.core.backends.entry_points", lambda **sought: (broken,))
    with pytest.raises(ConfigError, match=r"`slurm\.backend`: the backend 'pyslurm' cannot be loaded.*no_such_module"):
        make_backend(config_of({"slurm": {"backend": "auto"}}))


# -- what doctor is told -----------------------------------------------------------------------------------------


def version(backend, slurm=(22, 5, 8)):
    return run(backend, lambda b: extension.version(b.runner, slurm, 10.0))


def test_the_version_that_fits_is_told(site):
    assert version(site(FITS)) == "22.5.3"


def test_of_a_slurm_that_does_not_answer_it_is_only_known_that_pyslurm_starts(site):
    assert version(site(FITS), None) == "22.5.3"


@pytest.mark.parametrize("kind", UNFIT)
def test_why_it_does_not_fit_is_told(site, kind):
    text, why = UNFIT[kind]
    with pytest.raises(SlurmUnavailable, match=why):
        version(site(text))


# -- rows --------------------------------------------------------------------------------------------------------


def row(**changed):
    plain = dict.fromkeys(JOB) | {
        "id": 7,
        "user_id": 1000,
        "user": "alice",
        "partition": "batch",
        "state": "PENDING",
        "num_nodes": 2,
        "priority": 5,
        "is_batch_job": True,
    }
    return list((plain | changed).values())


def job(**changed):
    return job_from_values(row(**changed), lambda partition: 3600.0)


def test_a_limit_that_is_not_given_and_one_that_is_none():
    assert job().time_limit == 3600.0
    assert job(time_limit=10).time_limit == 600.0
    running = job(state="RUNNING", start_time=100, end_time=100 + 365 * 86400)
    assert (running.time_limit, running.end) == (None, None)
    assert job(state="COMPLETED", start_time=100, end_time=200).end == 200.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"array_id": 7, "array_tasks_waiting": "0-3,7"}, (7, None, 5)),
        ({"array_id": 7, "array_tasks_waiting": "10-20:2,40"}, (7, None, 7)),
        ({"array_id": 7, "array_tasks_waiting": "3"}, (7, 3, 1)),
        ({"array_id": 7, "array_task_id": 3}, (7, 3, 1)),
        ({"array_id": 6}, (6, 0, 1)),
        ({"array_id": 7, "allocated_nodes": "n1", "state": "RUNNING"}, (7, 0, 1)),
        ({"array_id": 7, "state": "CANCELLED"}, (None, None, 1)),
        ({}, (None, None, 1)),
    ],
)
def test_tasks_of_an_array(values, expected):
    seen = job(**values)
    assert (seen.array_job, seen.array_task, seen.tasks) == expected


NOTHING = {"after": [], "afterok": [], "singleton": False, "satisfy": "all"}


def test_dependencies_are_written_as_slurm_writes_them():
    assert job().dependency == ""
    two = NOTHING | {"afterok": ["5(unfulfilled)", "6(unfulfilled)"], "after": ["4+10(unfulfilled)"]}
    assert job(dependencies=two).dependency == "after:4+10(unfulfilled),afterok:5(unfulfilled),afterok:6(unfulfilled)"
    assert job(dependencies=NOTHING | {"satisfy": "any", "afterok": [5, 6]}).dependency == "afterok:5?afterok:6"
    assert job(dependencies=NOTHING).dependency == "singleton"


def test_only_what_may_be_a_resizer_is_looked_up_again():
    assert unreadable_dependency(row(dependencies=NOTHING, is_batch_job=False))
    assert not unreadable_dependency(row(dependencies=NOTHING))
    assert not unreadable_dependency(row(is_batch_job=False))
    assert not unreadable_dependency(row(dependencies=NOTHING, is_batch_job=False, state="RUNNING"))
    assert not unreadable_dependency(row(dependencies=NOTHING | {"afterok": [5]}, is_batch_job=False))


def record(**changed):
    plain = dict.fromkeys(HISTORY) | {
        "id": 7,
        "user": "alice",
        "partition": "batch",
        "state": "COMPLETED",
        "submit_time": 10,
        "eligible_time": 10,
        "start_time": 20,
        "end_time": 30,
        "num_nodes": 2,
    }
    return record_from_values(list((plain | changed).values()))


def test_records_that_are_doubted():
    assert record(partition=None) is None
    assert not record()[1]
    assert record(start_time=10)[1] and record(state="RESIZING")[1] and record(num_nodes=None)[1]
    assert record(exit_code=0, exit_code_signal=9)[0].exit_code == 137
    assert record(time_limit="PartitionLimit")[0].time_limit is None


@pytest.mark.parametrize(
    "rows", [[[1, 2]], [None], [row(id=None)], [row(user_id="x")], [row(array_tasks_waiting="x")], 7]
)
def test_what_is_no_row_is_no_answer(rows):
    with pytest.raises(ParseError):
        understood(job_from_values, rows, lambda partition: None)


def test_a_comment_that_would_be_cut_off_is_refused(site):
    spec = JobSpec("a", "#!/bin/sh\n", 1, 60.0, comment="x\0y")
    backend = site(FITS)
    backend._partitions = {}
    with pytest.raises(Infeasible, match="comment"):
        run(backend, lambda b: b.submit(spec))

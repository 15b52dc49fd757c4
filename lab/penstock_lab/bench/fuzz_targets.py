"""What `penstock_lab.bench.fuzz` throws bytes at: one function for each place where bytes of others are read.

A target takes any bytes and returns, or raises one of `Target.allowed`, the errors that its module documents. All else
is a finding. `seeds` are real inputs, from which others are made; `words` are what such inputs are made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from dmr import credential, wire
from penstock import config
from penstock.app import App
from penstock.errors import ConfigError, PenstockError, UserError
from penstock.ipc.handlers import LocalDoor
from penstock.resize.commands.molding import start_nodes
from penstock.sbatch import directives, job
from penstock.slurm import option_words, parse, records, refusals, site_settings
from penstock.slurm.parse import ParseError
from penstock.slurm.texts import texts_from_json
from penstock.state.store import Store
from penstock.values.yaml12 import parse_yaml
from penstock.workflow.files.formats import parse_workflow
from penstock.workflow.files.wfformat import Packing
from penstock.workflow.model import workflow_from_dict
from penstock.workflow.submit.admission import registration
from penstock.workflow.submit.chains import join, read_links
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.sim import swf
from penstock_planning.hold import requests
from penstock_planning.plan.queuefile import parse_queue
from penstock_planning.plan.session import Session
from penstock_planning.plan.sites import Hello
from penstock_planning.sites.file import read_sites
from penstock_pool.taskfile import read_tasks

__all__ = ["TARGETS", "Target"]

ANSWERS = Path(__file__).parents[3] / "tests" / "fixtures" / "slurm"
MARK = "@00c0ffee00c0ffee@"
KEY = credential.Key(1000, b"k" * 64)


@dataclass(frozen=True)
class Target:
    """See the module's text. `json`: inputs are mostly made by changing the values of a JSON document.
    `weight`: its share of the inputs, less where one costs more."""

    name: str
    run: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = field(default=())
    weight: int = 10
    json: bool = False


def text(data: bytes) -> str:
    """As the agent decodes what a command has written."""
    return data.decode("utf-8", "replace")


# -- the protocol of applications ------------------------------------------------------------------------------------


def _signed(request: wire.Request) -> bytes:
    return wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, KEY)))


_ABOUT: dict[str, Any] = {"job": 7, "epoch": 3, "time": 1e9}
_SAID: tuple[wire.Request, ...] = (
    wire.Check(size=4, minimum=1, maximum=8, preferred=2, nodes=("n1", "n2"), per_node=2, steps_left=9,
               step_seconds=1.5, companion=True, method="merge", **_ABOUT),
    wire.Announce(size=4, in_seconds=30.0, **_ABOUT),
    wire.Ended(jobs=(7, 8), **_ABOUT),
    wire.Accept(**_ABOUT),
    wire.Refuse(why="no memory", **_ABOUT),
    wire.Finished(size=4, nodes=("n1", "n2"), timings={"spawn": 0.5, "move": 2.0}, **_ABOUT),
)  # fmt: skip
_ANSWERED: tuple[wire.Reply, ...] = (
    wire.CheckReply(action="expand", size=4, epoch=3, nodes=("n1", "n2"), per_node=2, companion=9, reason="room"),
    wire.CheckReply(action="none", size=4, epoch=3),
    wire.Done(),
    wire.Failure(error="busy", message="later"),
)


def request_line(data: bytes) -> None:
    received = wire.decode_request(data)
    again = wire.decode_request(wire.encode(received.request))
    assert again.request == received.request, "a request does not survive being written and read"


def reply_line(data: bytes) -> None:
    reply = wire.decode_reply(data)
    assert wire.decode_reply(wire.encode(reply)) == reply, "a reply does not survive being written and read"


def token(data: bytes) -> None:
    said = data.decode("utf-8", "surrogateescape")
    digest = "0" * 64
    for check in (lambda: credential.verify_key(said, digest, KEY), lambda: not_munge(said, digest)):
        try:
            check()
        except credential.CredentialError:
            pass
        else:
            raise AssertionError("a forged credential is believed")


def not_munge(said: str, digest: str) -> None:
    if said.startswith("munge:"):
        raise credential.CredentialError("munged is not asked here")
    credential.verify_munge(said, digest)


# -- the command line's door -----------------------------------------------------------------------------------------


_knocks = itertools.count()


@cache
def _door() -> tuple[asyncio.AbstractEventLoop, LocalDoor]:
    """The operations of a whole agent over a simulated cluster, for a user whom it serves and does not trust."""
    backend = virtual_cluster(start=1e9)
    settings = config.config_of({"agent": {"serve": "all", "seed": 1}})
    running = asyncio.new_event_loop()
    app = App(settings, backend, backend.clock, Store(":memory:"))
    running.run_until_complete(app.start())
    return running, LocalDoor(app.operations)


def door(data: bytes) -> None:
    if next(_knocks) % 2000 == 0:  # what has been asked is kept, and makes each answer longer
        _door.cache_clear()
    running, local = _door()
    for uid in (1000, 0):
        answer = json.loads(running.run_until_complete(local.answer(uid, data)))
        if not answer["ok"] and "internal error" in answer["message"]:
            raise AssertionError(f"as user {uid}: {answer['message']}")


def document(data: bytes) -> dict[str, object]:
    """As the door hands a request on: a map, or it has been refused there."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def guided(data: bytes) -> None:
    registration(document(data), 1e9)


def followed(data: bytes) -> None:
    join([], read_links(document(data), 1e9))


def workflow_of_request(data: bytes) -> None:
    workflow_from_dict(document(data))


_STAGES = {
    "op": "guide", "workflow": "mosaic", "strategy": "asa", "run": None, "replaces": {"merge": 6},
    "stages": [
        {"name": "project", "job": 5, "after": [], "expect": 600.0, "hold": True, "base": "afterok:4",
         "kept": "begin", "begin": 1.8e9,
         "order": {"words": ["-N", "2", "a.sh"], "workdir": "/home/a", "script": "#!/bin/sh\n"}},
        {"name": "merge", "job": 6, "after": ["project"]},
    ],
}  # fmt: skip
_LINKS = {
    "op": "follow",
    "links": [
        {"called": "align", "job": 5, "dependency": "", "at": 1e9,
         "order": {"words": ["a.sh"], "workdir": "/home/a", "script": None}},
        {"called": "a b", "job": 6, "dependency": "afterok:5,afterany:4_[1,2]?after:3+5", "near": [5], "at": 1e9},
    ],
}  # fmt: skip
_WORKFLOW = {
    "version": 1, "name": "w", "partition": None, "account": None, "qos": None, "workdir": "/", "source": "w.yaml",
    "environment": {"A": "b"},
    "stages": [
        {"name": "a", "nodes": 2, "time_limit": 600.0, "run_time": 60.0, "command": "./a", "after": [], "retries": 1,
         "guessed": False, "meanwhile": ""},
        {"name": "b", "nodes": 1, "time_limit": 60.0, "run_time": 60.0, "command": "./b", "after": ["a"]},
    ],
}  # fmt: skip
_REQUESTS = (
    {"op": "ping"}, {"op": "status"}, {"op": "explain", "subject": "workflow 3/align"}, {"op": "env"},
    {"op": "explain", "subject": "job 7"}, {"op": "cancel", "run": 1}, {"op": "retry", "run": 1, "stage": "a"},
    {"op": "submit", "workflow": _WORKFLOW, "strategy": "asa"}, _STAGES, {**_STAGES, "op": "plan"}, {"op": "queue"},
    _LINKS,
    {"op": "pause", "feature": "workflows", "uid": 1000, "partition": None, "why": "maintenance"},
    {"op": "resume", "feature": None, "uid": 1000, "partition": None},
    {"op": "waits", "geometry": {"nodes": 2, "time_limit": 600.0, "partition": "batch"}}, {"op": "waits"},
)  # fmt: skip


# -- files that people write -----------------------------------------------------------------------------------------

_YAML = b"""\
name: mosaic
partition: batch
account: acc
qos: normal
workdir: /scratch/mosaic
environment: {OMP_NUM_THREADS: 4, A: "b c"}
stages:
  - name: project
    nodes: 4
    time: 30m
    expect: 12m
    run: |
      srun ./project
    retries: 1
  - name: merge
    after: [project]
    nodes: 1
    time: 00:10:00
    run: ./merge
"""
_TRICKS = (
    b"&a ", b"*a", b"!!int ", b"!!timestamp ", b"!!binary ", b"!!set ", b"!!python/object:os.system ", b"<<: ",
    b"2001-99-99", b"0x", b"0o7", b".inf", b".nan", b"1e999", b"? ", b"- ", b"%YAML 1.1\n", b"---\n", b"...\n", b"|2-",
    b"\xef\xbb\xbf", b"\x00", b"\xc2\xb2", b"\xd9\xa3", b"9" * 5000, b"[" * 500, b"{a: " * 300, b"~", b"\t",
)  # fmt: skip


def _tasks(name: str, program: str, seconds: float, parents: list[str]) -> tuple[dict[str, object], dict[str, object]]:
    said: dict[str, object] = {"name": name, "id": name, "parents": parents, "children": [], "inputFiles": []}
    said["outputFiles"] = []
    command = {"program": program, "arguments": ["-x", name]}
    return said, {"id": name, "runtimeInSeconds": seconds, "coreCount": 1, "command": command}


_TASKS = [_tasks("a_1", "split", 10.0, []), _tasks("b_1", "work", 5.5, ["a_1"]), _tasks("b_2", "work", 6, ["a_1"])]
_INSTANCE = {
    "name": "instance", "schemaVersion": "1.5", "runtimeSystem": {"name": "x"},
    "workflow": {"specification": {"tasks": [a for a, _ in _TASKS], "files": []},
                 "execution": {"makespanInSeconds": 20, "tasks": [b for _, b in _TASKS], "machines": []}},
}  # fmt: skip


def wfformat(data: bytes) -> None:
    for packing in (None, Packing(nodes=2, cores=2, command="{program} {arguments} {runtime}", time=60.0)):
        parse_workflow(data, "w.json", packing)


@cache
def _scratch() -> Path:
    """A file in memory where there is one: most of these parsers read a file."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="penstock-fuzz-", dir=shared if shared.is_dir() else None)) / "input"


def _file(data: bytes, suffix: str = "") -> Path:
    path = _scratch().with_suffix(suffix)
    path.write_bytes(data)
    return path


_LOG = b"""\
; Version: 2.2
; MaxProcs: 128
1 0 5 100 4 -1 -1 4 120 -1 1 1 1 -1 1 -1 -1 -1
2 10 -1 60.00 8 12.5 1e3 16 60 -1 0 2 1 3 1 1 1 10
3 20 0 30 -1 -1 -1 2 -1 -1 5 3 1 -1 1 -1 -1 -1
"""


def workload(data: bytes) -> None:
    path = _file(data, ".swf")
    for skip_bad, keep, estimates in ((True, "strong", "user"), (False, "singh", "actual")):
        with contextlib.suppress(UserError):
            swf.load(path, 128, keep, estimates, skip_bad)
    swf.machine_procs(path)


def settings(data: bytes) -> None:
    """The configuration file; what stands after a line of `===` are variables of the environment."""
    file, _, variables = data.partition(b"\n===\n")
    pairs = (line.partition("=") for line in variables.decode("utf-8", "surrogateescape").split("\n"))
    environ = {f"PENSTOCK_{name}": value for name, _, value in pairs}
    config.load(_file(file, ".yaml"), environ)


def _shipped() -> bytes:
    return (Path(__file__).parents[3] / "deploy" / "penstock.yaml").read_bytes()


def hold_request(data: bytes) -> None:
    requests.read(_file(data, ".request"), b"k" * 32)


def _hold_seed() -> bytes:
    body = {"name": "r", "user": "a", "account": "x", "nodes": 2, "nodelist": [], "partition": "batch", "start": 1,
            "duration": 60.0, "price": 1.0}  # fmt: skip
    return json.dumps({**body, "signature": requests._sign(b"k" * 32, body)}).encode()


def tasks(data: bytes) -> None:
    read_tasks(_file(data, ".jsonl"), "/work")


def queue_file(data: bytes) -> None:
    parse_queue(text(data))


@cache
def _session() -> Session:
    return Session(parse_queue(json.dumps(_QUEUE)), live=False)


def question_of_a_planner(data: bytes) -> None:
    _session().answer(document(data))
    _session().answer({"forget": True})


def hello_of_a_site(data: bytes) -> None:
    Hello.parse(document(data))


def sites_file(data: bytes) -> None:
    read_sites(_file(data, ".yaml"))


_SITES = b"""sites: {here: {}, far: {host: me@far, partition: batch, speed: 1.5, price: 0.8, data: "me@far:run/"}}
links: [{between: [here, far], bandwidth: 100 MB/s, latency: 2s}]
staging: [rsync, -a, "{source}{path}", "{target}{path}"]
patience: 30s
"""
_QUESTIONS = (
    {"quote": {"procs": 2, "duration": 3, "after": 1}},
    {"take": {"name": "a", "start": 3, "duration": 2, "nodes": "3"}},
    {"forget": True},
)
_QUEUE = {
    "procs": 5, "now": 0, "policy": "conservative", "horizon": 8, "c": 1,
    "jobs": [{"id": "A", "procs": 1, "duration": 2, "state": "running", "start": 0, "on": [0]},
             {"id": "R", "procs": 1, "duration": 3, "state": "reserved", "start": 4, "on": [2]},
             {"id": "C", "procs": 2, "duration": 4, "state": "pending"}],
}  # fmt: skip


# -- command lines and scripts ---------------------------------------------------------------------------------------

_SCRIPT = b"""\
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4
#PENSTOCK workflow=mosaic stage=merge after=project,mask
#PENSTOCK expect=40m malleable=2:32:8:2 strategy=asa
# a comment
srun ./merge
"""


def command_line(data: bytes) -> None:
    line = option_words.read_words(data.decode("utf-8", "surrogateescape").split("\0"))
    asked = directives.request(directives.own_options(line.ours), {}, line.without("hold").value("job-name"))
    start_nodes(job.SbatchJob(line, option_words.SbatchWords(), asked), {})


def script(data: bytes) -> None:
    lines = text(data).splitlines()
    asked = directives.request({}, directives.read_directives(lines, "a.sh"), "name")
    it = job.SbatchJob(option_words.SbatchWords(), option_words.script_words(lines), asked)
    start_nodes(it, {"DMR_RANKS_PER_NODE": "9" * 50})


# -- what Slurm's commands write -------------------------------------------------------------------------------------


def _answers(name: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(ANSWERS.glob(f"*/{name}")))


def jobs(data: bytes) -> None:
    for row in records.split_rows(text(data), records.JOB_FIELDS, MARK):
        records.job_from_row(row, lambda _: 600.0)


def steps(data: bytes) -> None:
    for row in records.split_rows(text(data), records.STEP_FIELDS, MARK):
        records.step_from_row(row, 7)


def accounting(data: bytes) -> None:
    records.accounting_from_rows(records.split_rows(text(data), records.ACCOUNTING_FIELDS, MARK))


def lines(read: Callable[[str], object], key: str, data: bytes) -> None:
    for line in records.lines_of(text(data), key, "none of this in the system"):
        read(line)


def site(data: bytes) -> None:
    said = text(data)
    site_settings.slurm_user(said)
    site_settings.clock_from_config(said)
    site_settings.site_from_text(said)


def _short(rows: int, answers: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The first rows of each, and each row alone below the heading: small inputs are tried faster."""
    cut = [b"".join(answer.splitlines(keepends=True)[:rows]) for answer in answers]
    return tuple(cut)


_WORDS = (
    b"1795296586", b"2026-11-22T03:00:00", b"1-02:03:04", b"UNLIMITED", b"Partition_Limit", b"2K", b"2-4", b"1.5M",
    b"n[1-3,07-09],x5", b"r[0-1]n[1-2]", b"0-5%2", b"1,3-9:2,20", b"0:15", b"22.05.8-rc1", b"CANCELLED by 1000",
    b"IDLE+DRAIN", b"down*", b"mix-", b"cpu=1,mem=1M,node=1", b"(null)",
)  # fmt: skip
_ONES: tuple[Callable[[str], object], ...] = (
    parse.parse_time, parse.parse_limit, parse.parse_count, parse.parse_array_tasks, parse.parse_exit_code,
    parse.parse_pairs, parse.parse_version, parse.parse_job_state, parse.parse_node_state, parse.parse_config,
    records._weights, records._memory,
)  # fmt: skip


def word(data: bytes) -> None:
    said = text(data)
    for one in _ONES:
        with contextlib.suppress(ParseError):
            one(said)
    with contextlib.suppress(ParseError):
        hosts = parse.expand_hosts(said)
        assert set(parse.expand_hosts(parse.compress_hosts(hosts))) == set(hosts), "host names change"


def shares(data: bytes) -> None:
    records.shares_from_text(text(data), "games")


def texts(data: bytes) -> None:
    texts_from_json(text(data), {4, 7, 12})


def refusal(data: bytes) -> None:
    said = text(data)
    refusals.message_of(said)
    refusals.unanswered(said)
    refusals.refused(said, ("Invalid job id",))
    for changing in (True, False):
        assert isinstance(refusals.classify(said, changing=changing), PenstockError)


def _json(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _targets() -> tuple[Target, ...]:
    wrong, no_answer = (UserError,), (ParseError,)
    numbers = (
        *_WORDS,
        MARK.encode(),
        b"\n",
        b"|",
        b"=",
        b",",
        b" ",
        b"-1",
        b"9" * 5000,
        b"\xc2\xb2",
        b"\xd9\xa3",
        b"]",
    )
    tricks = (*_TRICKS, *(line.strip() for line in _YAML.splitlines()))
    ours = (b"#PENSTOCK ", b"#SBATCH ", b"--penstock-stage", b"\0", b"=", b"'", b'"', b"\\", b"-", b"--", b":", b"-N",
            b"--malleable=", b"2:32:8:2", b"9" * 5000, b"\xc2\xb2", b"\xd9\xa3", b",",
            b"expect=1-00", b"after=")  # fmt: skip
    show = partial(partial, lines)
    small = partial(_short, 4)
    return (
        Target("wire request", request_line, (wire.WireError,), tuple(map(_signed, _SAID)), json=True, weight=20),
        Target("wire reply", reply_line, (wire.WireError,), tuple(map(wire.encode, _ANSWERED)), json=True, weight=40),
        Target("credential", token, (), (b"key:" + b"0" * 64, b"munge:MUNGE:AwQDAAB:", b""), weight=40),
        Target("door", door, (), _json(*_REQUESTS), json=True, weight=2),
        Target("guide", guided, wrong, _json(_STAGES), json=True),
        Target("follow", followed, wrong, _json(_LINKS), json=True),
        Target("submit", workflow_of_request, (UserError, KeyError, TypeError, ValueError), _json(_WORKFLOW),
               json=True),
        Target("workflow YAML", parse_workflow, wrong, (_YAML,), tricks, 1),
        Target("YAML", lambda data: parse_yaml(data, "x"), wrong, (_YAML, _shipped()), tricks, 1),
        Target("WfFormat", wfformat, wrong, _json(_INSTANCE), json=True, weight=4),
        Target("SWF", workload, wrong, (_LOG,), (b"-1", b"1e309", b";", b"\n", b"9" * 20, b" ", b"\x1f\x8b"), 2),
        Target("configuration", settings, (ConfigError,), (_shipped(), _settings_seed()), tricks, 1),
        Target("sbatch options", command_line, wrong, _command_lines(), ours),
        Target("job script", script, wrong, (_SCRIPT,), ours, 5),
        Target("hold request", hold_request, wrong, (_hold_seed(),), json=True, weight=3),
        Target("task file", tasks, wrong, _json(_TASK), json=True, weight=3),
        Target("queue file", queue_file, wrong, _json(_QUEUE), json=True),
        Target("file of sites", sites_file, wrong, (_SITES,), tricks, 3),
        Target("session question", question_of_a_planner, (), _json(*_QUESTIONS), json=True, weight=3),
        Target("session hello", hello_of_a_site, wrong, _json(_session().hello()), json=True, weight=5),
        Target("squeue", jobs, no_answer, small(_answers("squeue_jobs.txt")), numbers, 40),
        Target("squeue -s", steps, no_answer, small(_answers("squeue_steps.txt")), numbers, 40),
        Target("squeue --json", texts, no_answer, _json(_QUEUE_JSON), json=True, weight=40),
        Target("sacct", accounting, no_answer, small(_answers("sacct.txt")), numbers, 40),
        Target("scontrol nodes", show(records.node_from_line, "NodeName"), no_answer,
               small(_answers("nodes.txt")), numbers, 5),
        Target("scontrol partition", show(records.partition_from_line, "PartitionName"), no_answer,
               small(_answers("partitions.txt")), numbers),
        Target("scontrol reservations", show(records.reservation_from_line, "ReservationName"), no_answer,
               small(_answers("reservations.txt")), numbers),
        Target("scontrol licenses", show(records.license_from_line, "LicenseName"), no_answer,
               small(_answers("licenses.txt")), numbers, 40),
        Target("scontrol config", site, no_answer, _answers("config.txt"), numbers, 3),
        Target("sbatch --test-only", lambda data: records.estimate_from_text(text(data)), no_answer,
               _answers("estimate.txt"), numbers, 40),
        Target("sshare", shares, no_answer, (b"acc|games|0.5\nacc||\n",), numbers, 40),
        Target("Slurm's words", word, no_answer, _WORDS, numbers),
        Target("Slurm's refusals", refusal, (), _answers("estimate_refused.txt"), numbers),
    )  # fmt: skip


_TASK = {"command": ["a"], "cores": 1, "memory": "1G", "name": "x"}
_QUEUE_JSON = {
    "jobs": [{"job_id": 7, "name": "a", "comment": "", "current_working_directory": "/", "command": "/a"},
             {"job_id": 8, "name": None}],
}  # fmt: skip


def _settings_seed() -> bytes:
    return (
        b"agent: {serve: all, interval: 90s, seed: 3}\nasa:\n  alternatives: [1, 2, 3]\ndmr:\n  listen: 0.0.0.0:0\n"
        b"metrics: {listen: '127.0.0.1:9100'}\n===\nAGENT__INTERVAL=5m\nASA__ALTERNATIVES=[1, 2]\n"
    )


def _command_lines() -> tuple[bytes, ...]:
    return (
        b"-N\0002\0--time=1:00\0--penstock-workflow=w\0--penstock-stage\0a\0a.sh\0-N",
        b"--penstock-malleable=2:32:8:2\0--ntasks-per-node=4\0--wrap\0srun x",
        b"-HN2\0:\0--nodes\0003\0--\0a.sh",
    )


TARGETS = _targets()

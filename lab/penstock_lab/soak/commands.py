"""What users do by commands in the real soak: slots, bags, guided and reserved workflows; the commands are killed, too.

They run beside the storm, two at a time, and find Slurm as the agent does: slow, failing, or deadly for them.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from penstock_lab.soak.bounds import Span
from penstock_lab.soak.site import BOB, OPERATOR, OWNER, Site

__all__ = ["Guided", "Reserved", "UserCommands"]

USERS: Final = (OWNER, BOB, OPERATOR)
_AT_ONCE: Final = 2
_QUEUE: Final = 12
_KILLED: Final = 0.15  # the share of commands that are, some time within so many seconds
_LIVES: Final = 4.0
_LONGEST: Final = 240.0  # s: a command that takes longer hangs
_SOON: Final = 240.0  # s: for a plan that begins later nobody waits here
_SITE: Final = "partitions:\n  {cluster}/batch: {{base: 3 GHz, charge: 1}}\n"
_TASK: Final = """\
name: {name}
run: |
{run}
time: 2m
requirements: [{{type: compute, form: {{isa: x86}}, amount: 6e9}}]
"""


@dataclass
class _Command:
    who: str
    words: tuple[str, ...]
    then: Callable[[int, str], None] | None = None
    process: Any = None
    began: float = 0.0
    dies_at: float = float("inf")
    output: IO[str] | None = None
    errors: IO[str] | None = None


@dataclass
class Guided:
    """A workflow of jobs that its user submits one by one; `given_up`: a submission failed, and the user let it be."""

    name: str
    after: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: bool = False
    given_up: bool = False


@dataclass
class Reserved:
    """A workflow whose slots were reserved, or were to be."""

    name: str
    after: dict[str, tuple[str, ...]]


class UserCommands:
    """`wrong` is what must not be, `spans` are the commands from their start to their end, by user."""

    def __init__(
        self, place: Site, draw: random.Random, counts: Counter[str], ledger: Path, event: Callable[[str], None]
    ) -> None:
        self._site = place
        self._draw = draw
        self._counts = counts
        self._ledger = ledger
        self._event = event
        self._number = count(1)
        self._files = count(1)
        self._waiting: deque[_Command] = deque()
        self._running: list[_Command] = []
        self.kills = True
        self.wrong: list[str] = []
        self.spans: list[Span] = []
        self.guided: list[Guided] = []
        self.reserved: list[Reserved] = []
        self.slots: set[str] = set()

    def prepare(self) -> None:
        """The folder for what commands say, and the site file that bags are sent by."""
        self._out.mkdir()
        for who in (OWNER, BOB):
            self._file(who, "site.yaml").write_text(_SITE.format(cluster=self._site.cluster.name))

    @property
    def _out(self) -> Path:
        return self._site.cluster.folder / "commands"

    def _file(self, who: str, name: str) -> Path:
        """In the user's home, where root writes and everybody reads."""
        return self._site.cluster.home(who) / name

    # -- commands ------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether any command runs or waits for its turn."""
        return bool(self._running or self._waiting)

    def tend(self) -> None:
        """Begin what waits, end what is to be killed, read what is over."""
        now = time.time()
        for command in list(self._running):
            if command.process.poll() is not None:
                self._running.remove(command)
                self._over(command)
            elif now >= command.dies_at:
                # With its children or without: what was asked of Slurm may still get there.
                with suppress(ProcessLookupError):
                    if self._draw.random() < 0.5:
                        command.process.kill()
                    else:
                        self._site.end_group(command.process, signal.SIGKILL)
                command.dies_at = float("inf")
            elif now - command.began > _LONGEST:
                self.wrong.append(f"hangs for {_LONGEST:.0f} s: {command.who}: penstock {shlex.join(command.words)}")
                self._site.end_group(command.process, signal.SIGKILL)
                command.began = float("inf")
        while self._waiting and len(self._running) < _AT_ONCE:
            self._begin(self._waiting.popleft())

    def end(self) -> None:
        """Kill what runs."""
        for command in self._running:
            self._site.end_group(command.process, signal.SIGKILL)
            command.process.wait(10)
        self._running.clear()
        self._waiting.clear()

    def _begin(self, command: _Command) -> None:
        number = next(self._files)
        command.output = (self._out / f"{number}.out").open("w+")
        command.errors = (self._out / f"{number}.err").open("w+")
        command.began = time.time()
        command.process = self._site.begin(command.who, command.words, command.output, command.errors)
        if self.kills and self._draw.random() < _KILLED:
            command.dies_at = command.began + self._draw.uniform(0.2, _LIVES)
        self._running.append(command)

    def _over(self, command: _Command) -> None:
        self.spans.append(Span(command.who, min(command.began, time.time()), time.time()))
        said = []
        for file in (command.output, command.errors):
            assert file is not None
            file.seek(0)
            said.append(file.read())
            file.close()
            Path(file.name).unlink()
        output, errors = said
        code, what = command.process.returncode, f"{command.who}: penstock {shlex.join(command.words)}"
        self._counts["commands"] += 1
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            self._counts["commands killed"] += 1
        elif code:
            self._counts["commands that failed"] += 1
        if code:
            self._event(f"{what} ended with {code}: {output.strip()[-300:]} {errors.strip()[-200:]}")
        if "Traceback" in errors:
            self.wrong.append(f"{what}: {errors.strip()[-1500:]}")
        if command.then is not None:
            command.then(code, output)

    def run(self, who: str, *words: str, then: Callable[[int, str], None] | None = None) -> None:
        """Begin it when its turn comes; `then` gets its exit code and output. One of too many is not begun."""
        if then is not None or len(self._waiting) < _QUEUE:
            self._waiting.append(_Command(who, words, then))

    # -- what users do -------------------------------------------------------------------------------------------------

    def _script(self, run: str, stage: str, seconds: float) -> str:
        def line(what: str) -> str:
            return f"echo {run} {stage} $SLURM_JOB_ID {what} $(date +%s.%N) >>{self._ledger}\n"

        return f"{line('begin')}sleep {seconds:g}\n{line('end')}"

    def hold(self) -> None:
        """A slot: an operator's is a reservation for somebody, that of another user a job that idles."""
        draw, name = self._draw, f"slot{next(self._number)}"
        who = draw.choice(USERS)
        self.slots.add(name)
        self._counts["slots"] += 1
        words = ["hold", "open", "-t", "1m", "--name", name, "-N"]
        if who == OPERATOR:
            words += ["1", "--at", f"now+{draw.randint(2, 3)}m", "--kind", "reservation"]
            words += ["-u", self._site.cluster.users[draw.choice(USERS)]]
        else:
            words += [str(draw.randint(1, 2)), "--at", f"now+{draw.randint(15, 60)}s", "--kind", "var"]
            words += ["--run", f"sleep {draw.randint(2, 20)}"]
        self.run(who, *words)

    def give_up(self) -> None:
        """A slot is given back before its time, or after."""
        who = self._draw.choice(USERS)
        self.run(who, "hold", "list", "--json", then=lambda code, text: self._cancel_one(who, code, text))

    def _cancel_one(self, who: str, code: int, text: str) -> None:
        if code == 0 and (rows := json.loads(text)["holds"]):
            self.run(who, "hold", "cancel", str(self._draw.choice(rows)["hold"]))

    def bag(self) -> None:
        """A bag of tasks."""
        draw, name = self._draw, f"bag{next(self._number)}"
        who = draw.choice((OWNER, OWNER, BOB))
        self._counts["bags"] += 1
        lines = self._script(f"{who}.${{SLURM_JOB_NAME%.*}}", "$PENSTOCK_TASK", draw.uniform(1, 8)).splitlines()
        run = "\n".join(f"  {line}" for line in lines)
        self._file(who, f"{name}.yaml").write_text(_TASK.format(name=name, run=run))
        self.run(who, "select", f"{name}.yaml", "--site-file", "site.yaml", "-n", str(draw.randint(2, 6)), "--submit")

    def guide(self) -> None:
        """A workflow of the user's own jobs, one `penstock sbatch` after the other."""
        draw = self._draw
        one = Guided(f"g{next(self._number)}")
        self.guided.append(one)
        self._counts["guided workflows"] += 1
        self._stage(one, draw.randint(2, 4), draw.choice(("asa", "asa", "perstage")))

    def _stage(self, one: Guided, left: int, strategy: str) -> None:
        if left == 0:
            one.whole = True
            return
        name, before = f"s{len(one.after)}", list(one.after)
        seconds = self._draw.uniform(2, 10)
        script = self._file(OWNER, f"{one.name}.{name}.sh")
        script.write_text("#!/bin/bash\n" + self._script(one.name, name, seconds))
        words = ["-J", f"{one.name}.{name}", "-N", str(self._draw.randint(1, 2)), "-t", "5", "-o", "/dev/null"]
        words += [f"--penstock-workflow={one.name}", f"--penstock-stage={name}"]
        words += [f"--penstock-expect={seconds:.0f}s", f"--penstock-strategy={strategy}"]
        after = tuple(before[-1:])
        words += [f"--penstock-after={after[0]}"] if after else []

        def then(code: int, _text: str) -> None:
            if code == 0:
                one.after[name] = after
                self._stage(one, left - 1, strategy)
            else:
                one.given_up = True

        self.run(OWNER, "sbatch", *words, str(script), then=then)

    def reserve(self) -> None:
        """A plan of one or two stages, each in a reservation of its own."""
        draw, name = self._draw, f"r{next(self._number)}"
        stages = [f"s{i}" for i in range(draw.randint(1, 2))]
        after: dict[str, tuple[str, ...]] = {stage: (stages[i - 1],) if i else () for i, stage in enumerate(stages)}
        self.reserved.append(Reserved(name, after))
        self._counts["reserved workflows"] += 1
        rows = [
            {
                "name": stage,
                "nodes": 1,
                "time": "1m",
                "expect": "10s",
                "run": self._script(name, stage, draw.uniform(2, 10)),
                "after": list(parents),
            }
            for stage, parents in after.items()
        ]
        self._file(OPERATOR, f"{name}.yaml").write_text(json.dumps({"name": name, "stages": rows}))
        words = ("plan", f"{name}.yaml", "--alpha", "0", "--reserve", "--json")
        self.run(OPERATOR, *words, then=lambda code, text: self._reserved(name, code, text))

    def _reserved(self, name: str, code: int, text: str) -> None:
        if code == 0:
            self._counts["reserved workflows that had their slots"] += 1
            begin = min(stage["start"] for stage in json.loads(text)["stages"])
            if begin - time.time() > _SOON:
                self._event(f"{name} would begin in {begin - time.time():.0f} s: it is given up")
                self.run(OPERATOR, "cancel", name)

    def tick(self) -> None:
        """What a crontab does: slots and plans are looked after where no agent runs, bags of everybody."""
        for who in (BOB, OPERATOR):
            self.run(who, "hold", "tick")
        for who in (OWNER, BOB):
            self.run(who, "bags")

    # -- the end -------------------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """What a user does who sees that nothing becomes of it: jobs of a workflow that was given up are withdrawn."""
        given_up = {one.name for one in self.guided if one.given_up}
        rows = [line.split() for line in self._site.slurm("squeue", "-h", "-a", "-o", "%A %j").splitlines()]
        jobs = [row[0] for row in rows if len(row) == 2 and row[1].split(".")[0] in given_up]
        if jobs:
            self._site.cluster.run_as(OWNER, ["scancel", *jobs])

    def cancel_all(self) -> None:
        """What is left of slots, plans and bags is given up."""
        for who in USERS:
            for number in self.holds()[who]:
                self.run(who, "hold", "cancel", number.split()[0])
        for run in self.runs():
            self.run(OPERATOR, "cancel", run)
        for who, numbers in self.bags().items():
            for number in numbers:
                self.run(who, "bags", number, "--cancel")

    def over(self) -> bool:
        """Whether nothing of all this is under way."""
        left = (*self.holds().values(), *self.bags().values(), self.runs())
        return not self.busy and not any(left)

    def holds(self) -> dict[str, list[str]]:
        """The slots of each user that are not settled: number and phase."""
        found = {}
        for who in USERS:
            rows = self.query(who, "ledger.db", "SELECT id, state FROM holds WHERE final = 0")
            found[who] = [f"{number} ({json.loads(text)['phase']})" for number, text in rows]
        return found

    def runs(self) -> list[str]:
        """The reserved workflows that are not over."""
        return [str(name) for (name,) in self.query(OPERATOR, "ledger.db", "SELECT name FROM runs WHERE final = 0")]

    def bags(self) -> dict[str, list[str]]:
        """The bags of each user that are not finished. A number that was taken, with nothing in it, is none."""
        found: dict[str, list[str]] = {}
        for who in (OWNER, BOB):
            found[who] = []
            for file in sorted((self._site.folder(who) / "bags").glob("*.json")):
                text = file.read_text()
                if text and json.loads(text)["finished"] is None:
                    found[who].append(file.stem)
        return found

    def query(self, who: str, name: str, sql: str) -> list[tuple[Any, ...]]:
        """Rows of one of a user's files; none where it is not there."""
        path = self._site.folder(who) / name
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
            return list(database.execute(sql))


SLOT_OF_RUN: Final = re.compile(r"(r\d+)-[0-9a-f]{6}-(s\d+)(?:$|[-.])")
"""The name of a reserved workflow's job: flow, token, stage."""

"""What tools say to Slurm (`dialogues`), said to the front programs and to Slurm's own commands, side by side: every
answer is one that the tool understands, both mean the same, and the jobs run, end and are cancelled as they should."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from agents import Desk, SlurmAgent
from dialogues import DIALOGUES, GONE, TABLE, Call, Dialogue
from flaky import flaky

from penstock_lab.cluster import Cluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(300, func_only=True),
    pytest.mark.parametrize(
        "another",
        [None, *(pytest.param(r, marks=[pytest.mark.release, pytest.mark.long]) for r in ("trixie", "sid"))],
        indirect=True,
        scope="module",
    ),
]
ANOTHER = {"nodes": 10}
PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
TOOLS = [dialogue.tool for dialogue in DIALOGUES]

Read = dict[str, str]
"""What a tool took from a line; jobs by their names in the dialogue."""


class Talk:
    """One dialogue, held with the programs that are first on `path`. `bare_path`: PATH in an environment that has
    nothing else, or None for none, where the program is called by its whole path."""

    def __init__(self, site: SlurmAgent, dialogue: Dialogue, path: str, name: str, bare_path: str | None) -> None:
        self.site, self.dialogue, self.path, self.bare_path = site, dialogue, path, bare_path
        self.work = site.cluster.home("alice") / f"{name}-{dialogue.tool}"
        self.known: dict[str, str] = {"work": str(self.work), "user": site.cluster.users["alice"]}
        self.jobs: dict[str, str] = {}
        """Their names by their numbers."""
        self.read: list[tuple[str, list[Read]]] = []
        """The last answer to each call, as the tool took it."""
        self.failure: BaseException | None = None

    def hold(self) -> None:
        """Write the files, make the calls one after the other, and see what the jobs have left."""
        try:
            release = self.site.cluster.slurm_version
            line, since = self.dialogue.refused
            for name, text in self.dialogue.files.items():
                kept = text.replace(line, "") if release >= since else text
                self._write(name, kept.replace("{work}", str(self.work)))
            for call in self.dialogue.calls:
                if call.since <= release < call.before:
                    self._make(call)
            for name, text in self.dialogue.leaves.items():
                file = self.work / self._said(name)
                self.site.until(lambda file=file, text=text: self._holds(file, text), str(file), 20)
        except BaseException as e:
            self.failure = e

    def _write(self, name: str, text: str) -> None:
        line = 'mkdir -p "${1%/*}" && printf %s "$2" > "$1"'
        self._run(["bash", "-c", line, "-", str(self.work / name), text], check=True)

    def _holds(self, file: Path, text: str) -> bool:
        return file.exists() and file.read_text() == text

    def _run(self, words: list[str], **more: object):
        env = {"PATH": self.path, "PENSTOCK_SHIM_PATIENCE": "120"}
        home = self.site.cluster.home("alice")
        options = {"env": env, "cwd": home, "timeout": 200, **more}
        return self.site.cluster.run_as("alice", words, **options)

    def _said(self, text: str) -> str:
        for name, value in self.known.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _make(self, call: Call) -> None:
        deadline = time.monotonic() + 90
        about = self._said(call.about)
        while True:
            rows = self._once(call)
            states = [row.get("state", "") for row in rows if not about or row.get("job") == about]
            if call.until in ("", *states) or (call.until == GONE and not states):
                break
            assert time.monotonic() < deadline, f"{call.words} says {rows}, not {call.until}"
            time.sleep(0.5)
        of_ours = [{**row, "job": self.name_of(row["job"])} if "job" in row else row for row in rows]
        kept = [row for row in of_ours if not about or row.get("job") == self.name_of(about)]
        self.read.append((" ".join(call.words), kept))

    def _once(self, call: Call) -> list[Read]:
        words = [self._said(word) for word in call.words]
        home = str(self.site.cluster.home("alice"))
        more: dict[str, object] = {"cwd": Path(self._said(call.folder).replace("~", home))}
        if call.script:
            more["input"] = (self.work / call.script).read_text()
        if call.bare:
            words = [*self._bare(home), *self._whole(words)]
        else:
            words = ["env", *(f"{name}={value}" for name, value in call.environ.items()), *words]
        done = self._run(words, **more)
        out, err = (done.stdout + done.stderr, "") if call.merged else (done.stdout, done.stderr)
        said = f"{words} said {done.stdout!r}, {done.stderr!r}"
        assert done.returncode == 0, said
        told = re.fullmatch(call.errors, err)
        assert told, said
        assert [told["job"]] == [words[-1]] if "job" in told.re.groupindex else True, said
        rows = table(out) if call.reads == TABLE else [self._line(call, line) for line in out.splitlines()]
        if call.saves:
            self._save(call.saves, rows, out)
        return rows

    def _bare(self, home: str) -> list[str]:
        conf = self.site.cluster.user_env("alice")["SLURM_CONF"]  # which a site has in its usual place
        return ["env", "-i", f"HOME={home}", f"SLURM_CONF={conf}", *([] if not self.bare_path else [self.bare_path])]

    def _whole(self, words: list[str]) -> list[str]:
        folder = next((f for f in self.path.split(":") if shutil.which(words[0], path=f)), "/usr/bin")
        return [f"{folder}/{words[0]}", *words[1:]]

    def _line(self, call: Call, line: str) -> Read:
        found = re.fullmatch(call.reads, line)
        assert found, f"{call.words} has the line {line!r}"
        return {name: value for name, value in found.groupdict().items() if name != "host"}

    def _save(self, name: str, rows: list[Read], out: str) -> None:
        if "job" not in rows[0]:
            self.known[name] = ",".join(out.split())
            return
        (row,) = rows
        self.known[name] = row["job"]
        self.jobs[row["job"]] = name

    def name_of(self, number: str) -> str:
        job, line, task = number.partition("_")
        return self.jobs.get(job, "another") + line + task


def table(out: str) -> list[Read]:
    """The rows of sacct's answer that are not of steps."""
    names, *rows = [line.split("|") for line in out.splitlines()]
    assert all(len(row) == len(names) for row in rows)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    # "CANCELLED by" somebody is cancelled.
    return [{"job": row["JobID"], "state": row["State"].split()[0]} for row in found if "." not in row["JobID"]]


def hold(site: SlurmAgent, path: str, name: str, bare: str | None = None) -> list[tuple[Talk, threading.Thread]]:
    """All dialogues at once, each in a thread of its own that has begun."""
    talks = [Talk(site, dialogue, path, name, bare) for dialogue in DIALOGUES]
    made = [(talk, threading.Thread(target=talk.hold, daemon=True)) for talk in talks]
    for _, thread in made:
        thread.start()
    return made


def ended(talks: list[tuple[Talk, threading.Thread]]) -> dict[str, Talk]:
    for _, thread in talks:
        thread.join(250)
    return {talk.dialogue.tool: talk for talk, _ in talks}


def ends(talk: Talk, rows: Mapping[str, str]) -> dict[str, str]:
    """How the jobs of a dialogue have ended, by their names."""
    return {talk.name_of(number): state for number, state in rows.items() if number.partition("_")[0] in talk.jobs}


def accounted(site: SlurmAgent, since: float, *talks: dict[str, Talk]) -> dict[str, str]:
    """The states of all jobs since then, by their numbers, when accounting, which is told in portions, has heard how
    all ended, or after a while."""
    deadline = time.monotonic() + 20
    while True:
        found = {row["JobID"]: row["State"].split()[0] for row in site.accounting(since)}
        held = [talk for some in talks for talk in some.values()]
        if all(ends(talk, found) == talk.dialogue.ends for talk in held) or time.monotonic() > deadline:
            return found
        time.sleep(1)


class Site(SlurmAgent):
    """Alice's; `fronts` is the folder of her front programs."""

    fronts = ""

    def behind(self, *folders: str) -> str:
        return ":".join([*folders, self.cluster.user_env("alice")["PATH"]])


@pytest.fixture(scope="module")
def make_site(another: Cluster) -> Iterator[Callable[[], Site]]:
    made: list[Site] = []

    def make() -> Site:
        site = Site(another, shim={"look_age": 1})
        made.append(site)
        site.fronts = Desk(site).say("penstock", "shim", "--path").strip()
        return site

    yield make
    another.run_as("root", ["scancel", "--partition=batch"])
    for site in made:
        site.down()


@pytest.fixture(scope="module")
def held(make_site: Callable[[], Site]) -> tuple[dict[str, Talk], dict[str, Talk], dict[str, str]]:
    """The dialogues with the front programs and with Slurm's own, and the states of all jobs by their numbers."""
    site = make_site()
    site.start()
    since = time.time()
    both = [hold(site, site.behind(site.fronts), "fronts"), hold(site, site.behind(), "own")]
    first, second = (ended(talks) for talks in both)
    return first, second, accounted(site, since, first, second)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_answered_as_by_slurm_itself(held, tool):
    ours, own, states = held[0][tool], held[1][tool], held[2]
    for talk in (ours, own):
        if talk.failure is not None:
            raise talk.failure
        assert ends(talk, states) == talk.dialogue.ends
    assert ours.read == own.read
    assert len(ours.read) >= len(ours.dialogue.calls) - 1, "one of them may be of a newer release"


def test_nothing_was_submitted_that_no_tool_knows_of(held):
    first, second, states = held
    known = {number for talks in (first, second) for talk in talks.values() for number in talk.jobs}
    assert {number.partition("_")[0] for number in states} == known


def test_with_two_calls_in_ten_failing_they_end_as_well(another, make_site, held):
    """No agent answers, so that all is asked of Slurm's own programs, which fail."""
    site = make_site()
    since = time.time()
    flaky(site, *PROGRAMS)
    path = site.behind(site.fronts, str(site.place / "flaky"))
    talks = ended(hold(site, path, "flaky", bare=f"PATH={path}"))
    assert {tool: talk.failure for tool, talk in talks.items() if talk.failure is not None} == {}
    states = accounted(site, since, talks)
    assert {tool: ends(talk, states) for tool, talk in talks.items()} == {
        dialogue.tool: dialogue.ends for dialogue in DIALOGUES
    }
    assert {tool: talk.read for tool, talk in talks.items()} == {tool: talk.read for tool, talk in held[1].items()}
    of_ours = {number for talk in talks.values() for number in talk.jobs}
    assert {number.partition("_")[0] for number in states} - of_ours == set(), "one job for each submission"
    called = flaky(site, *PROGRAMS)
    asked = [program for program in PROGRAMS if program != "scontrol" or another.slurm_version < "26.05"]
    assert min(called[program] for program in asked) >= 1, "each of them has failed"
    assert called["sbatch"] > len(of_ours), "some submissions were tried again"

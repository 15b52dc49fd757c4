"""`penstock sbatch` with the scripts that people have, on every release of Slurm.

It says what sbatch says, and jobs that depend on one another are one workflow.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from agents import COMMAND, Desk, SlurmAgent

import waiting
from penstock_lab.cluster import Cluster

until = functools.partial(waiting.until, seconds=120.0)

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900, func_only=True)]

PLAIN = "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\ntrue\n"


@pytest.fixture
def site(another: Cluster) -> Iterator[SlurmAgent]:
    """An agent of Alice's, not started yet, and `penstock` on her PATH."""
    it = SlurmAgent(another)
    folder = it.place / "commands"
    folder.mkdir()
    program = folder / "penstock"
    program.write_text(f"#!/bin/sh\nexec {COMMAND[0]} -c '{COMMAND[2]}' \"$@\"\n")
    program.chmod(0o755)
    it.environment["PATH"] = f"{folder}:{another.user_env('alice')['PATH']}"
    yield it
    another.run_as("root", ["scancel", "--partition=batch"])
    it.down()


# -- it says and ends as sbatch does -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """`words` after sbatch, in a `shell` line that runs "$@" if there is one, with more of an environment."""

    words: tuple[str, ...]
    shell: str = ""
    more: dict[str, str] = field(default_factory=dict)


def calls(job: str, array: str) -> list[Call]:
    """Fifty and some; `job` and `array` wait, and were submitted by `penstock sbatch`."""
    piped = 'cat plain.sh | "$@"'
    lines = """
        -H plain.sh | -H plain.sh an --argument | --hold --parsable plain.sh | -HQ plain.sh
        -H --quiet --parsable plain.sh | -H -J name plain.sh | -H -N1-2 plain.sh | -H --nodes 1 plain.sh
        -H --wrap true | -H --wrap=true -t1 --parsable
        -H -a 1-3 plain.sh | -H --array=0,2%1 --parsable plain.sh | -H -- plain.sh x | -H --export=NONE plain.sh
        -H --chdir=/tmp plain.sh | --wait three.sh | -H on-path.sh | -H --comment=äö plain.sh | -Hv -J said plain.sh
        -d afterok:J plain.sh | --parsable --dependency=afterok:J plain.sh | -H --depend afterok:J plain.sh
        -d afterany:J plain.sh | -d afternotok:J plain.sh | -d after:J+1 plain.sh | -d J plain.sh
        -d afterok:J?afterany:J plain.sh | -d afterok:J,singleton -J one plain.sh | -d singleton -J one plain.sh
        -d aftercorr:A -a 1-2 plain.sh | -d afterok:A_1 plain.sh | -d afterok:A plain.sh | behind.sh
        --kill-on-invalid-dep=yes -d afterok:J plain.sh | -Q -d afterok:J plain.sh | -d afterok:999999999 plain.sh
        -d afterok:no-such-name plain.sh | -d nonsense:J plain.sh | -d afterok: plain.sh | --dependency= -H plain.sh
        --nonsense plain.sh | no-such-script | -p nowhere plain.sh | -N many plain.sh | -t soon plain.sh
        --version | -V | --usage | --test-only plain.sh | -H dos.sh | -H no-shebang.sh | -M nowhere plain.sh
    """
    lines = re.sub(r"(?<=:)A(?=\b|_)", array, re.sub(r"(?<=:)J\b|(?<=-d )J\b", job, lines))
    made = [Call(tuple(part.split())) for line in lines.strip().splitlines() for part in line.split("|")]
    return [
        *made,
        Call(("-H",), piped),
        Call(("-H", "/dev/stdin"), piped),
        Call(("-H", "--parsable"), '"$@" <(cat plain.sh)'),
        Call(("--parsable", f"--dependency=afterok:{job}"), '"$@" <(cat plain.sh) x'),
        Call(("-H",), '"$@" </dev/null'),
        Call(("-H", "plain.sh"), more={"SBATCH_PARTITION": "nowhere"}),
        Call(("-H", "plain.sh"), more={"SBATCH_JOB_NAME": "x y"}),
    ]


def told(desk: Desk, program: str, call: Call) -> tuple[int, str, str]:
    """Exit code, output and errors, all numbers alike: those of the jobs are not the same."""
    words = ["bash", "-c", call.shell or '"$@"', "-", *program.split(), *call.words]
    env = {**desk.site.environment, **call.more}
    done: subprocess.CompletedProcess[str] = desk.site.cluster.run_as(
        desk.who, words, env=env, cwd=desk.home, timeout=90
    )
    return done.returncode, re.sub(r"\d+", "N", done.stdout), re.sub(r"\d+", "N", done.stderr)


@pytest.mark.long
def test_fifty_calls_are_byte_for_byte_those_of_sbatch(site):
    site.start()
    desk = Desk(site)
    desk.write("plain.sh", PLAIN)
    desk.write("three.sh", "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\nexit 3\n")
    desk.write("dos.sh", PLAIN.replace("\n", "\r\n"))
    desk.write("no-shebang.sh", "true\n")
    on_path = site.place / "commands" / "on-path.sh"
    on_path.write_text(PLAIN)
    job = desk.say("penstock", "sbatch", "--parsable", "-H", "plain.sh").strip()
    array = desk.say("penstock", "sbatch", "--parsable", "-H", "-a", "1-2", "plain.sh").strip()
    desk.write("behind.sh", PLAIN.replace("-t 1", f"-t 1 -d afterok:{job}"))
    all_ = calls(job, array)
    assert len(all_) >= 50
    found = [(call, told(desk, "sbatch", call), told(desk, "penstock sbatch", call)) for call in all_]
    assert [(call, theirs, ours) for call, theirs, ours in found if theirs != ours] == []
    refused = sum(ours[0] != 0 for _call, _theirs, ours in found)
    assert 10 <= refused <= len(all_) - 35, "most are jobs"
    # Many have to do with the two that were there, and are followed with these.
    joined = [s for w in json.loads(desk.say("penstock", "status", "--json"))["workflows"] for s in w["stages"]]
    assert len(joined) >= 12


# -- a script that submits its jobs one behind the other ---------------------------------------------------------------

SUBMIT_ALL = """#!/bin/bash
# As it is written everywhere.
set -e
joint=
for sample in s1 s2; do
  align=$(sbatch --parsable -J align-$sample align.sh $sample)
  call=$(sbatch --parsable -J call-$sample --dependency=afterok:$align call.sh $sample)
  joint=$joint:$call
done
last=$(sbatch --parsable --dependency=afterok$joint joint.sh)
sbatch -J mail --dependency=afterany:$last --wrap true -o /dev/null -t1
"""


def scripts(desk: Desk) -> None:
    for name, text in {
        "align.sh": "sleep 3; echo reads of $1 >align.$1",
        "call.sh": "cat align.$1 >call.$1; sleep 1",
        "joint.sh": "cat call.s1 call.s2 >joint",
    }.items():
        desk.write(name, f"#!/bin/bash\n#SBATCH -t 1\n#SBATCH -o {name}.%j.out\n{text}\n")


def in_order(site: SlurmAgent, desk: Desk, since: float) -> None:
    """Every job ran, and after those that it depends on."""
    rows = {r["JobName"]: r for r in site.accounting(since)}
    assert {r["State"] for r in rows.values()} == {"COMPLETED"}
    for before, after in [
        ("align-s1", "call-s1"),
        ("align-s2", "call-s2"),
        ("call-s1", "joint.sh"),
        ("call-s2", "joint.sh"),
    ]:
        assert int(rows[before]["End"]) <= int(rows[after]["Start"]), (before, after)
    assert desk.say("cat", "joint") == "reads of s1\nreads of s2\n"


@pytest.mark.long
def test_submit_all_with_one_changed_word(site):
    site.start()
    desk, since = Desk(site), time.time() - 1
    scripts(desk)
    changed = re.sub(r"\bsbatch\b", "penstock sbatch", SUBMIT_ALL)
    done = desk.run("bash", desk.write("submit_all.sh", changed))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Submitted batch job \d+\n", done.stdout)
    run = desk.workflow("align-s1")
    names = [run["stages"][j]["name"] for j in next(s for s in run["stages"] if s["name"] == "joint")["after"]]
    assert names == ["call-s1", "call-s2"]
    assert {s["name"]: s["own"]["base"] for s in run["stages"] if s["own"]["base"]} == {
        "mail": f"afterany:{run['stages'][-2]['job']}"
    }
    # Slurm has what was written, and no job is kept back.
    assert not any(begin.startswith("2099") for begin in desk.begins(*(s["job"] for s in run["stages"])))
    until(lambda: desk.workflow("align-s1")["phase"] == "completed", "the chain")
    in_order(site, desk, since)
    said = desk.say("penstock", "explain", f"w{run['id']}")
    assert "comes after call-s1, call-s2, as its own --dependency says" in said
    assert "Strategies can do nothing for them" in said
    assert "Slurm alone sees to the rest of its --dependency: afterany:" in said
    # The agent has done nothing to any of them.
    audited = json.loads(desk.say("penstock", "audit", "--json"))["records"]
    assert not [r for r in audited if r["kind"] == "act" and r["verb"] in ("release", "change", "requeue", "cancel")]


@pytest.mark.long_elsewhere
def test_without_an_agent_nothing_waits_for_one_and_a_tick_takes_it_up(site):
    desk, since = Desk(site), time.time() - 1
    scripts(desk)
    done = desk.run("bash", desk.write("submit_all.sh", re.sub(r"\bsbatch\b", "penstock sbatch", SUBMIT_ALL)))
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    until(lambda: desk.run("test", "-s", "joint").returncode == 0, "the last job")
    until(lambda: len([r for r in site.accounting(since) if r["State"] == "COMPLETED"]) == 6, "the accounting")
    in_order(site, desk, since)
    until(lambda: json.loads(desk.say("penstock", "tick", "--json"))["left"] == 0, "the tick that sees the end")
    run = desk.workflow("align-s1")
    assert (run["phase"], len(run["stages"])) == ("completed", 6)


@pytest.mark.long
@pytest.mark.parametrize("agent", [True, False], ids=["agent", "ticks"])
def test_a_failed_job_is_submitted_again_and_what_waits_follows_it(site, agent):
    if agent:
        site.start()
    desk = Desk(site)
    desk.run("rm", "-f", "fixed")
    desk.write("a.sh", "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\ncat fixed\n")
    desk.write("b.sh", "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\nsleep 1\n")
    words = ["penstock", "sbatch", "--parsable"]
    a = int(desk.say(*words, "a.sh"))
    other = int(desk.say(*words, "-H", "-J", "other", "b.sh"))
    b = int(desk.say(*words, "-d", f"afterok:{a},afterany:{other}", "b.sh"))
    c = int(desk.say(*words, "-J", "c", "-d", "afterok:b.sh", "b.sh"))
    late = int(desk.say("sbatch", "--parsable", "-d", f"afterok:{c}", "b.sh"))  # which Penstock does not know

    def phases() -> dict[str, str]:
        if not agent:
            desk.say("penstock", "tick")
        return {s["name"]: s["phase"] for s in desk.workflow("a")["stages"]}

    until(lambda: phases()["a"] == "failed", "the failure")
    assert phases() == {"a": "failed", "other": "queued", "b": "queued", "c": "queued"}
    assert desk.queue()[str(b)][1] == "DependencyNeverSatisfied"
    time.sleep(15)  # 22.05 makes other holds an administrator's by now
    desk.write("fixed", "now it is there\n")
    again = json.loads(desk.say("penstock", "retry", "a", "--json"))["jobs"]
    assert list(again) == ["a"]
    dependency = desk.queue()[str(b)][2] if str(b) in desk.queue() else ""
    assert f"afterany:{other}" in dependency and str(a) not in re.findall(r"\d+", dependency)
    desk.say("scontrol", "release", str(other))
    until(lambda: set(phases().values()) == {"done"}, "the end")
    run = desk.workflow("a")
    assert {s["name"]: s["job"] for s in run["stages"]} == {"a": again["a"], "other": other, "b": b, "c": c}
    until(lambda: desk.queue()[str(late)][0] == "COMPLETED", "the job of others behind it")


@pytest.mark.long
def test_a_job_is_named_by_its_name(site):
    desk = Desk(site)
    desk.write("p.sh", PLAIN.replace("true", "sleep 50"))
    first = desk.say("penstock", "sbatch", "--parsable", "-J", "by-name", "p.sh").strip()
    second = desk.say("penstock", "sbatch", "--parsable", "-d", "afterok:by-name", "p.sh").strip()
    assert desk.queue()[second][2] == f"afterok:{first}(unfulfilled)"

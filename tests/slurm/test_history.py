"""`penstock history` against a real sacct: its documented line, and the same accounting asked live."""

from __future__ import annotations

import sys
import time

import pytest

from penstock_lab.history.history import History
from penstock_lab.history.rows import NEVER, Flag

pytestmark = pytest.mark.slurm

PROGRAM = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
NAME = "odd|name\n99|bob|@x@"


def sbatch(cluster, who, *options, script="true"):
    words = ["sbatch", "--parsable", "-o", "/dev/null", "-t", "2", *options]
    done = cluster.run_as(who, [*words, "--wrap", script])
    assert done.returncode == 0, done.stderr
    return int(done.stdout.strip().partition(";")[0])


def rows(cluster, job):
    return cluster.run_as("root", ["sacct", "-nPX", "-D", "-j", str(job), "-o", "State,End"]).stdout.split()


def shrink(cluster, job, what, nodes):
    names = cluster.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%N"]).stdout.strip()
    hosts = cluster.run_as("root", ["scontrol", "show", "hostnames", names]).stdout.split()[:nodes]
    sizes = rows(cluster, job).count("RESIZING")
    update = ["scontrol", "update", f"jobid={job}", f"NodeList={','.join(hosts)}"]
    until(what, lambda: cluster.run_as("alice", update).returncode == 0)
    until(f"a row of {what}", lambda: "".join(rows(cluster, job)).count("RESIZING") > sizes)


def until(what, condition, limit=60.0):
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
        time.sleep(0.2)


def penstock(cluster, *words):
    done = cluster.run_as("root", [sys.executable, "-c", PROGRAM, *map(str, words)])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_documented_line_and_the_live_import_find_the_same_jobs(cluster, tmp_path):
    began = int(time.time())
    plain = sbatch(cluster, "alice", "-N", "2", "-J", NAME, "--mem=10M", script="srun true")
    again = sbatch(cluster, "bob", "-N", "1", "-J", NAME, "-t", "UNLIMITED")
    array = sbatch(cluster, "alice", "-N", "1", "--array=1-3")
    parts = sbatch(cluster, "alice", "-N", "1", "-J", "het", ":", "-N", "2")
    cut = sbatch(cluster, "bob", "-N", "1", "--requeue", script="sleep 60")
    until("its start", lambda: "RUNNING" in "".join(rows(cluster, cut)))
    cluster.run_as("bob", ["scontrol", "requeue", str(cut)])
    until("the requeue", lambda: "REQUEUED" in "".join(rows(cluster, cut)))
    cluster.run_as("bob", ["scancel", str(cut)])
    sized = sbatch(cluster, "alice", "-N", "3", script="sleep 60")
    until("its start", lambda: "RUNNING" in "".join(rows(cluster, sized)))
    shrink(cluster, sized, "resizing", 2)
    sbatch(cluster, "bob", "-N", "1")  # sacct has it between the sizes
    time.sleep(1.1)  # a second change in the same second has no row of its own
    shrink(cluster, sized, "resizing twice", 1)
    cluster.run_as("alice", ["scancel", str(sized)])
    for job, count in ((plain, 1), (again, 1), (array, 3), (parts, 2)):
        until(f"the end of {job}", lambda job=job, n=count: "".join(rows(cluster, job)).count("COMPLETED") == n)
        until(f"no end of {job} is missing", lambda job=job: "Unknown" not in "".join(rows(cluster, job)))

    until("the end of the resized one", lambda: "CANCELLED" in "".join(rows(cluster, sized)))
    line = penstock(cluster, "history", "command", "--since", f"now-{int(time.time()) - began + 5}")
    dump, dumped, live = (tmp_path / name for name in ("jobs.txt.gz", "dump.history", "live.history"))
    words = line.strip().replace("jobs.txt.gz", str(dump))
    done = cluster.run_as("root", ["bash", "-o", "pipefail", "-c", words])
    assert done.returncode == 0, done.stderr
    penstock(cluster, "history", "import", dump, "--to", dumped)
    penstock(cluster, "history", "import", "--live", "--since", f"uts{began - 5}", "--to", live, "--slice", "1m")

    found = [History(path) for path in (dumped, live)]
    for name in ("id", "submit", "eligible", "start", "end", "limit", "nodes", "cpus", "memory", "state", "flags"):
        columns = [dict(zip(each.column("id").tolist(), each.column(name).tolist(), strict=True)) for each in found]
        for job in {plain, again, parts, sized}:
            assert columns[0][job] == columns[1][job], name
    one = found[0]
    of = {name: one.column(name).tolist() for name in ("id", "user", "name", "nodes", "limit", "flags", "start", "end")}
    at = {job: of["id"].index(job) for job in (plain, again, parts, cut, sized)}
    users = one.names("user")
    owners = [users[of["user"][at[job]]] for job in (plain, again)]
    assert owners == [cluster.users["alice"], cluster.users["bob"]]
    assert of["name"][at[plain]] == of["name"][at[again]] != of["name"][at[parts]]
    assert (of["nodes"][at[plain]], of["nodes"][at[parts]]) == (2, 3)
    assert (of["limit"][at[plain]], of["limit"][at[again]]) == (120, 0)
    assert of["flags"][at[parts]] == Flag.HETEROGENEOUS and of["flags"][at[cut]] == Flag.CUT
    assert (of["nodes"][at[sized]], of["flags"][at[sized]]) == (3, Flag.RESIZED) and of["id"].count(sized) == 1
    assert of["end"][at[sized]] - of["start"][at[sized]] >= 2
    assert sum(flag == Flag.ARRAY for flag in of["flags"]) == 3
    assert all(start == NEVER or start <= end for start, end in zip(of["start"], of["end"], strict=True))


def test_a_cluster_that_accounting_does_not_know_leaves_nothing(cluster, tmp_path):
    words = ["history", "import", "--live", "--cluster", "nowhere", "--to", str(tmp_path / "x.history")]
    done = cluster.run_as("root", [sys.executable, "-c", PROGRAM, *words])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())

"""The site's view on a real Slurm: who is shown what under PrivateData, and an agent that uses it until it dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from agents import COMMAND

from conftest import folder_of
from penstock.errors import NotPermitted, PenstockError
from penstock.site.look import wire
from penstock.slurm.privacy import Viewer
from penstock.slurm.queries import CliQueries
from penstock_lab.cluster import Cluster, ClusterSpec, up
from penstock_site_view.looks import Looks

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

SETTINGS = (
    "none", "jobs", "nodes", "partitions", "reservations", "accounts,events,usage,users",
    "jobs,reservations,accounts,usage,users", "jobs,nodes,partitions,reservations",
)  # fmt: skip
PEOPLE = ("alice", "bob", "operator", "root")


@pytest.fixture(scope="module")
def private() -> Iterator[Cluster]:
    """Two nodes, a hidden partition and one of another group. bob coordinates chem, and what is below it."""
    partitions = (
        "PartitionName=hidden Nodes=ALL Hidden=YES",
        "PartitionName=others Nodes=n2 AllowGroups=nogroup",
        "PrivateData=none",
    )
    it = up(ClusterSpec(nodes=2, name="pv", folder=folder_of("v"), extra=partitions))
    it.administer("add", "account", "chem", "parent=penstock", "cluster=pv")
    it.administer("add", "account", "below", "parent=chem", "cluster=pv")
    for who in ("alice", "operator"):
        it.administer("add", "user", it.users[who], "account=below", "cluster=pv")
    it.administer("add", "coordinator", "account=chem", f"names={it.users['bob']}")
    yield it
    it.down()


def reader(cluster: Cluster, who: str) -> CliQueries:
    login = cluster.user(who).name
    return CliQueries(prefix=cluster.prefix(who), user=login, slurm_conf=cluster.env["SLURM_CONF"])


def fill(cluster: Cluster) -> None:
    """Jobs of three users in three accounts and three partitions, and reservations of two of them."""
    for who, words in (
        ("alice", []), ("alice", ["-A", "below"]), ("alice", ["-p", "hidden"]), ("bob", []), ("bob", ["-p", "hidden"]),
        ("operator", ["-A", "below"]),
    ):  # fmt: skip
        held = ["sbatch", "-H", "-N1", "-t5", "-o", "/dev/null", *words, "--wrap", "true"]
        cluster.run_as(who, held, check=True)
    for name, of in (("hers", "users=alice"), ("his", "users=bob"), ("both", "users=alice,bob"), ("group", "acc=chem")):
        named = of.replace("alice", cluster.users["alice"]).replace("bob", cluster.users["bob"])
        named = named.replace("acc=", "accounts=")
        make = ["scontrol", "create", "reservation", f"ReservationName={name}", "start=now+60minutes", "duration=1:00"]
        cluster.run_as("root", [*make, "nodes=n1", "flags=OVERLAP", named], check=True)


def set_private(cluster: Cluster, value: str) -> None:
    conf = Path(cluster.env["SLURM_CONF"])
    lines = [line for line in conf.read_text().splitlines() if not line.startswith("PrivateData")]
    conf.write_text("\n".join([*lines, f"PrivateData={value}", ""]))
    cluster.run_as("root", ["scontrol", "reconfigure"], check=True)
    shown, end = sorted(value.split(",")), time.monotonic() + 20.0
    while True:
        text = cluster.run_as("root", ["scontrol", "show", "config"]).stdout
        (line,) = [line for line in text.splitlines() if line.startswith("PrivateData")] or [""]
        if sorted(line.partition("=")[2].strip().split(",")) == shown:
            return
        assert time.monotonic() < end, line
        time.sleep(0.1)


async def by_view(looks: Looks, viewer: Viewer) -> dict[str, set[object]] | None:
    try:
        _head, data = await looks.for_viewer(viewer, {})
    except NotPermitted:
        return None
    values = {name: wire.unpacked(name, part) for name, part in zip(wire.PARTS, data, strict=True)}
    return {
        name: {getattr(value, "id", getattr(value, "name", None)) for value in found} for name, found in values.items()
    }


async def by_slurm(own: CliQueries) -> dict[str, set[object]] | None:
    """What the user's own commands show; None where Slurm refuses a part."""
    try:
        return {
            "jobs": {job.id for job in await own.jobs()},
            "nodes": {node.name for node in await own.nodes()},
            "partitions": {partition.name for partition in await own.partitions()},
            "reservations": {reservation.name for reservation in await own.reservations()},
            "licenses": {license.name for license in await own.licenses()},
        }
    except PenstockError:
        return None


def test_nobody_is_shown_more_than_their_own_commands_show(private):
    fill(private)
    seen: dict[tuple[str, str], int] = {}

    async def compare(value: str) -> None:
        looks = Looks(reader(private, "operator"), 15.0)
        rule = await looks.rule()
        assert rule.cluster == "pv" and rule.private == frozenset(value.split(",")) - {"none"}
        for who in PEOPLE:
            user = private.user(who)
            shown = await by_view(looks, Viewer(user.uid, user.name))
            own = await by_slurm(reader(private, who))
            what = f"{who} under PrivateData={value}"
            assert (shown is None) == (own is None), what
            if shown is None or own is None:
                assert who in ("alice", "bob") and ("nodes" in value or "partitions" in value), what
                continue
            assert shown["jobs"] == own["jobs"], what
            for name in ("nodes", "partitions", "licenses"):
                assert shown[name] == own[name], f"{name} of {what}"
            assert shown["reservations"] <= own["reservations"], what
            assert {"hers", "both"} <= shown["reservations"] or who == "bob", what
            seen[who, value] = len(shown["jobs"])
        nobody = await by_view(looks, Viewer(4_000_000, "4000000"))
        if "jobs" in value and nobody is not None:
            assert nobody["jobs"] == set()

    for value in SETTINGS:
        set_private(private, value)
        asyncio.run(compare(value))
    assert [seen[who, "jobs"] for who in PEOPLE] == [3, 4, 6, 6], "own ones; with those of his accounts; all"
    assert {seen[who, "none"] for who in PEOPLE} == {6}


def requests(cluster: Cluster) -> dict[str, int]:
    """How often each user has asked slurmctld, by login name."""
    text = cluster.run_as("root", ["sdiag"]).stdout.partition("statistics by user")[2]
    rows = [line.split() for line in text.splitlines() if "count:" in line]
    return {row[0]: int(next(word for word in row if word.startswith("count:"))[6:]) for row in rows}


FLOW = """name: w
stages:
  - {name: a, nodes: 1, time: 60, expect: 1, run: sleep 1}
  - {name: b, nodes: 1, time: 60, expect: 1, run: 'true', after: [a]}
"""


def test_an_agent_uses_the_view_and_goes_on_without_it(make_agent, cluster):
    site = make_agent()
    place, operator = site.place / "view", cluster.user("operator")
    place.mkdir(mode=0o755)
    os.chown(place, operator.uid, operator.gid)
    socket, log = place / "view.sock", place / "log"
    words = [*COMMAND, "site-view", "--socket", str(socket), "--age", "5s"]
    with log.open("w") as output:
        view = cluster.popen_as("operator", words, cwd=place, stdout=output, stderr=output)
    try:
        settings = yaml.safe_load(site.config.read_text())
        settings["slurm"] |= {"view": str(socket), "view_user": operator.name}
        site.config.write_text(yaml.safe_dump(settings))
        site.until(socket.exists, "the view")
        site.start()
        before = requests(cluster)
        run = site.submit(FLOW, "perstage")
        assert site.finish(run)["phase"] == "completed", site.said()
        after = requests(cluster)
        assert after[operator.name] > before.get(operator.name, 0)
        assert "not by the site's view" not in site.said()
        doctor = site.run("alice", "doctor", "--json")
        (found,) = [check for check in json.loads(doctor.stdout)["checks"] if check["id"] == "site-view"]
        assert found["level"] == "ok" and str(socket) in found["seen"], found
        os.killpg(view.pid, signal.SIGKILL)
        view.wait()
        run = site.submit(FLOW, "perstage")
        assert site.finish(run)["phase"] == "completed", site.said()
        assert site.said().count("Slurm is asked directly, not by the site's view") == 1
    finally:
        if view.poll() is None:
            os.killpg(view.pid, signal.SIGTERM)
        view.wait(20)
        site_log = log.read_text()
    assert "Traceback" not in site_log, site_log


def test_a_view_that_may_not_see_says_so_and_ends(private):
    set_private(private, "jobs")
    words = [*COMMAND, "site-view", "--socket", str(private.home("alice") / "view.sock")]
    done = private.run_as("alice", words)
    assert done.returncode == 78 and "AdminLevel=Operator" in done.stderr, done

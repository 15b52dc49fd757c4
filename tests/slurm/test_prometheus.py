"""A real Prometheus watches an agent on real Slurm: it understands all it is told, and no panel stays empty."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents import SlurmAgent

from dmr import credential, wire
from dmr.client import Client
from monitoring import ALERTS, EXAMPLE, alerts, names_in, panels
from outside import need_program
from penstock.cli.catalogue import METRICS, PREFIX
from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster
from penstock_lab.cluster.layout import reserved_ports
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

# What these show comes with waits that were seen to their end, which an idle cluster does not have.
MAY_BE_NAN = {"Error of predicted waits, median", "Bounds that held"}


class Prometheus:
    """Debian's Prometheus with the example's configuration, but for addresses and a pace of seconds."""

    def __init__(self, folder: Path, address: str, target: str) -> None:
        config = yaml.safe_load(EXAMPLE.read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(ALERTS)]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        self.address = address
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    need_program("prometheus", "prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, **arguments: str) -> Any:
        """The data that the API answers with."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return bool(self.get("status/buildinfo"))
        except OSError:
            return False

    def values(self, query: str) -> list[float]:
        """What a query as in a dashboard gives now."""
        query = query.replace("$__rate_interval", "2m").replace("$instance", ".*")
        return [float(sample["value"][1]) for sample in self.get("query", query=query)["result"]]


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    """Two that nobody else takes: the agent's and that of Prometheus."""
    with reserved_ports(2) as ports:
        yield [f"127.0.0.1:{port}" for port in ports]


@pytest.fixture
def agent(cluster: Cluster, addresses: list[str]) -> Iterator[SlurmAgent]:
    it = SlurmAgent(
        cluster,
        metrics={"listen": addresses[0]},
        dmr={
            "listen": "127.0.0.1:0",
            "policy": "wide",
            "cooldown": 1,
            "grant_timeout": 10,
            "munge_socket": str(cluster.munge_socket),
        },
    )
    yield it
    it.down()


@pytest.fixture
def prometheus(agent: SlurmAgent, addresses: list[str]) -> Iterator[Prometheus]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-prometheus-"))
    it = Prometheus(folder, addresses[1], target=addresses[0])
    yield it
    it.process.send_signal(signal.SIGKILL)
    it.process.wait(20)
    shutil.rmtree(folder, ignore_errors=True)


def counts(prometheus: Prometheus, query: str, value: float) -> None:
    """What was counted last arrives by a scrape yet to come."""
    until(lambda: prometheus.values(query) == [value], lambda: f"{query}: {prometheus.values(query)}")


def resize(agent: SlurmAgent) -> None:
    """Rank 0 of a job of two nodes: offers itself, takes up what it gets, and says that it is done."""
    words = ["sbatch", "--parsable", "-N2", "-t5", "-o", "/dev/null", "--wrap", "sleep 60"]
    job = int(agent.cluster.run_as(agent.who, words, check=True).stdout)
    key = agent.folder / "agent" / "dmr.key"
    secret = credential.Key(agent.cluster.user(agent.who).uid, key.read_bytes())
    host, _, port = ask(agent.socket, "env")["DMR_AGENT"].rpartition(":")
    client = Client((host, int(port)), 10.0, sign=lambda digest: credential.sign_key(digest, secret))
    now = lambda: {"job": job, "time": time.time()}  # noqa: E731
    reply: Any = None

    def offered() -> bool:
        nonlocal reply
        reply = client.request(wire.Check(**now(), epoch=0, size=2, minimum=2, maximum=4, factor=2), urgent=True)
        return isinstance(reply, wire.CheckReply) and reply.action == "expand"

    agent.until(offered, "an offer of nodes")
    assert isinstance(client.request(wire.Accept(**now(), epoch=reply.epoch), urgent=True), wire.Done)
    finished = wire.Finished(**now(), epoch=reply.epoch, size=4, nodes=reply.nodes)
    assert isinstance(client.request(finished, urgent=True), wire.Done)
    agent.until(lambda: ask(agent.socket, "status")["resizes"], "the end of the resize")


def test_prometheus_gets_all_that_the_dashboard_and_the_alerts_ask_for(prometheus, agent):
    until(prometheus.ready, lambda: prometheus.log.read_text())
    agent.start()
    until(lambda: prometheus.values("up") == [1.0], lambda: str(prometheus.get("targets")))
    run = agent.submit("name: w\nstages:\n  - {name: a, nodes: 1, time: 60, expect: 3, run: sleep 3}\n", "asa")
    resize(agent)
    agent.finish(run)

    missing = dict.fromkeys(panels())

    def answered() -> bool:
        for title, query in list(missing):
            found = prometheus.values(query)
            if found and (title in MAY_BE_NAN or not all(math.isnan(value) for value in found)):
                del missing[title, query]
        return not missing

    until(answered, lambda: f"no data: {missing}")

    # Everything of the catalogue has arrived, as what it is.
    kinds = prometheus.get("metadata")  # of counters, without their `_total`
    for metric in METRICS.values():
        assert prometheus.values(f'count({{__name__=~"{PREFIX}{metric.name}(_count)?"}})'), metric.name
        assert kinds[PREFIX + metric.name.removesuffix("_total")][0]["type"] == metric.kind, metric.name
    counts(prometheus, "sum(penstock_nodes_moved_total)", 2.0)
    counts(prometheus, 'penstock_workflows_finished_total{submitter="agent",outcome="completed"}', 1.0)
    assert prometheus.values('sum(penstock_slurm_requests_total{outcome="unanswered"})') in ([], [0.0])

    # The rules are understood and have what they look at; nothing is wrong, so nothing fires.
    (group,) = prometheus.get("rules")["groups"]
    assert {rule["name"]: (rule["health"], rule["state"]) for rule in group["rules"]} == dict.fromkeys(
        alerts(), ("ok", "inactive")
    )
    for name, rule in alerts().items():
        for metric in names_in(rule["expr"]):
            assert prometheus.values(f'count({{__name__=~"{PREFIX}{metric}(_bucket)?"}})'), (name, metric)

    os.killpg(agent.process.pid, signal.SIGKILL)
    gone = 'ALERTS{alertname="PenstockGone",alertstate="pending"}'
    until(lambda: prometheus.values(gone), lambda: str(prometheus.get("alerts")))

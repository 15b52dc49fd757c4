"""What a site is given to watch the agent with: the alerts and the dashboard, as tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from penstock.cli.catalogue import METRICS, PREFIX
from places import PROJECT

DEPLOY = PROJECT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
EXAMPLE = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "penstock.json"


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def panels() -> Iterator[tuple[str, str]]:
    """(panel, query) of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def names_in(query: str) -> set[str]:
    """The agent's metrics that a query names, without the suffixes of a histogram."""
    found = set()
    for name in re.findall(rf"\b{PREFIX}(\w+)", query):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        found.add(base if METRICS.get(base, METRICS["jobs"]).kind == "histogram" else name)
    return found

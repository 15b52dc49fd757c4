"""`python -m dmr.elastic`: in a job's script, makes the job elastic; `penstock elastic` writes such scripts.

    python -m dmr.elastic --plan plan.json        what `dmr.elastic.words.ElasticPlan` has, as JSON; - reads stdin
    python -m dmr.elastic --nodes 1:8 --start ./head --join './worker "$PENSTOCK_ELASTIC_HEAD"'

Under `#PENSTOCK elastic=1:8` the sizes are known, and `--nodes` can be left out. It ends as `start` ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmr import launch
from dmr.client import Client
from dmr.elastic import plans
from dmr.elastic.group import Group
from dmr.elastic.hands import Commands
from dmr.elastic.resuming import Resuming
from dmr.elastic.signals import check_signal
from dmr.elastic.supervisor import ElasticSupervisor
from dmr.elastic.words import ElasticPlan

__all__ = ["main"]

_TEXTS = ("start", "join", "leave", "ready", "ready_line", "notify", "again", "checkpoint", "finished")
_TIMES = ("grace", "settle", "ready_timeout", "interval")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dmr.elastic", description="Runs an elastic job.", epilog="See docs/elastic.md."
    )
    parser.add_argument("--plan", metavar="FILE", help="the plan as JSON; - reads it from standard input")
    parser.add_argument("--nodes", metavar="MIN:MAX[:PREFERRED]", default=os.environ.get("PENSTOCK_ELASTIC"))
    parser.add_argument("--signal", metavar="NAME")
    parser.add_argument("--factor", type=int)
    parser.add_argument("--no-base", action="store_true", help="join runs on added nodes only")
    parser.add_argument(
        "--loans", action=argparse.BooleanOptionalAction, help="also nodes that are free for a while only"
    )
    parser.add_argument("--folder", type=Path, help="for outputs (elastic-JOB)")
    for name in _TEXTS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="LINE")
    for name in _TIMES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="SECONDS")
    return parser


def _plan(options: argparse.Namespace) -> ElasticPlan:
    """What the options say. Raises ValueError and OSError."""
    said: dict[str, Any] = {}
    if options.plan:
        text = sys.stdin.read() if options.plan == "-" else Path(options.plan).read_text()
        read = json.loads(text)
        if not isinstance(read, dict):
            raise ValueError("the plan must be an object")
        said = read
    elif options.nodes:
        said["minimum"], said["maximum"], said["preferred"] = plans.sizes(options.nodes)
    else:
        raise ValueError("--nodes=MIN:MAX is missing")
    for name in (*_TEXTS, *_TIMES, "factor", "loans"):
        if (value := getattr(options, name)) is not None:
            said[name] = value
    if options.signal is not None:
        said["signal"] = plans.signal_number(options.signal)
    if options.no_base:
        said["base_joins"] = False
    return plans.of_mapping(said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job; its exit code."""
    logging.basicConfig(format="%(name)s: %(message)s")
    options = _parser().parse_args(arguments)
    try:
        plan = _plan(options)
        check_signal(plan, os.environ)
    except (ValueError, OSError) as error:
        print(f"elastic: {error}", file=sys.stderr)
        return 2
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number.isdigit():
        print("elastic: this is no Slurm job (SLURM_JOB_ID); submit it, or try `penstock elastic`", file=sys.stderr)
        return 2
    job = int(number)
    try:
        base = launch.nodes(os.environ)
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        print(f"elastic: cannot find out the nodes of job {job}: {error}", file=sys.stderr)
        return 1
    if len(base) > plan.maximum:
        print(f"elastic: the job has {len(base)} nodes, more than the maximum of {plan.maximum}", file=sys.stderr)
        return 2
    client = Client.from_environment()
    if client is None:
        print("elastic: DMR_AGENT names no agent: the job keeps its size (see `penstock env`)", file=sys.stderr)
    machine = Resuming(plan, base, job) if plan.again else Group(plan, base, job)
    folder = options.folder or Path(f"elastic-{job}")
    try:
        hands = Commands(plan, os.environ, job, folder)
    except OSError as error:
        print(f"elastic: {folder} cannot be used for outputs: {error}", file=sys.stderr)
        return 1
    supervisor = ElasticSupervisor(machine, hands, client, job, os.environ)
    return asyncio.run(_run(supervisor))


async def _run(supervisor: ElasticSupervisor) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop, int(number))
    return await supervisor.run()


if __name__ == "__main__":
    sys.exit(main())

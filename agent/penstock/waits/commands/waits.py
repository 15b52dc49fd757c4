"""penstock waits: how long a job would wait, and how good such predictions have been."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from penstock.config import Config, load
from penstock.console.memory import MEM
from penstock.console.output import ago, emit_json, table
from penstock.console.times import TIME
from penstock.errors import AgentUnavailable, NotPermitted
from penstock.ipc.client import ask_agent
from penstock.state.ownership import is_readable, state_path
from penstock.texts import plural
from penstock.values.durations import duration_text

__all__ = ["waits"]

_HOUR: Final = 3600.0


@click.command()
@click.option("-N", "--nodes", type=click.IntRange(1), metavar="N", help="Nodes of the job (default: 1).")
@click.option(
    "-t", "--time", "limit", type=TIME, metavar="TIME", help="Its time limit, such as 2h or 1-00:00:00 (default: 1h)."
)
@click.option("-p", "--partition", metavar="NAME", help="Its partition (default: Slurm's).")
@click.option("-q", "--qos", metavar="NAME", help="Its QOS (default: your usual one).")
@click.option("-A", "--account", metavar="NAME", help="Its account (default: your usual one).")
@click.option("--gres", metavar="LIST", help="What each node must have, such as gpu:a100:2.")
@click.option("--mem", metavar="AMOUNT", type=MEM, help="Memory of each node, such as 8G (bare: MB).")
@click.option("-C", "--constraint", metavar="FEATURES", help="Features that its nodes must have.")
@click.option("--report", is_flag=True, help="Say how right the predictions were, and Slurm's own beside them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def waits(
    nodes: int | None,
    limit: float | None,
    partition: str | None,
    qos: str | None,
    account: str | None,
    gres: str | None,
    mem: float | None,
    constraint: str | None,
    report: bool,
    as_json: bool,
) -> None:
    """Say how long a job would wait in the queue.

    With options: the expected wait of such a job, and the times within which 3 of 4 and 19 of 20 jobs like it start.
    Without: what has been learned, by geometry, and how right it was.
    With --report: how right the predictions were, and what squeue --start and sbatch --test-only said of the same jobs.

    \b
    penstock waits -N 4 -t 2h -p batch
    penstock waits
    penstock waits --report
    """
    given = (nodes, limit, partition, qos, account, gres, mem, constraint)
    if report and any(option is not None for option in given):
        raise click.UsageError("--report is about all jobs so far: give it without the options that describe a job")
    wanted = None
    if any(option is not None for option in given):
        wanted = {
            "nodes": nodes or 1,
            "time_limit": _HOUR if limit is None else limit,
            "partition": partition or "",
            "qos": qos or "",
            "account": account or "",
            "gres": gres or "",
            "memory": mem,
            "features": constraint or "",
        }
    config = load()
    try:
        answer = ask_agent(config, "waits", {"geometry": wanted})
    except AgentUnavailable as error:
        answer = _from_file(config, wanted, error)
    if as_json:
        emit_json(answer)
    elif report:
        _show_report(answer)
    elif answer["outlook"] is not None:
        _show_outlook(answer)
    else:
        _show_survey(answer)


def _from_file(config: Config, wanted: dict[str, Any] | None, error: AgentUnavailable) -> dict[str, Any]:
    """What the agent's state file tells while no agent runs. Raises the error if there is none, NotPermitted if it is
    another's."""
    path = state_path(config)
    try:
        if not is_readable(path):
            raise error
    except NotPermitted as denied:
        raise NotPermitted(f"no agent answers, and {denied}") from None
    from penstock.api import Geometry
    from penstock.state.store import Store
    from penstock.waits.live.outlook import from_store  # slow to load

    store = Store.read_only(path)
    try:
        geometry = None if wanted is None else Geometry(**wanted)
        return {"live": False, **from_store(config, store, geometry, time.time)}
    finally:
        store.close()


def _show_outlook(answer: dict[str, Any]) -> None:
    found = answer["outlook"]
    where = f" in {found['partition']}" if found["partition"] else ""
    many = plural(found["nodes"], "node")
    click.echo(f"{many} for {duration_text(found['time_limit'])}{where}, submitted now:")
    quantiles = found["quantiles"]
    click.echo(f"  expected wait           {ago(found['estimate'])}")
    click.echo(f"  3 of 4 start within     {ago(quantiles['75'])}")
    click.echo(f"  19 of 20 start within   {ago(quantiles['95'])}")
    if found["known_waits"]:
        basis = f"{found['known_waits']} waits of such jobs"
    elif found["like_geometries"]:
        basis = "the waits of jobs like it; none of this very kind was seen yet"
    else:
        basis = "nothing yet: no job like it was seen"
    click.echo(f"  learned from            {basis} (predictor {found['predictor']})")
    names = {"history": "earlier waits", "queue": "the queue as it stands", "slurm": "Slurm's own estimate"}
    trust = found["trust"]
    for name, seconds in found["experts"].items():
        share = f", trusted {100 * trust[name]:.0f} %" if name in trust else ""
        click.echo(f"  {names[name]:<23} {ago(seconds)}{share}")
    if not answer["live"]:
        click.echo("No agent is running: this is what was learned, without a look at the queue.", err=True)
    click.echo(_judged(found["calibration"], "Such jobs so far"))


def _show_survey(answer: dict[str, Any]) -> None:
    rows = answer["geometries"]
    if not rows:
        click.echo("No waits are known yet. The agent learns from accounting at its first start, and from your jobs.")
        return
    # Columns that say the same in every row, mostly nothing, are left out.
    optional = [n for n in ("cluster", "user", "gres", "memory_gb", "features") if len({r[n] for r in rows}) > 1]
    head = ("partition", "QOS", "account", *optional, "nodes", "limit up to", "waits", "last", "median")
    table(
        "Waits by geometry",
        (*head, "predicted", "off by", "within 95 % bound"),
        [
            (
                r["partition"],
                r["qos"],
                r["account"],
                *(r[n] for n in optional),
                _span(*r["nodes"]),
                "any" if r["time_limit"] is None else duration_text(r["time_limit"]),
                r["waits"],
                ago(r["last"]),
                ago(r["median"]),
                r["predictions"],
                _factor(r["log10_error"]),
                _percent(r["coverage_95"]),
            )
            for r in rows
        ],
    )
    click.echo(_judged(answer["calibration"], "All predictions so far"))


_JOBS: Final = {"predicted": "jobs of workflows", "all": "all jobs of the queue"}
_PUBLISHED: Final = (
    "Brown et al., arXiv 2204.13543, of ARCHER2 and Cirrus: 65 % and 76 % within 1 min, 75 % and 90 % within 10 min."
)


def _show_report(answer: dict[str, Any]) -> None:
    rows = [row for row in answer["accuracy"] if row["predictions"]]
    if not rows:
        click.echo("Nothing was predicted yet and then seen to start.")
        return
    table(
        "How right estimated waits were",
        ("jobs", "who", "on those of", "predicted", "off by", "within 1 min", "within 10 min", "within 95 % bound"),
        [
            (
                _JOBS[r["jobs"]],
                r["who"],
                r["beside"] or "",
                r["predictions"],
                _factor(r["log10_error"]),
                _percent(r["within_1_min"]),
                _percent(r["within_10_min"]),
                _percent(r["coverage_95"]),
            )
            for r in rows
        ],
    )
    click.echo("Off by: the mean factor, waits below a minute counting as a minute. 95 % should lie within the bound.")
    click.echo(f"Published: {_PUBLISHED}")


def _judged(found: dict[str, Any], what: str) -> str:
    if not found["predictions"]:
        return f"{what}: none was predicted and then seen to start."
    text = f"{what}: {found['predictions']}, on average off by a factor of {_factor(found['log10_error'])}"
    if found["bounded"]:
        text += f"; {_percent(found['coverage_95'])} started within the bound that 95 % should"
    return f"{text}. (Waits below a minute count as a minute.)"


def _factor(decades: float | None) -> str | None:
    return None if decades is None else f"{10**decades:.2f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"

"""penstock bench: the papers' experiments and measurements on real logs, run again here."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.console.groups import CommandGroup
from penstock.console.output import emit_json, table
from penstock.errors import UserError

if TYPE_CHECKING:
    from penstock_lab.papers.chapters import Tell
    from penstock_lab.papers.report import Chapter

__all__ = ["bench"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ASA = "ASA: learning the queue and submitting ahead of it"
_DMR = "DMR: malleable jobs and the queue"
_SELECT = "Resource selection: each task where it finishes first"
_PROVISION = "Provisioning: slots with prices and plans over them"


@click.group(cls=CommandGroup)
def bench() -> None:
    """Run the papers' experiments again."""


def _options(parts: str) -> Callable[[_Command], _Command]:
    """The options of every experiment; `parts` are what it has."""

    def decorated(command: _Command) -> _Command:
        for option in (
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option(
                "--out",
                metavar="DIR",
                type=click.Path(path_type=Path),
                help="Write report.html, report.md, pictures and rows here; parts measured before stay in it.",
            ),
            click.option("--part", "parts", metavar=parts, multiple=True, help="Only this part; may be repeated."),
        ):
            command = option(command)
        return command

    return decorated


@bench.command()
@_options("fig5|tables|logs|pairs")
def asa(parts: Sequence[str], out: Path | None, as_json: bool) -> None:
    """Measure how well waits are predicted, and what workflows gain by it (ASA paper).

    \b
    fig5    1000 waits whose level changes five times, without and with noise: who follows how fast
    tables  three workflows in six sizes under seven strategies and three rules of priority, on a simulated Slurm
    logs    real logs from the folder PENSTOCK_TRACES: every job predicted at its submission, by what was known then
    pairs   every strategy and a plain chain of sbatch --dependency=afterok, each in a fork of the same simulated queue:
            what is gained, with intervals. Most of an hour, and only when it is asked for; with --out a run that was
            broken off goes on where it was

    The others take some minutes. With --json one part prints {"rows": [...]}, several print {"PART": {"rows": [...]}}.
    The pictures of --out need matplotlib: pip install 'penstock-lab[plot]'.
    """
    from penstock_lab.papers.chapters import CHAPTERS, PAIRS
    from penstock_lab.papers.traces import traces

    parts = parts or [name for name in CHAPTERS if name != PAIRS]
    if "logs" in parts:
        traces()  # found missing now, not after minutes of work
    _run(_ASA, CHAPTERS, parts, out, as_json)


@bench.command()
@_options("table4|bound|modes|real|resize|others|others-pairs|others-logs")
def dmr(parts: Sequence[str], out: Path | None, as_json: bool) -> None:
    """Measure what malleable jobs do to a cluster's queue (DMR paper).

    \b
    table4  workloads of 50 to 400 jobs on 64 simulated nodes: rigid, moldable and malleable under two policies
    bound   how near the policies come to what no scheduler can go below, mean of three seeds; half an hour
    modes   table4 with synchronous and with asynchronous checks: what they cost, and what they gain
    real    50 jobs on 64 real nodes in a twentieth of their time beside the simulator's, and 24 MPI jobs on 8 nodes,
            rigid and malleable; about half an hour
    resize  what growing and shrinking cost a program with 1 GB on a real Slurm of eight nodes on this machine
    others  20 pairs on a real Slurm: do other users' promised starts move beside a malleable job? A quarter of an hour
    others-pairs
            what others lose by malleable jobs: 80 pairs on the simulated Slurm; a quarter of an hour
    others-logs
            the same on real logs from the folder PENSTOCK_TRACES and the simulated Slurm: how others' delays are
            distributed; half an hour, and only when it is asked for

    table4 and modes take some minutes. What runs on a real Slurm needs root and an installed Slurm, and is left out
    without unless it is asked for. With --json one part prints {"rows": [...]}, several print
    {"PART": {"rows": [...]}}. The pictures of --out need matplotlib: pip install 'penstock-lab[plot]'.
    """
    from penstock_lab.papers.dmr.chapters import CHAPTERS, LOGS, SIMULATED
    from penstock_lab.papers.traces import traces

    if not parts and not _can_have_slurm():
        click.echo("without root and Slurm: only what is simulated", err=True)
        parts = SIMULATED
    if LOGS in parts:
        traces()  # found missing now, not after minutes of work
    _run(_DMR, CHAPTERS, parts or [name for name in CHAPTERS if name != LOGS], out, as_json)


def _can_have_slurm() -> bool:
    from penstock_lab.cluster.programs import check_programs

    if os.geteuid() != 0:
        return False
    try:
        check_programs()
    except UserError:
        return False
    return True


@bench.command()
@_options("errors|programs|mixed|fair")
@click.option(
    "--quick", is_flag=True, help="Two sizes, one round, short queues: minutes less, figures that mean little."
)
def select(parts: Sequence[str], quick: bool, out: Path | None, as_json: bool) -> None:
    """Measure what selecting resources gains for bags of tasks (Ha et al.).

    \b
    errors    run times predicted by base and maximum clock and with the learned correction (Table I, Figs. 4 and 5)
    programs  run times of small programs that run on this machine, predicted from one core limit to another
    mixed     bags of 64 to 1024 tasks on four simulated machines, two of them loaded (Fig. 6): random, by the paper's
              model, least loaded, round robin, and ours
    fair      bags of the same sizes under stable loads, beside what users have today (sbatch -p a,b and -M a,b, the
              least loaded machine, one at random) and what nobody could beat; --out takes up where it was cut off

    All of it takes an hour on two cores. With --json one part prints {"rows": [...]}, several print
    {"PART": {"rows": [...]}}. The pictures of --out need matplotlib: pip install 'penstock-lab[plot]'.
    """
    from penstock_lab.papers.select_chapters import chapters

    _run(_SELECT, chapters(quick=quick), parts, out, as_json)


@bench.command()
@_options("slots|front|practice|starts|trade-off|load|prices|greedy|var|sites|real")
@click.option("--runs", type=click.IntRange(2), default=50, show_default=True, help="Runs of every setting.")
def provision(parts: Sequence[str], runs: int, out: Path | None, as_json: bool) -> None:
    """Measure slots and plans (Singh 2008), all but the last on real logs from the folder PENSTOCK_TRACES.

    \b
    slots      how many slots the CTC and SDSC logs leave free, from when, for how long
    front      makespan of plans on free slots, in part, against best effort: at 200 instants whatever --runs
    practice   the same where the queue knows only time limits, and slots move up as jobs end early
    starts     how near the promised and the likely start of a job that waits come to its start
    trade-off  makespan and cost of planned workflows against best effort, by trade-off, size and width
    load       the same against load, and the CyberShake workflow
    prices     what slots cost by whom they delay: by trade-off, load, share of reservations, time ahead and size
    greedy     workflows that buy their slots one by one at such prices, against best effort
    var        a slot by a job that idles, by price, and by both at once: cost and rate of success
    sites      a workflow over two to six sites, on slots and at prices, against best effort
    real       when the tasks of a reserved workflow begin on a real Slurm of this machine, beside their plan

    With 50 runs, as in the paper, it takes hours; --runs 5 takes some minutes. The last part needs root and an
    installed Slurm, takes ten minutes, and is left out without unless it is asked for.
    """
    from penstock_lab.papers.provision import PARTS, SIMULATED
    from penstock_lab.papers.traces import traces

    if not parts and not _can_have_slurm():
        click.echo("without root and Slurm: only what is simulated", err=True)
        parts = SIMULATED
    if set(parts or PARTS) & set(SIMULATED):
        traces()  # found missing now, not after minutes of work
    known = {name: partial(_with_runs, part, runs) for name, part in PARTS.items()}
    _run(_PROVISION, known, parts, out, as_json)


def _with_runs(part: Callable[[Path | None, Tell, int], Chapter], runs: int, out: Path | None, tell: Tell) -> Chapter:
    return part(out, tell, runs)


def _run(
    title: str,
    known: Mapping[str, Callable[[Path | None, Tell], Chapter]],
    parts: Sequence[str],
    out: Path | None,
    as_json: bool,
) -> None:
    from penstock_lab.papers.plotting import prepare
    from penstock_lab.papers.report import as_html, as_markdown

    for part in parts:
        if part not in known:
            raise UserError(f"--part must be one of {', '.join(known)}, not {part!r}")
    if out is not None:
        prepare(out)
    chapters = []
    for part in dict.fromkeys(parts or known):
        began = time.monotonic()
        chapter = known[part](out, lambda text: click.echo(text, err=True))
        chapters.append(chapter)
        if not as_json:
            for each in chapter.all_tables:
                table(f"{chapter.title}: {each.title}", each.columns, each.rows)
        click.echo(f"{part}: {time.monotonic() - began:.0f} s", err=True)
        if out is not None:
            _write(out / f"{part}.json", json.dumps(chapter.told(), indent=2) + "\n")
    if out is not None:
        all_parts = _with_earlier(out, known, chapters)
        _write(out / "report.md", as_markdown(title, all_parts))
        _write(out / "report.html", as_html(title, all_parts))
        click.echo(f"wrote {out / 'report.html'}", err=True)
    if as_json:
        results = {chapter.name: {"rows": chapter.rows} for chapter in chapters}
        emit_json(next(iter(results.values())) if len(results) == 1 else results)


def _with_earlier(out: Path, known: Iterable[str], chapters: Sequence[Chapter]) -> list[Chapter]:
    """All parts of the report that are measured, those of earlier runs as they lie in the folder."""
    from penstock_lab.papers.report import Chapter

    found = {chapter.name: chapter for chapter in chapters}
    for part in known:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # not measured, or by an earlier release
            found.setdefault(part, Chapter.read(json.loads((out / f"{part}.json").read_text(encoding="utf-8"))))
    return [found[part] for part in known if part in found]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UserError(f"--out: {path} cannot be written: {e.strerror}") from None

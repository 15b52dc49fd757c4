"""penstock profile: what a command uses up, measured; and how well that predicts other machines."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

import click

from penstock.console.groups import CommandGroup
from penstock.console.output import emit_json, table
from penstock.errors import UserError
from penstock_planning.broker.clock import base_clock, max_clock, processor
from penstock_planning.broker.counters import Counters, Unavailable
from penstock_planning.broker.measure import measure
from penstock_planning.broker.profiles import Profile, compare, load_profile, means, save_profile
from penstock_planning.commands import answers as planning

__all__ = ["profile"]

_MOST: Final = 1000


class _Profile(CommandGroup):
    """`penstock profile [OPTIONS] -- CMD`, and `penstock profile compare`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in ("compare", "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Profile, context_settings={"help_option_names": ["-h", "--help"]})
def profile() -> None:
    """Measure what a command uses here, for `penstock select`.

    \b
    penstock profile --runs 5 -- ./md --steps 1000
    penstock profile compare this-machine.yaml other.yaml another.yaml
    """


@profile.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--runs", type=click.IntRange(1, _MOST), default=1, show_default=True, help="How often it is run.")
@click.option("--machine", "name", metavar="NAME", help="What this machine is called [default: its host name].")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="Where the profile goes [default: CMD.profile.yaml]."
)
@click.option("--force", is_flag=True, help="Replace a profile that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def _run(runs: int, name: str | None, out: Path | None, force: bool, as_json: bool, command: tuple[str, ...]) -> None:
    """Run a command and write what it used up: cycles, instructions, clock, time, peak memory, bytes read and written.

    By hardware counters where that is permitted, else as CPU time x clock; it says which. Mean and deviation of all
    runs are written, and people may edit them.
    """
    path = out or Path(f"{Path(command[0]).name}.profile.yaml")
    if path.exists() and not force:
        raise UserError(f"{path} is there already (--force replaces it, --out writes elsewhere)")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--out: {path.absolute().parent} is no folder")
    counters = "perf"
    try:
        Counters().close()
    except Unavailable as e:
        counters = "cpu-time"
        click.echo(f"penstock: no hardware counters: {e}; cycles are CPU time x clock", err=True)
    found = [measure(command, counted=counters == "perf") for _ in range(runs)]
    mean, deviation = means(found)
    made = Profile(
        name or platform.node(),
        command,
        platform.machine(),
        processor(),
        base_clock(),
        max_clock(),
        counters,
        found,
        mean,
    )
    save_profile(path, made)
    if as_json:
        emit_json(planning.Profile.told(made, file=str(path), mean=mean, deviation=deviation))
        return
    table(
        f"{' '.join(command)}: {runs} runs, by {'hardware counters' if counters == 'perf' else 'CPU time x clock'}",
        ("", "mean", "deviation"),
        [(key, f"{value:.6g}", f"{deviation[key]:.3g}") for key, value in mean.items()],
    )
    click.echo(f"cycles to require: {made.amount:.6g} (wrote {path})", err=True)


@profile.command("compare")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("others", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _compare(base: Path, others: tuple[Path, ...], as_json: bool) -> None:
    """Say how well the profile of one machine predicts those of others (Ha et al., Eqs. 3 to 6).

    p2a_cy is predicted over actual cycles, epsilon the per cent of it that the instruction rate does not explain.
    Errors of the run time are by the base and the maximum clock of each machine; at the end the share of pairs of
    machines whose predicted order is the real one.
    """
    found, right = compare(load_profile(base), [load_profile(path) for path in others])
    if as_json:
        emit_json(planning.Compare(machines=[*map(planning.Machine.told, found)], ranked_right=right))
        return

    def percent(value: float | None) -> str | None:
        return None if value is None else f"{value:+.1f} %"

    table(
        "Predicted and actual",
        ("machine", "p2a_cy", "epsilon", "actual s", "base clock", "error", "maximum clock", "error"),
        [
            (
                c.name,
                f"{c.p2a_cy:.3f}",
                f"{c.epsilon:.2f} %",
                f"{c.actual:.1f}",
                None if c.by_base is None else f"{c.by_base:.1f}",
                percent(c.error_base),
                None if c.by_max is None else f"{c.by_max:.1f}",
                percent(c.error_max),
            )
            for c in found
        ],
    )
    for clock, share in right.items():
        click.echo(f"ranked right by {'base' if clock == 'base' else 'maximum'} clock: {100 * share:.0f} % of pairs")

"""penstock shim: the front programs on PATH."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

import click

from penstock.config import Config, load
from penstock.errors import NotPermitted, UserError
from penstock.fronts.programs.folder import front_folder, interpreter
from penstock.fronts.programs.memory import cluster_name
from penstock.fronts.programs.path import Refused, beheaded
from penstock.state.ownership import acts_path
from penstock.state.pools import pools_folder

__all__ = ["front_settings", "shim"]

_SHELLS: Final = {
    "sh": "sh",
    "bash": "sh",
    "zsh": "sh",
    "dash": "sh",
    "ksh": "sh",
    "fish": "fish",
    "csh": "csh",
    "tcsh": "csh",
}


@click.command()
@click.option("--off", is_flag=True, help="Print what takes them out of PATH again.")
@click.option("--path", "path_only", is_flag=True, help="Print the folder alone, for tools that set PATH themselves.")
@click.option(
    "--shell",
    type=click.Choice(sorted(_SHELLS)),
    default="sh",
    show_default=True,
    help="The shell that reads it; csh: eval `penstock shim --shell csh`, fish: penstock shim --shell fish | source",
)
def shim(off: bool, path_only: bool, shell: str) -> None:
    """Put front programs for Slurm's commands on PATH.

    \b
    eval "$(penstock shim)"          for this shell, and what is started from it
    eval "$(penstock shim --off)"    undoes it

    Every tool then calls these (sbatch, squeue, sacct, scancel, scontrol) in the place of Slurm's own, which they run:
    jobs are submitted once while Slurm is busy, and the agent answers what it knows.
    """
    if off and path_only:
        raise UserError("--off and --path: give one of them")
    family = _SHELLS[shell]
    try:
        if off:
            click.echo(_setting(family, beheaded(os.environ.get("PATH", os.defpath))))
            return
        folder = _made(load())
    except Refused as e:
        raise NotPermitted(str(e)) from e
    click.echo(folder if path_only else _first(family, folder))


def front_settings(config: Config) -> dict[str, str]:
    """What the front programs have to know of the configuration. Raises ConfigError where the caller has no place of
    its own."""
    return {
        "socket": str(config.socket_path),
        "python": sys.executable,
        "own": str(acts_path(config).parent),
        "slurm_conf": os.environ.get("SLURM_CONF", ""),
        "cluster": cluster_name(os.environ),
        "pools": str(pools_folder(config)),
        "pool_partition": config.pool.partition,
        "pool_below": "" if config.pool.below is None else str(config.pool.below / 60),
    }


def _made(config: Config) -> str:
    settings = front_settings(config)
    folder = str(front_folder(Path(settings["own"]) / "shim", settings, interpreter()))
    if os.pathsep in folder:
        raise UserError(f"{folder} cannot stand on PATH: it has a {os.pathsep!r} in it; set agent.state_dir")
    return folder


def _setting(family: str, path: str) -> str:
    """Sets PATH."""
    if family == "csh":
        return f"setenv PATH {_csh(path)}; rehash;"
    if family == "fish":
        return f"set -gx PATH {' '.join(map(_fish, path.split(os.pathsep)))};"
    return f"PATH={shlex.quote(path)}; export PATH; hash -r"


def _first(family: str, folder: str) -> str:
    """Puts a folder first on PATH, unless it is there."""
    if family != "sh":
        there = os.environ.get("PATH", os.defpath).split(os.pathsep)
        return "" if there[0] == folder else _setting(family, os.pathsep.join((folder, *there)))
    word = shlex.quote(folder)
    return f'case "${{PATH}}:" in {word}:*) ;; *) PATH={word}"${{PATH:+:${{PATH}}}}"; export PATH; hash -r ;; esac'


def _csh(text: str) -> str:
    return "'" + text.replace("'", "'\\''").replace("!", "\\!") + "'"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""penstock logs: what a stage has written, from the file that Slurm names, read as the caller."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import click

from penstock.config import Config, load
from penstock.console import complete
from penstock.console.output import emit_json
from penstock.errors import NotFound, NotNow, NotPermitted, SlurmUnavailable, UserError
from penstock.values.lines import split_lines
from penstock.workflow.commands.runs import Shown, StageLine, answered, find, shown

__all__ = ["logs", "output_files", "slurm_says"]

_POLL = 0.5  # seconds between looks at the file
_ASK = 5.0  # seconds between questions to the agent whether the stage has ended
_BEGUN = ("running", "done", "failed", "cancelled")
_FIELD = re.compile(r"^ +StdOut=(.+)$", re.MULTILINE)


@click.command()
@click.argument("workflow", shell_complete=complete.workflows)
@click.argument("stage", required=False, shell_complete=complete.stages)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until the stage has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the stage, its job and its files as JSON.")
def logs(workflow: str, stage: str | None, follow: bool, as_json: bool) -> None:
    """Print what a stage has written to its standard output.

    WORKFLOW is a number, wN, or a name. Without STAGE: the one that runs, else the last that has run.
    """
    config = load()
    run = find(shown(answered(config, last_known=True)), workflow)
    chosen = run.stage(stage) if stage is not None else _telling(run)
    if chosen.job is None:
        raise NotNow(f"stage {chosen.name!r} has no job yet ({chosen.phase})")
    files = output_files(chosen.job, config.slurm.timeout)
    if as_json:
        emit_json({"workflow": run.number or run.name, "stage": chosen.name, "job": chosen.job, "files": files})
        return
    if not files:
        raise NotFound(
            f"job {chosen.job} of stage {chosen.name!r} has no file for its output, or Slurm has forgotten it"
        )
    if follow and len(files) > 1:
        raise UserError(f"job {chosen.job} is an array with {len(files)} files; -f follows one: tail -f {files[0]}")
    for name in files:
        _print(config, run, chosen, Path(name), follow=follow)


def _telling(run: Shown) -> StageLine:
    """The stage that one would ask about."""
    running = [s for s in run.stages if s.phase == "running"]
    begun = [s for s in run.stages if s.start is not None]
    if running:
        return running[-1]
    return max(begun, key=lambda s: s.start or 0.0) if begun else run.stages[0]


def output_files(job: int, limit: float) -> list[str]:
    """The files of a job's standard output, an array's tasks each with its own: as Slurm has them in mind, else from
    accounting, which keeps them from 24.05 on. Raises `SlurmUnavailable`."""
    files = _FIELD.findall(slurm_says(["scontrol", "show", "job", str(job)], limit))
    if not files:
        words = ["sacct", "-n", "-P", "-X", "--expand-patterns", "-o", "StdOut", "-j", str(job)]
        files = [line for line in split_lines(slurm_says(words, limit)) if line.startswith("/")]
    return sorted({name for name in files if name != "/dev/null"})


def slurm_says(words: list[str], limit: float) -> str:
    """What a command of Slurm prints, empty where it fails. Raises `SlurmUnavailable` where there is no answer within
    `limit` seconds."""
    # Run in a job, scontrol would take SLURM_JOBID to heart.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k == "SLURM_CONF"}
    try:
        done = subprocess.run(words, capture_output=True, timeout=limit, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SlurmUnavailable(f"{words[0]} gave no answer: {e}") from e
    # What it does not know it says with an exit code: then it has nothing to tell.
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _print(config: Config, run: Shown, stage: StageLine, path: Path, *, follow: bool) -> None:
    file = _open(config, run, stage, path, patient=follow)
    with file:
        asked = time.monotonic()
        ended = not follow
        while True:
            while text := file.read(65536):
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()
            if ended:
                return
            time.sleep(_POLL)
            if time.monotonic() - asked >= _ASK:
                asked, ended = time.monotonic(), _ended(config, run, stage)


def _open(config: Config, run: Shown, stage: StageLine, path: Path, *, patient: bool) -> IO[bytes]:
    while True:
        try:
            return path.open("rb")
        except FileNotFoundError:
            if not patient or _ended(config, run, stage):
                told = "it has not begun" if stage.phase not in _BEGUN else "the file is not there"
                raise NotNow(f"job {stage.job} has written nothing to {path}: {told} ({stage.phase})") from None
            time.sleep(_ASK)
        except PermissionError:
            raise NotPermitted(f"you may not read {path}") from None
        except OSError as e:
            raise NotFound(f"{path}: {e.strerror}") from None


def _ended(config: Config, run: Shown, stage: StageLine) -> bool:
    now = find(shown(answered(config, last_known=True)), run.label).stage(stage.name)
    return now.job != stage.job or now.phase in ("done", "failed", "cancelled")

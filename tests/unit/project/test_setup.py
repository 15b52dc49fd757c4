"""scripts/setup.sh says what it does, also where something is missing. Needs no network: the environment is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from places import PROJECT

DISTRIBUTIONS = (
    "",
    "dmr/",
    "lab/",
    *(
        f"plugins/{name}/"
        for name in ("dashboard", "fronts", "messages", "planning", "pool", "pyslurm-backend", "rest", "site-view")
    ),
)
READ = (*(f"{folder}pyproject.toml" for folder in DISTRIBUTIONS), "hatch_build.py", "agent/penstock/__init__.py")
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sbatch")
FOUND = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def source() -> Iterator[Path]:
    """A copy of the source with an empty environment that counts as complete; Slurm's programs there do nothing."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own cannot be read by ordinary users
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(PROJECT / "scripts", place / "scripts")
        for name in READ:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, place / name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / ".venv"], check=True, timeout=60)
        stamp(place, FOUND)
        (place / "bin").mkdir()
        for program in PROGRAMS:
            (place / "bin" / program).write_text("#!/bin/sh\nexit 127\n")
            (place / "bin" / program).chmod(0o755)
        yield place


def stamp(place: Path, python: str, extras: str = "all") -> None:
    text = b"".join((place / name).read_bytes() for name in READ)
    summed = subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout.decode().strip()
    (place / ".venv" / ".penstock-setup").write_text(f"{python} {extras} {summed}\n")


def run(source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{source}/bin:{os.environ['PATH']}", "PIP_NO_INDEX": "1", "HOME": str(source)}
    return subprocess.run(
        words, env=env, cwd=source, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def test_a_slurm_that_cannot_say_its_release_does_not_end_it(source: Path) -> None:
    done = run(source, "scripts/setup.sh", "all")
    assert done.returncode == 0, done.stderr
    assert "pyslurm is left out: it fits Slurm 25.11 only, here is none" in done.stderr
    assert done.stderr.endswith(f"setup: done; for this shell: source {source}/.venv/bin/activate\n")


@pytest.mark.parametrize("fault", ["interpreter", "release"])
def test_an_environment_that_cannot_serve_is_not_taken_for_complete(source: Path, fault: str) -> None:
    if fault == "release":
        stamp(source, "3.0")
    else:
        (source / ".venv" / "bin" / "python").unlink()
    done = run(source, "scripts/setup.sh", "all")
    assert done.returncode != 0, "there is nothing to install from"
    assert "setup: installing Penstock and its dependencies" in done.stderr


def test_scripts_may_source_it(source: Path) -> None:
    done = run(source, "bash", "-euc", 'source scripts/setup.sh all; echo "$VENV $HAVE_SLURM ${PATH%%:*}"')
    assert done.stdout == f"{source}/.venv 1 {source}/.venv/bin\n", done.stderr
    assert "for this shell" not in done.stderr


def test_the_shell_that_somebody_types_in_stays_as_it_is(source: Path) -> None:
    script = 'before=$-$SHELLOPTS; source scripts/setup.sh all; echo "$?"; [ "$before" = "$-$SHELLOPTS" ] && echo same'
    done = run(source, "bash", "--norc", "-i", "-c", script)
    assert done.stdout == "2\nsame\n", done.stderr
    assert "setup: not to be sourced by the shell you type in" in done.stderr

"""Every measurement that a page or a module names runs: its options are known, and at its smallest size it comes to an
end with what it says it prints. A goal may be missed, with so little measured on a machine that others use.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from doc_pages import PAGES

from penstock.cli.catalogue import METRICS, PREFIX
from penstock_lab.bench.snapshot import LOOKS
from penstock_lab.cluster.programs import check_programs
from penstock_lab.papers.traces import traces
from places import PROJECT

LAB = PROJECT / "lab" / "penstock_lab"
NAMED = re.compile(r"python -m (penstock_lab(?:\.[a-z_0-9]+)+)(?![\w.])([^`#\n]*)")
SLURM, ROOT, TRACES, RELEASE = "Slurm", "root", "PENSTOCK_TRACES", "trixie"


@dataclass(frozen=True)
class Small:
    """A module at its smallest size: its options, what is in its output, what it needs, and constants that it has
    instead of options."""

    module: str
    options: str = ""
    says: str = r"\bload [0-9]"
    needs: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    long: bool = True

    @property
    def program(self) -> str:
        """Runs it as `python -m` does."""
        lines = [f"import importlib, sys; module = importlib.import_module({self.module!r})"]
        lines += [f"assert hasattr(module, {constant.split()[0]!r}); module.{constant}" for constant in self.constants]
        return "\n".join([*lines, f"sys.argv = ['it', *{self.options.split()!r}]", "sys.exit(module.main())"])


ON_SLURM = (SLURM, ROOT)
SMALLEST = [
    Small("bench.check", "--calls 1000 --rounds 1", "goal: below 1000 ns", long=False),
    Small("bench.commands", "--rounds 1", r"status +[0-9.]+ times", long=False),
    Small("bench.workflows", "--runs 3 --stages 2", "peak memory +[0-9]+ MB", long=False),
    Small("bench.redistribute", "--rounds 1 --megabytes 1 --sizes 1:2 --ranks stay --only rows", long=False),
    Small("bench.fuzz", "--inputs 200", r"\nall +[0-9]+"),
    Small("bench.history", "--jobs 2000 --folder FOLDER", "together [0-9]+ s"),
    Small("bench.matchmaking", "", "as printed, all pairs"),
    Small("bench.provision", "", "CyberShake, 8,039 tasks, orders"),
    Small("bench.waits", "", "refit of the queue's learner"),
    Small("bench.futures", "--waiting 20 40 --rounds 1", "times the time of a future", (TRACES,)),
    Small("bench.pool_cost", "--tasks 500", "goals missed"),
    Small("bench.checks", "--applications 5 --seconds 2 --every 1", r"\| agent \| [0-9]+"),
    Small("bench.simulate", "--rounds 1", "replan, CTC@338", (TRACES,)),
    Small("bench.idle", "--seconds 2", needs=(SLURM,)),
    Small("bench.stall", "--rounds 1 --megabytes 1", "goal: 4 to 8", ON_SLURM),
    Small("bench.fairness", "--seconds 3", needs=(ROOT,)),
    Small("bench.questions", "--jobs 20 --rounds 1 --asked 5", "goal: none refused"),
    Small("bench.snapshot", "--jobs 40 --rounds 1", needs=ON_SLURM),
    Small("bench.rest", "--jobs 20 --rounds 1", r"load [0-9]|latency ms", (*ON_SLURM, RELEASE)),
    Small("bench.select_slurm", "--tasks 4 --rounds 1", r"\| 1 \| selected", ON_SLURM),
    Small(
        "bench.site_view",
        "--users 3 --guards 5 --agents 2 --seconds 10 --settle 5 --jobs 10",
        r"askers: {'answers': [1-9]",
        ON_SLURM,
        ("EVERY = 3.0",),
    ),
    Small("bench.pool", "--tasks 40 --allocations 2 --cores 4 --sruns 2 --jobs 2", "one job per task: ", ON_SLURM),
    Small(
        "bench.asa_slurm",
        "--repetitions 1 --at-once 1 --rule default --strategy perstage",
        "1 clusters at once",
        ON_SLURM,
        ("STAGES = (5.0, 5.0, 5.0)", "LOAD_FIRST = 5.0"),
    ),
    Small(
        "bench.elastic_slurm",
        "--out FOLDER/rounds.jsonl --rounds 1 --at-once 1",
        "of the idle node time held",
        ON_SLURM,
        ("WARM = 10.0", "LASTS = 60.0", "_SLOWER_LASTS = 60.0", "LOAD = 0.2", "BEFORE = 0"),
    ),
    Small(
        "bench.pool_auto_slurm",
        "--out FOLDER/rounds.jsonl --rounds 1 --at-once 1",
        "goal: idle at most",
        ON_SLURM,
        ("WARM = 10.0", "TASKS = 8", "LOAD = 0.2", "BEFORE = 1"),
    ),
    Small("bench.restarts_slurm", "--out FOLDER/rounds.jsonl --rounds 1 --minutes 1", "goal: nothing wrong", ON_SLURM),
    Small("soak.__main__", "--days 0.02", "seed"),
    Small("soak.__main__", "--part idle --hours 0.2", "MB", (SLURM,)),
    Small("soak.__main__", "--part real --minutes 1", "seed", ON_SLURM),
    Small("soak.__main__", "--part resizes --minutes 1", "seed", ON_SLURM),
    Small("paired.twins", "--pairs 1 --at-once 1", "pair"),
    Small("paired.poolpairs", "--out FOLDER/pairs.jsonl --windows 1 --seeds 1 --machine ctc", "1 windows", (TRACES,)),
    Small("paired.moldpairs", "--out FOLDER/pairs.jsonl --windows 1 --seeds 1 --machine ctc", "1 windows", (TRACES,)),
]
INSIDE = {"mock.server", "papers.dmr.raw_mpi", "papers.dmr.standin", "papers.select_kernels"}
"""Started by other programs, whose tests run them."""


def modules() -> set[str]:
    """What can be run with -m, without the package's name."""
    found = {
        path for path in LAB.rglob("*.py") if '__name__ == "__main__"' in path.read_text() or path.stem == "__main__"
    }
    return {".".join(path.relative_to(LAB).with_suffix("").parts) for path in found} - {"mock.srun", "__main__"}


def test_every_measurement_has_a_smallest_size():
    assert {small.module for small in SMALLEST} | INSIDE == modules()


# -- what is named -----------------------------------------------------------------------------------------------------


def named() -> dict[str, set[str]]:
    """The options that pages and docstrings name, by module."""
    found: dict[str, set[str]] = {}
    for path in [*PAGES, *LAB.rglob("*.py")]:
        for module, rest in NAMED.findall(path.read_text(encoding="utf-8")):
            if module.removeprefix("penstock_lab.") in INSIDE:
                continue
            found.setdefault(module, set()).update(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
    return found


class FoundParserError(BaseException):
    pass


def options_of(module: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The options of a module's command; none where it reads none."""
    if (LAB.parent / module.replace(".", "/") / "__main__.py").exists():
        module = f"{module}.__main__"
    loaded = importlib.import_module(module)
    if isinstance(loaded.main, click.Command):
        return {option for parameter in loaded.main.params for option in parameter.opts}
    if "argparse" not in Path(loaded.__file__).read_text():
        return set()
    known: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        known.append(parser)
        raise FoundParserError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(FoundParserError):
        loaded.main()
    return set(known[0]._option_string_actions)


def test_the_measurements_that_are_named_have_these_options(monkeypatch):
    wrong = {}
    for module, options in sorted(named().items()):
        try:
            unknown = options - options_of(module, monkeypatch)
        except (ModuleNotFoundError, AttributeError) as error:
            unknown = {repr(error)}
        if unknown:
            wrong[module] = unknown
    assert wrong == {}


def test_a_metric_that_is_read_is_one_of_the_agents():
    """A counter has `_total` behind its name when it is told."""
    told = {f"{PREFIX}{m.name.removesuffix('_total')}{'_total' * (m.kind == 'counter')}" for m in METRICS.values()}
    assert LOOKS in told


# -- what runs ---------------------------------------------------------------------------------------------------------


def why_not(needs: tuple[str, ...]) -> str:
    if ROOT in needs and os.geteuid() != 0:
        return "root"
    if SLURM in needs:
        try:
            check_programs()
        except Exception as error:
            return str(error)
    if TRACES in needs:
        try:
            traces()
        except Exception as error:
            return str(error)
    return RELEASE if RELEASE in needs and RELEASE in os.environ.get("PENSTOCK_TEST_UNBUILT", "") else ""


@pytest.mark.parametrize(
    "small",
    [
        pytest.param(each, id=f"{each.module} {each.options}".strip(), marks=[pytest.mark.long] if each.long else [])
        for each in SMALLEST
    ],
)
@pytest.mark.timeout(1500)
def test_at_its_smallest_size_it_comes_to_an_end(small, tmp_path):
    if missing := why_not(small.needs):
        pytest.skip(f"needs {missing}")
    before = empty_folders()
    program = small.program.replace("FOLDER", str(tmp_path)).replace("import_module('", "import_module('penstock_lab.")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=1400, cwd=tmp_path, check=False
    )
    told = f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, told
    assert re.search(small.says, done.stdout), told
    assert empty_folders() <= before, "nothing is left"


def empty_folders() -> set[Path]:
    """Those that a measurement would have left behind."""
    return {path for path in Path("/var/tmp").glob("penstock-bench-*") if path.is_dir() and not any(path.iterdir())}

"""Other tools' own Slurm tests, from PyPI's source packages: the same ones pass with the front programs as without."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agents import Desk, SlurmAgent
from tool_suites import BASE, LIMIT, SUITES, Suite, passed

from conftest import empty
from penstock_lab.cluster import Cluster, ClusterSpec, up

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(3000)]

PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


@dataclass
class Tools:
    """A source package unpacked in `source`, and the Python that has it installed."""

    source: Path
    python: Path


def missing(reason: str) -> None:
    """Skip the test; fail it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def tools() -> Iterator[Callable[[Suite], Tools]]:
    """Installs a suite's package, each for itself, as they want different releases of the same libraries. Users of a
    cluster cannot enter pytest's own folders, so it lies beside the clusters."""
    place = Path(tempfile.mkdtemp(prefix="penstock-suites-", dir="/var/tmp"))
    place.chmod(0o755)
    found: dict[str, Tools] = {}

    def install(suite: Suite) -> Tools:
        if suite.package not in found:
            found[suite.package] = _install(place / suite.package, suite)
        return found[suite.package]

    try:
        yield install
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install(place: Path, suite: Suite) -> Tools:
    subprocess.run(["/usr/bin/python3", "-m", "venv", place / "venv"], check=True, umask=0o022)
    python = place / "venv" / "bin" / "python"
    wanted = f"{suite.package}=={suite.release}" if suite.release else suite.package
    # Only the tool itself comes as source: what it is built with need not be built as well.
    argv = [python, *PIP, "download", "--no-deps", "--no-binary", suite.package, "-d", place, wanted]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        missing(f"no package index can be reached, or it lacks {wanted}: {done.stderr.strip().splitlines()[-1:]}")
    (archive,) = place.glob("*.tar.gz")
    needs = sorted({*BASE, *(need for one in SUITES if one.package == suite.package for need in one.needs)})
    subprocess.run([python, *PIP, "install", *needs, archive], check=True, umask=0o022)
    (place / "source").mkdir()
    subprocess.run(
        ["tar", "-xzf", archive, "-C", place / "source", "--no-same-owner", "--strip-components=1"], check=True
    )
    return Tools(place / "source", python)


@pytest.fixture(scope="module")
def tools_cluster(sweep: None, new_folder: Callable[[str], Path]) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=4, select="cons_tres", folder=new_folder("u")))
    yield it
    it.down()


@pytest.fixture
def site(tools_cluster: Cluster) -> Iterator[SlurmAgent]:
    it = SlurmAgent(tools_cluster).start()
    yield it
    it.down()


def run(site: SlurmAgent, tools: Tools, suite: Suite, path: str, where: str) -> set[str]:
    """The tests that passed, in a copy of the package that is Alice's own."""
    cluster, home = site.cluster, site.cluster.home("alice") / f"{suite.name}-{where}"
    cluster.run_as("alice", ["cp", "-r", str(tools.source), str(home)], check=True)
    argv = [str(tools.python), "-m", "pytest", "-q", "--timeout=90", "--junitxml=passed.xml", *suite.words]
    env = {**site.environment, "PATH": f"{path}:{cluster.user_env('alice')['PATH']}"}
    done = cluster.run_as("alice", argv, env=env, cwd=home, timeout=LIMIT)
    assert (home / "passed.xml").exists(), done.stdout + done.stderr
    found = passed(home / "passed.xml")
    names = {name.rpartition(".")[2].partition("[")[0] for name in found}
    assert suite.sure in names, done.stdout[-6000:] + done.stderr[-2000:]
    print(f"{suite.name}, {where}: {done.stdout.strip().splitlines()[-1]}")
    empty(cluster)
    return found


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_tools_own_tests_pass_as_without_front_programs(site, tools, suite):
    tool = tools(suite)
    fronts = Desk(site).say("penstock", "shim", "--path").strip()
    programs = str(tool.python.parent)
    without = run(site, tool, suite, programs, "without")
    behind = run(site, tool, suite, f"{fronts}:{programs}", "with")
    assert behind == without

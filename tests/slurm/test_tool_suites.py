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
    """The unpacked source packages in `folder`, one a subfolder, and the Python that has them installed."""

    folder: Path
    python: Path


def missing(reason: str) -> None:
    """Skip the test; fail it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    """Users of a cluster cannot enter pytest's own folders, so it lies beside the clusters."""
    place = Path(tempfile.mkdtemp(prefix="penstock-suites-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        yield _install(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install(place: Path) -> Tools:
    subprocess.run(["/usr/bin/python3", "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    archives = place / "archives"
    # Only the tools themselves come as source: what they are built with need not be built as well.
    releases = {suite.package: suite.release for suite in SUITES}
    wanted = [f"{package}=={release}" if release else package for package, release in sorted(releases.items())]
    argv = [python, *PIP, "download", "--no-deps", "--no-binary", ",".join(releases), "-d", archives, *wanted]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(place, ignore_errors=True)
        missing(f"no package index can be reached, or it lacks a tool: {done.stderr.strip().splitlines()[-1:]}")
    needs = sorted({*BASE, *(need for suite in SUITES for need in suite.needs)})
    files = sorted(archives.iterdir())
    subprocess.run([python, *PIP, "install", *needs, *files], check=True)
    (place / "sources").mkdir()
    for file in files:
        subprocess.run(["tar", "-xzf", file, "-C", place / "sources", "--no-same-owner"], check=True)
    return Tools(place / "sources", python)


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
    (source,) = tools.folder.glob(suite.package.replace("-", "?") + "-*")
    cluster.run_as("alice", ["cp", "-r", str(source), str(home)], check=True)
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
    fronts = Desk(site).say("penstock", "shim", "--path").strip()
    programs = str(tools.python.parent)
    without = run(site, tools, suite, programs, "without")
    behind = run(site, tools, suite, f"{fronts}:{programs}", "with")
    assert behind == without

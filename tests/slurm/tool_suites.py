"""The Slurm tests of other tools that their source packages on PyPI hold, and how they are run as a cluster's user."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

LIMIT = 900.0
"""Seconds that one run of a suite may take."""


@dataclass(frozen=True)
class Suite:
    """Tests of one source package.

    `words` are pytest's, said in the unpacked package; `needs` is installed besides it; `sure` is a test that has to
    pass, so that two runs in which nothing worked are not taken for alike. `release`: empty for the newest.
    """

    name: str
    package: str
    words: tuple[str, ...]
    sure: str
    needs: tuple[str, ...] = ()
    release: str = ""


SUITES = (
    # The package lacks conftest.py, and with it `-E slurm` and the fixtures of test_job.py. All else that is
    # marked env("slurm") stands in test_slurm.py, and runs unasked without that option. The module comes before
    # distributed's fixtures, which put the configuration back to what it is when they are read.
    # Not its runner: that writes to /shared_space, a folder of the containers that it is tested in.
    Suite(
        "dask-jobqueue",
        "dask-jobqueue",
        ("-p", "dask_jobqueue", "-p", "distributed.utils_test", "-W", "ignore", "-k", "not test_slurm_runner",
         "dask_jobqueue/tests/test_slurm.py"),
        "test_basic",
    ),
    # Apps on a block of Slurm's, by the configuration that Parsl's own CI has for it.
    Suite(
        "parsl-apps",
        "parsl",
        ("--config", "parsl/tests/configs/slurm_local.py", "parsl/tests/test_python_apps/test_basic.py",
         "parsl/tests/test_python_apps/test_fail.py", "parsl/tests/test_bash_apps/test_basic.py"),
        "test_simple",
    ),
    # Its provider, with commands that are not run.
    Suite(
        "parsl-provider",
        "parsl",
        ("--config", "local", "parsl/tests/test_providers/test_slurm_template.py",
         "parsl/tests/test_providers/test_slurm_instantiate.py"),
        "test_submit_script_basic",
    ),
    # They put programs of their own in the place of Slurm's.
    Suite(
        "submitit",
        "submitit",
        ("submitit/slurm/test_slurm.py", "submitit/auto/test_auto.py"),
        "test_slurm_job_mocked",
        ("pytest-asyncio",),
    ),
    # The same two workflows, half a minute each, stand in nine of its classes: they run in two of these.
    Suite(
        "snakemake",
        "snakemake-executor-plugin-slurm",
        ("-o", "python_files=test*.py", "tests", "-k",
         "not (simple_workflow or group_workflow) or (TestWorkflows and not Requeue) or TestPass"),
        "test_parse_sacct_data",
        ("snakemake", "pytest-asyncio"),
    ),
    # The last release whose package has all that these import. With one of its launchers: a job takes half a minute.
    Suite(
        "psij",
        "psij-python",
        ("--executors", "slurm:single", "tests/test_executor.py", "tests/test_callbacks.py", "tests/test_resources.py",
         "tests/test_nodefile.py", "tests/test_wait.py", "tests/test_job_spec.py", "tests/test_issue_387_1.py",
         "tests/test_issue_387_2.py", "tests/test_issue_387_3.py"),
        "test_simple_job",
        ("requests",),
        "0.9.3",
    ),
)  # fmt: skip

BASE = ("pytest<9", "pytest-timeout", "typeguard")
"""What all of them need; Parsl's conftest.py is for a pytest before 9."""


def passed(report: Path) -> set[str]:
    """The tests that passed, by a junit file: class, a dot and name."""
    found = set()
    for case in ET.parse(report).getroot().iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            found.add(f"{case.get('classname')}.{case.get('name')}")
    return found

"""The settings of a site that decide how workflows are run there."""

import asyncio
from dataclasses import replace

import pytest

from penstock.errors import SlurmUnavailable
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import Finished
from penstock.workflow.strategy import Rules

CONFIG = """Configuration data as of 1795249390
AccountingStorageType = accounting_storage/slurmdbd
ClusterName = c
MinJobAge = 300 sec
PriorityFlags = {flags}
PriorityType = {kind}
PriorityWeightAge = {weight}
SLURM_VERSION = 22.05.8
SelectType = {select}
"""


def site(limits="\n2\n30\n", **more):
    backend = CliBackend()
    values = {"flags": "", "kind": "priority/multifactor", "weight": "1000", "select": "select/linear", **more}

    async def answer(argv, **_):
        if argv[0] == "scontrol":
            return Finished(0, CONFIG.format(**values), "")
        assert argv[0] == "sacctmgr"
        if isinstance(limits, Exception):
            raise limits
        return Finished(0, limits, "")

    backend._runner.run = answer
    return asyncio.run(backend.site())


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, Rules(weight_age=1000, whole_nodes=True, max_accrue=2)),
        ({"flags": "SMALL_RELATIVE_TO_TIME,ACCRUE_ALWAYS", "limits": ""}, Rules(True, False, 1000, True)),
        ({"kind": "priority/basic", "weight": "(null)", "limits": "\n"}, Rules(True, True, None, True)),
        ({"select": "select/cons_tres", "limits": SlurmUnavailable("no")}, Rules(weight_age=1000)),
        ({"limits": "sacctmgr: error: nobody knows 5 things"}, Rules(weight_age=1000, whole_nodes=True)),
    ],
)
def test_the_rules_of_a_site(settings, rules):
    found = Rules.of(site(**settings))
    assert replace(found, no_merge=None) == rules
    assert found.no_merge == "SchedulerParameters lacks permit_job_expansion"

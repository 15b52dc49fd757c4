"""The settings of a site that decide how workflows are run there."""

import asyncio
from dataclasses import replace

import pytest

from penstock.errors import Infeasible, SlurmUnavailable
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import CommandResult
from penstock.slurm.site_settings import site_from_text
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
            return CommandResult(0, CONFIG.format(**values), "")
        assert argv[0] == "sacctmgr"
        if isinstance(limits, Exception):
            raise limits
        return CommandResult(0, limits, "")

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


def test_the_settings_that_say_what_a_user_sees_and_may():
    more = "PrivateData = jobs,usage\nAccountingStorageEnforce = Associations,limits\nScronParameters = enable\n"
    found = site_from_text(
        CONFIG.format(flags="", kind="priority/basic", weight="(null)", select="select/linear") + more
    )
    assert found.accounting
    assert found.private == {"jobs", "usage"}
    assert found.enforced == {"associations", "limits"}
    assert found.scron
    assert found.release == "22.05.8"


def test_a_site_that_hides_nothing_and_has_no_database():
    text = CONFIG.format(flags="", kind="priority/basic", weight="(null)", select="select/linear")
    text = text.replace("accounting_storage/slurmdbd", "(null)")
    found = site_from_text(text + "PrivateData = none\nAccountingStorageEnforce = none\nScronParameters = (null)\n")
    assert (found.accounting, found.private, found.enforced, found.scron) == (False, frozenset(), frozenset(), False)


@pytest.mark.parametrize(
    ("answer", "accounts"),
    [
        (
            CommandResult(0, "physics||long,normal\nbio|long|long,normal\nphysics||long,normal\n", ""),
            ["bio", "physics"],
        ),
        (CommandResult(0, "\n", ""), []),
    ],
)
def test_the_accounts_of_a_user(answer, accounts):
    backend = CliBackend(user="u")
    asked = []

    async def run(argv, **_):
        asked.append(argv)
        return answer

    backend._runner.run = run
    assert list(asyncio.run(backend.memberships("c"))) == accounts
    assert {"user=u", "cluster=c"} <= set(asked[0])


@pytest.mark.parametrize(
    ("row", "qos"),
    [("a|long|long,normal", "long"), ("a||long,normal", "normal"), ("a||long", "long"), ("a||x,y", ""), ("a||", "")],
)
def test_the_qos_of_a_job_that_names_none(row, qos):
    backend = CliBackend(user="u")

    async def run(_argv, **_):
        return CommandResult(0, f"{row}\n", "")

    backend._runner.run = run
    assert asyncio.run(backend.memberships("c")) == {"a": qos}


def test_a_row_of_an_association_that_is_none_is_no_answer():
    backend = CliBackend(user="u")

    async def run(_argv, **_):
        return CommandResult(0, "physics\n", "")

    backend._runner.run = run
    with pytest.raises(SlurmUnavailable):
        asyncio.run(backend.memberships("c"))


def test_without_accounting_nobody_has_accounts():
    backend = CliBackend()

    async def run(argv, **_):
        return CommandResult(1, "", "You are not running a supported accounting_storage plugin")

    backend._runner.run = run
    with pytest.raises(Infeasible):
        asyncio.run(backend.memberships("c"))

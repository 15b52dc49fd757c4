"""Tasks on several nodes, and limits of QOS and associations that a partition's jobs have to keep."""

import asyncio
from dataclasses import replace

import pytest
from bag_world import hindered

from penstock.api import HolderKind, Limit, LimitHolder, Owner, OwnerLimits, Partition, SiteConfig
from penstock.config import config_of
from penstock.core.executor import Executor
from penstock.errors import UserError
from penstock.slurm.records import node_from_line, partition_from_line
from penstock.state.store import Store
from penstock_lab.mock.backend import VirtualClock, virtual_cluster
from penstock_lab.mock.model import ClusterConfig, NodeLimits, PartitionConfig
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import assess, open_market
from penstock_planning.broker.bags import Bags
from penstock_planning.broker.choice import Preference, choose
from penstock_planning.broker.clusters import view_clusters
from penstock_planning.broker.partitions import candidates
from penstock_planning.broker.place import place
from penstock_planning.broker.shape import at_most, beyond, shape
from penstock_planning.broker.site import SiteFile
from penstock_planning.broker.tasks import bag_at, entry_of
from penstock_planning.select.correction import Corrections

SITE = SiteConfig(
    (24, 11), "near", "select/linear", frozenset(), frozenset(), "priority/multifactor", frozenset(), 300.0
)
SHARED = replace(SITE, select_type="select/cons_tres")
LIMITS = frozenset({"associations", "limits"})


def bag(tmp_path, **more):
    entry = {"name": "cfd", "requirements": [{"type": "compute", "amount": 1e13}], **more}
    return bag_at(entry, "t", tmp_path, "t")


@pytest.fixture
def offered():
    """A partition of four nodes of eight CPUs as scontrol prints it, of which one is drained."""

    def build(site=SITE, states=("IDLE", "IDLE", "ALLOCATED", "IDLE+DRAIN"), **more):
        lines = [f"NodeName=c{i} Arch=x86_64 CPUTot=8 RealMemory=64000 State={s}" for i, s in enumerate(states, 1)]
        nodes = {node.name: node for node in map(node_from_line, lines)}
        part: Partition = partition_from_line(
            "PartitionName=par AllowAccounts=ALL AllowQos=ALL Default=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 "
            "MinNodes=0 Nodes=c[1-4] OverSubscribe=NO State=UP"
        )
        (found,) = candidates(site, [replace(part, **more)], nodes, (), SiteFile(), fallback=2e9)
        return found

    return build


def test_nodes_that_are_suspended_or_being_cleared_can_be_used(tmp_path, offered):
    asleep = offered(states=("IDLE+CLOUD+POWERED_DOWN", "IDLE+POWERING_DOWN", "IDLE+COMPLETING", "IDLE+DRAIN"))
    assert asleep.usable == {"c1", "c2", "c3"} and hindered(bag(tmp_path, nodes=3), asleep) is None


def test_a_task_on_several_nodes_has_them_for_itself(tmp_path, offered):
    made = shape(bag(tmp_path, nodes=3, cores=24), offered())
    assert (made.per, made.cores, made.nodes, made.units) == (1, 8, 3, 3)
    assert made.directives == ("#SBATCH --ntasks=3\n#SBATCH --ntasks-per-node=1\n")
    shared = shape(bag(tmp_path, nodes=2, cores=8), offered(SHARED))
    assert (shared.cores, shared.units) == (4, 8)
    assert "--cpus-per-task=4" in shared.directives


@pytest.mark.parametrize(
    ("asked", "more", "why"),
    [
        ({"nodes": 3}, {}, None),
        ({"nodes": 4}, {}, "a task needs 4 nodes, 3 can be used: others are down or reserved"),
        ({"nodes": 5}, {}, "a task needs 5 nodes, there are 4"),
        ({"nodes": 3}, {"max_nodes": 2}, "a task needs 3 nodes, a job there gets at most 2 (MaxNodes)"),
        ({"nodes": 2}, {"min_nodes": 3}, "a job there has at least 3 nodes, a task runs on 2"),
        ({"nodes": 2}, {"min_nodes": 2}, None),
        ({"nodes": 2, "cores": 18}, {}, "a task needs 9 cores on each node, its nodes have 8"),
    ],
)
def test_a_partition_that_cannot_hold_it_is_out_with_the_reason(tmp_path, offered, asked, more, why):
    assert hindered(bag(tmp_path, **asked), offered(**more)) == why


def test_cores_are_those_of_all_nodes(tmp_path):
    assert bag(tmp_path, nodes=4).task.parallel.cores == 4
    with pytest.raises(UserError, match="10 cores cannot be divided by 4 nodes"):
        bag(tmp_path, nodes=4, cores=10)
    with pytest.raises(UserError, match="nodes"):
        bag(tmp_path, nodes=0)
    written = bag(tmp_path, nodes=4, cores=8)
    assert bag_at(entry_of(written), "t", tmp_path, "t").nodes == 4


def known(*limits):
    owner = Owner("alice", "physics", "par", "normal")
    return OwnerLimits(owner, None, (LimitHolder(HolderKind.QOS, "QOS normal", tuple(limits)),))


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (Limit("MaxTRESPerJob", 2, "node"), "QOS normal has MaxTRESPerJob node=2, a job needs node=3"),
        (Limit("MaxTRESPerUser", 16, "cpu"), "QOS normal has MaxTRESPerUser cpu=16, a job needs cpu=24"),
        (Limit("MaxTRESPerUser", 24, "cpu", used=24), None),  # in use now, not for ever
        (Limit("MaxWall", 600), "QOS normal has MaxWall 10 min, a job asks for 120 min"),
        (Limit("GrpTRESMins", 1, "cpu"), None),
    ],
)
def test_limits_that_no_job_of_it_could_keep(tmp_path, offered, limit, why):
    made = shape(bag(tmp_path, nodes=3, cores=24, time="2h"), offered())
    assert beyond(known(limit), made, 8, LIMITS) == why
    assert beyond(known(limit), made, 8, frozenset({"associations"})) is None


def test_a_limit_that_nobody_names_is_cut_to_what_its_owner_may_have(tmp_path, offered):
    some = bag(tmp_path)
    plain = shape(some, offered())
    assert plain.limit == 3 * plain.run == at_most(some, plain, known()).limit
    assert at_most(some, plain, known(Limit("MaxWall", 6000))).limit == 6000
    short = known(Limit("MaxWall", 60))
    assert at_most(some, plain, short).limit == plain.limit  # it would run longer: then the limit is the reason


def test_the_first_qos_that_lets_the_jobs_run_is_chosen(tmp_path):
    async def story():
        config = ClusterConfig(
            4, cpus=8, enforced=LIMITS | {"qos"}, qos={"normal": 0, "few": 0, "long": 0},
            qos_limits={"few": NodeLimits(max_nodes=2)},
        )  # fmt: skip
        backend = virtual_cluster(config)
        views, problems = await view_clusters(backend)
        market = await open_market(config_of({}), views, problems, SiteFile(), fallback=2e9)

        async def chosen(qos, **more):
            (found,) = await assess(market, bag(tmp_path, qos=qos, **more), 1, Corrections())
            return found.qos, found.why

        wide = {"nodes": 3, "cores": 24}
        assert await chosen("few,long") == ("few", None)
        assert await chosen("few,long", **wide) == ("long", None)
        qos, why = await chosen("few", **wide)
        assert qos is None and "MaxTRESPerJob node=2, a job needs node=3" in why
        some = bag(tmp_path, qos="few,long", run="true", **wide)
        kept, assessed = Bags(tmp_path / "bags"), await assess(market, some, 1, Corrections())
        run = kept.new(some, 1, 0.0, {})
        clock = VirtualClock(0.0)
        acts = BagActs(Executor(Store(":memory:"), clock, backend), run)
        assert (
            await place(run, assessed, choose(some, 1, assessed, Preference()).jobs, lambda: kept.save(run), 0.0, acts)
            == []
        )
        assert [array.qos for array in kept.load(run.id).arrays] == [j.qos for j in await backend.jobs()] == ["long"]
        market.close()

    asyncio.run(story())


def test_partitions_are_chosen_by_nodes_and_limits(tmp_path):
    async def story():
        small = PartitionConfig("small", tuple(f"n{i}" for i in range(1, 3)))
        large = PartitionConfig("large", tuple(f"n{i}" for i in range(3, 9)), qos="few")
        wide = PartitionConfig("wide", tuple(f"n{i}" for i in range(9, 13)))
        config = ClusterConfig(
            12, cpus=8, partitions=(small, large, wide), enforced=LIMITS, qos={"normal": 0, "few": 0},
            qos_limits={"few": NodeLimits(max_nodes=2)},
        )  # fmt: skip
        backend = virtual_cluster(config)
        views, problems = await view_clusters(backend)
        market = await open_market(config_of({}), views, problems, SiteFile(), fallback=2e9)
        some = bag(tmp_path, nodes=3, cores=24, count=2)
        assessed = await assess(market, some, 2, Corrections())
        market.close()
        why = {a.candidate.partition.name: a.why for a in assessed}
        assert why["small"] == "a task needs 3 nodes, there are 2" and why["wide"] is None
        assert "MaxTRESPerJob node=2, a job needs node=3" in why["large"]
        assert choose(some, 2, assessed, Preference()).jobs == {"mock/wide": 2}
        (chosen,) = (a for a in assessed if a.why is None)
        assert chosen.starts == pytest.approx([0.0, chosen.shape.run], abs=2)  # one after the other: it has four nodes

    asyncio.run(story())

"""Resources from Slurm's partitions and the site file, and plans of their queues."""

from dataclasses import replace

import pytest
from bag_world import hindered

from penstock.api import AccountingRecord, JobState, Node, Partition, Reservation, SiteConfig, Snapshot
from penstock.errors import UserError
from penstock.future.drawn import OwnJob
from penstock.future.past import ENOUGH, QueuePast
from penstock.slurm.records import node_from_line, partition_from_line
from penstock_planning.broker.assess import Assessed
from penstock_planning.broker.choice import lanes_of
from penstock_planning.broker.clusters import ClusterView
from penstock_planning.broker.partitions import candidates
from penstock_planning.broker.place import script
from penstock_planning.broker.shape import shape
from penstock_planning.broker.site import SiteFile, read_site
from penstock_planning.broker.starts import Further, calibrated, foreseen, outlasting, planned
from penstock_planning.broker.tasks import bag_at, entry_of
from penstock_planning.broker.tq import preemptions

SITE = SiteConfig(
    (24, 11), "near", "select/linear", frozenset(), frozenset(), "priority/multifactor", frozenset(), 300.0
)
SHARED = replace(SITE, select_type="select/cons_tres")


def nodes(count, **more):
    more.setdefault("cpus", 4)
    return {f"n{i}": Node(f"n{i}", "IDLE", usable=True, **more) for i in range(1, count + 1)}


def partition(names, **more):
    defaults = {"up": True, "default": True, "max_time": None, "default_time": None, "max_nodes": None}
    return Partition(more.pop("name", "batch"), tuple(names), **{**defaults, **more})


def bag(tmp_path, amount="1e12", **more):
    more.setdefault("requirements", [{"type": "compute", "form": {"isa": "x86"}, "amount": amount}])
    return bag_at({"name": "md", **more}, "t", tmp_path, "t")


def offered(site, part, them, known=None, reservations=(), **more):
    more = {"fallback": 2e9, **more}
    return candidates(site, [part], them, reservations, known or SiteFile(), **more)


def test_what_scontrol_says_of_nodes_and_partitions():
    node = node_from_line(
        "NodeName=g1 Arch=x86_64 CoresPerSocket=16 CPUTot=32 ActiveFeatures=skylake,ib Gres=gpu:a100:4(S:0-1) "
        "RealMemory=192000 State=IDLE Partitions=gpu"
    )
    assert (node.memory, node.features, node.gres, node.arch) == (
        192000.0,
        ("skylake", "ib"),
        "gpu:a100:4(S:0-1)",
        "x86_64",
    )
    assert node_from_line(
        "NodeName=n Arch=x86_64 CPUTot=2 ActiveFeatures=(null) Gres=(null) RealMemory=1 State=IDLE"
    ) == (Node("n", "IDLE", 2, True, arch="x86_64"))
    line = (
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=phys,chem AllowQos=ALL DenyQos=(null) Default=NO "
        "DefaultTime=NONE MaxNodes=4 MaxTime=1-00:00:00 MinNodes=2 MaxCPUsPerNode=16 Nodes=g[1-2] "
        "OverSubscribe=EXCLUSIVE State=UP TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=20"
    )
    found = partition_from_line(line)
    assert found.accounts == {"phys", "chem"} and found.qos == frozenset() and found.exclusive
    assert (found.min_nodes, found.max_cpus_per_node) == (2, 16)
    assert found.billing == {"CPU": 1.0, "Mem": 0.25, "GRES/gpu": 20.0}
    denied = partition_from_line(line.replace("AllowAccounts=phys,chem", "DenyAccounts=bio"))
    assert denied.accounts == {"-bio"}
    assert partition_from_line(line.replace("Mem=0.25G", "Mem=0.001")).billing["Mem"] == pytest.approx(1.024)


def test_a_candidate_per_kind_of_nodes(tmp_path):
    them = nodes(2, features=("ib", "skylake"), arch="x86_64", memory=8192.0) | {
        "n3": Node(
            "n3", "IDLE", 8, True, features=("ib", "rome"), arch="x86_64", memory=4096.0, gres="gpu:a100:4(S:0-1)"
        )
    }
    path = tmp_path / "site.yaml"
    path.write_text(
        "defaults: {base: 2 GHz, watts: 5}\n"
        "features: {rome: {simd: [avx2], base: 2.25 GHz, max: 3.4 GHz}}\n"
        "partitions: {near/batch: {charge: 0.5}, other/batch: {charge: 9}}\n"
    )
    known = read_site(path)
    plain, rome = offered(SITE, partition(them), them, known)
    assert (plain.name, plain.constraint) == ("near/batch:skylake", "skylake")
    assert (rome.name, rome.constraint, rome.rig.gpus) == ("near/batch:rome", "rome", {"a100": 4})
    assert str(rome.resource.capabilities[0].consumable) == "compute {isa: x86|x86_64, simd: avx2}"
    assert rome.resource.capabilities[0].rate == 2.25e9 and plain.resource.capabilities[0].rate == 2e9
    assert (rome.resource.charge, rome.resource.watts) == (0.5, 5.0)
    (_, fast) = offered(SITE, partition(them), them, known, clock="max")
    assert fast.resource.capabilities[0].rate == 3.4e9
    gpu = bag(
        tmp_path,
        requirements=[{"type": "compute", "amount": 1e12}, {"type": "gpu", "form": {"model": "A100"}, "hold": 2},
                      {"type": "memory", "hold": "1 GiB"}],
    )  # fmt: skip
    assert hindered(gpu, plain) == "offers no gpu to hold" and hindered(gpu, rome) is None
    made = shape(gpu, rome)
    assert (made.per, dict(made.gpus)) == (2, {"a100": 2})  # two tasks of two GPUs each
    assert made.directives == (
        "#SBATCH --ntasks=1\n#SBATCH --mem=2048M\n#SBATCH --gres=gpu:a100:4\n#SBATCH --constraint=rome\n"
    )


def test_a_candidate_per_model_of_gpu(tmp_path):
    them = {
        name: Node(name, "IDLE", 8, True, features=("ib",), arch="x86_64", memory=4096.0, gres=gres)
        for name, gres in (("n1", "gpu:a100:4(S:0-1)"), ("n2", "gpu:v100:2"), ("n3", "gpu:v100:2"), ("n4", ""))
    }
    path = tmp_path / "site.yaml"
    path.write_text("features: {ib: {base: 2 GHz}, v100: {correction: 2.5}}\n")
    found = {one.name: one for one in offered(SITE, partition(them), them, read_site(path))}
    assert set(found) == {"near/batch:a100", "near/batch:v100", "near/batch:plain"}
    fast, slow = found["near/batch:a100"], found["near/batch:v100"]
    assert slow.rig.gpus == {"v100": 2} and slow.nodes == {"n2", "n3"} and slow.constraint == ""
    assert (fast.resource.correction, slow.resource.correction) == (1.0, 2.5)
    one = [{"type": "compute", "amount": 1e12}, {"type": "gpu", "hold": 1}]
    wanted = bag(tmp_path, requirements=one)
    assert hindered(wanted, found["near/batch:plain"]) == "offers no gpu to hold"
    assert shape(wanted, slow).run == 2.5 * shape(wanted, fast).run
    assert "--gres=gpu:v100:2\n" in shape(wanted, slow).directives, "it stays on that model"


def test_nodes_of_an_unknown_clock_and_billing():
    them = nodes(2, memory=16384.0)
    (found,) = offered(SITE, partition(them, billing={"CPU": 1.0, "Mem": 0.25}), them)
    assert found.name == "near/batch" and found.resource.capabilities[0].rate == 2e9
    assert "its clock is not known: counted with 2.00 GHz" in found.notes
    assert found.resource.charge == pytest.approx((4 + 0.25 * 16) / 4)
    (blind,) = offered(SITE, partition(them), them, fallback=None)
    assert [c.consumable.type for c in blind.resource.capabilities] == ["memory"]


@pytest.mark.parametrize(
    ("more", "options", "why"),
    [
        ({"up": False}, {}, "the partition is down"),
        ({"max_time": 100.0}, {}, "the predicted run time of 1500 s exceeds its longest of 100 s"),
        ({"max_time": 100.0}, {"time": "2m"}, "the time limit of 120 s exceeds its longest of 100 s"),
        ({"max_time": 600.0}, {}, None),
        ({"max_nodes": 0}, {}, "jobs get no nodes there (MaxNodes=0)"),
        ({"min_nodes": 2}, {}, "a job there has at least 2 nodes, a task runs on one"),
        ({"accounts": frozenset({"phys"})}, {"account": "bio"}, "account bio may not use it"),
        ({"accounts": frozenset({"phys"})}, {"account": "phys"}, None),
        ({"accounts": frozenset({"-bio"})}, {"account": "bio"}, "account bio may not use it"),
        ({"qos": frozenset({"-long"})}, {"qos": "long"}, "QOS long may not use it"),
        ({}, {"partition": "debug"}, "the task asks for partition debug"),
        ({}, {"constraint": "ib&rome"}, "its nodes lack the feature rome"),
        ({}, {"constraint": "[rome|ib]"}, None),
        ({}, {"gres": "gpu:a100:2"}, "its nodes have 0 GPUs a100, the task asks for 2"),
        ({}, {"gres": "craynetwork:1"}, None),
        ({}, {"cores": 5}, "a task needs 5 cores, its nodes have 4"),
        ({"max_cpus_per_node": 2}, {"cores": 3}, "a task needs 3 cores, its nodes have 2"),
    ],
)
def test_why_a_partition_is_not_viable(tmp_path, more, options, why):
    them = nodes(2, arch="x86_64", features=("ib",))
    (found,) = offered(SITE, partition(them, **more), them)
    assert hindered(bag(tmp_path, **options), found) == why


def test_a_partition_that_is_reserved_for_ever_or_down(tmp_path):
    them = nodes(2, arch="x86_64")
    held = Reservation("r", 0.0, float("inf"), ("n1", "n2"), frozenset(), frozenset(), frozenset(), True)
    (found,) = offered(SITE, partition(them), them, reservations=[held])
    assert hindered(bag(tmp_path), found) == "none of its nodes can be used: down, drained or reserved"


def test_partitions_over_the_same_nodes_share_their_places(tmp_path):
    them = nodes(4, arch="x86_64")
    parts = [partition(them), partition(["n1"], name="short")]
    both = candidates(SITE, parts, them, (), SiteFile(), fallback=2e9)
    view = ClusterView("near", SITE, Snapshot(0.0, {}, them, {p.name: p for p in parts}), None)
    made = shape(bag(tmp_path), both[0])
    lanes = lanes_of([Assessed(c, view, made, starts=(0.0, 0.0, 9.0)) for c in both])
    assert [dict(lane.shared) for lane in lanes] == [{"near/short": 0.25}, {"near/batch": 1.0}]


def test_whole_nodes_are_packed_or_padded_or_left_alone(tmp_path):
    them = nodes(2, arch="x86_64", memory=8192.0)
    (whole,) = offered(SITE, partition(them), them)
    (shared,) = offered(SHARED, partition(them), them)
    (exclusive,) = offered(SHARED, partition(them, exclusive=True), them)
    plain, run = bag(tmp_path), {"run": "./md"}
    assert [shape(plain, c).per for c in (whole, shared, exclusive)] == [4, 1, 4]
    assert shape(bag(tmp_path, fill="none"), whole).per == 1
    big = bag(tmp_path, requirements=[{"type": "compute", "amount": 1}, {"type": "memory", "hold": "3 GiB"}])
    assert shape(big, whole).per == 2
    padded = bag(tmp_path, fill="pad", **run)
    text = script(padded, shape(padded, whole), [[0, 1, 2, 3], [4]])
    assert 'pieces=("0 1 2 3" "4")' in text and "padding" in text
    assert "padding" not in script(bag(tmp_path, **run), shape(plain, whole), [[0]])
    assert shape(plain, shared).directives == "#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=1\n"


def test_a_bag_survives_being_written_down(tmp_path):
    first = bag(
        tmp_path, count=7, run="./x", time="2h", fill="pad", account="a", environment={"A": 1},
        requirements=[{"type": "compute", "form": {"isa": ["x86", "arm"], "v": ">=2.1", "n": 3}, "amount": 5},
                      {"type": "memory", "hold": 8}],
        parallel={"cores": 4, "speedup": {2: 1.9, 4: 3.1}},
    )  # fmt: skip
    second = bag_at(entry_of(first), "t", tmp_path, "t")
    assert replace(second, task=first.task) == first
    assert second.task.requirements == first.task.requirements and second.task.parallel == first.task.parallel


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defaults: {base: fast}", "defaults.base: must be a number a second"),
        ("defaults: {base: 3 GHz, max: 2 GHz}", "the base clock is above the maximum"),
        ("features: {a: {charge: -1}}", "features.a.charge: must be a number of at least 0"),
        ("features: {a: {simd: []}}", "simd has no values"),
        ("partition: {}", "did you mean 'partitions'?"),
        ("partitions: [a]", "partitions: must be a map"),
    ],
)
def test_bad_site_files(tmp_path, text, said):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_site(path)
    assert said in str(caught.value) and "site.yaml" in str(caught.value)


# -- the plan ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(make_job):
    def build(*jobs, count=4, reservations=()):
        them = nodes(count)
        return Snapshot(
            1000.0, {j.id: j for j in jobs}, them, {"batch": partition(them)}, reservations=tuple(reservations)
        )

    return build


def place(snapshot, units=1, limit=100.0, count=3, run=50.0, own=(), site=SITE):
    (found,) = offered(site, snapshot.partitions["batch"], snapshot.nodes)
    return planned(snapshot, found, Further(OwnJob(units, limit, run), count, own))


@pytest.fixture
def make_job():
    from penstock.api import Job, JobState

    def build(number, names=(), *, width=1, end=None, limit=300.0, cpus=None, reason="", **more):
        runs = bool(names)
        return Job(
            number, 1, "u", "a", "batch", "q", JobState.RUNNING if runs else JobState.PENDING, reason, 0.0, 0.0,
            900.0 if runs else None, end, limit, len(names) or width, cpus or 4 * (len(names) or width), tuple(names),
            100 - number, **more,
        )  # fmt: skip

    return build


def test_further_jobs_start_where_the_queue_leaves_room(queue, make_job):
    assert place(queue()).further == [0.0, 0.0, 0.0]
    assert place(queue(), count=6).further == [0, 0, 0, 0, 50, 50]
    busy = queue(make_job(1, ("n1", "n2", "n3"), end=1200.0), make_job(2, width=4))
    assert place(busy).further == [0.0, 50.0, 100.0]
    assert place(busy, limit=250.0).further == [500.0, 500.0, 500.0]  # too long for the gap before job 2
    full = queue(make_job(1, ("n1", "n2", "n3", "n4"), end=1200.0))
    assert place(full, count=5).further == [200, 200, 200, 200, 250]


def test_beside_what_is_kept_for_a_large_job_only_so_many_start_at_once(queue, make_job):
    """The scheduler goes by limits: that a job is done before the large one's turn is known when it is done."""
    busy = queue(make_job(1, ("n1", "n2"), end=1200.0), make_job(2, width=3), count=4)
    assert place(busy, limit=150.0, count=4).further == [0.0, 0.0, 50.0, 50.0]  # all end before job 2 begins
    assert place(busy, limit=250.0, count=4).further == [0.0, 50.0, 100.0, 150.0]  # one node is not kept for job 2


def test_own_jobs_that_wait_keep_their_place(queue, make_job):
    mine = make_job(2, array_job=2, tasks=3)
    plan = place(queue(make_job(1, ("n1", "n2", "n3", "n4"), end=1100.0), mine, make_job(3, width=4)), own=[2], count=1)
    assert plan.own == {2: [100.0, 100.0, 100.0]}
    assert plan.further == [450.0]  # the gap before job 3 is shorter than the limit


def test_shared_nodes_are_counted_in_cpus(queue, make_job):
    half = queue(make_job(1, ("n1",), end=1200.0, cpus=2), count=1)
    assert place(half, count=3, site=SHARED).further == [0.0, 0.0, 50.0]
    assert place(half, units=5, site=SHARED).further == []


@pytest.mark.parametrize("site", [SITE, SHARED])
def test_jobs_run_on_suspended_nodes_once_these_are_awake(queue, site):
    look = queue(count=2)
    asleep = replace(look.nodes["n2"], state="IDLE+POWERED_DOWN")
    look = replace(look, nodes={**look.nodes, "n2": asleep}, wakes_in=240.0)
    units = 1 if site is SITE else 4
    assert place(look, units, count=5, limit=150.0, run=150.0, site=site).further == [0.0, 150.0, 240.0, 300.0, 390.0]


def test_a_job_that_asked_for_a_later_start_takes_nothing_before_it(queue, make_job):
    later = replace(make_job(1, width=4), eligible=1120.0, reason="BeginTime")
    assert place(queue(later), count=9).further == [0, 0, 0, 0, 420, 420, 420, 420, 470]
    put_off = replace(make_job(1, width=4), eligible=4.1e9)
    assert place(queue(put_off), count=5).further == [0, 0, 0, 0, 50]


def test_a_reservation_to_come_is_kept_free(queue):
    held = Reservation("r", 1030.0, 1130.0, ("n1", "n2", "n3", "n4"), frozenset(), frozenset(), frozenset(), False)
    assert place(queue(reservations=[held]), count=1).further == [130.0]


def drawn(snapshot, past, limit=100.0, count=3, run=50.0, own=(), site=SITE):
    (found,) = offered(site, snapshot.partitions["batch"], snapshot.nodes)
    return foreseen(snapshot, found, Further(OwnJob(1, limit, run), count, own), past)


FOURTH = QueuePast((0.25,) * ENOUGH)


def test_others_are_foreseen_to_run_as_long_as_they_use_to(queue, make_job):
    full = queue(make_job(1, ("n1", "n2", "n3", "n4"), end=2900.0, limit=2000.0), make_job(2, width=4, limit=400.0))
    assert place(full, count=5).further == [2300.0] * 4 + [2350.0]
    made = drawn(full, FOURTH, count=5)
    # Job 1 ends 500 s after its start, which was 100 s ago, job 2 after 100 s more.
    assert made.further == [500.0] * 4 + [550.0]
    assert made.drawn == [[500.0] * 9] * 4 + [[550.0] * 9]


def test_the_scheduler_goes_by_limits_also_in_what_is_foreseen(queue, make_job):
    busy = queue(make_job(1, ("n1", "n2", "n3"), end=1900.0, limit=1000.0), make_job(2, width=4, limit=400.0))
    assert drawn(busy, FOURTH, limit=900.0).further[0] == 0.0, "by limits it is done before job 2 begins"
    assert drawn(busy, FOURTH, limit=901.0).further[0] == 250.0, "it waits for job 2, which begins and ends early"


def test_own_jobs_are_foreseen_to_run_as_predicted(queue, make_job):
    mine = make_job(2, array_job=2, tasks=3, limit=100.0)
    full = queue(make_job(1, ("n1", "n2", "n3", "n4"), end=2900.0, limit=2000.0), mine)
    made = drawn(full, FOURTH, own=[2], run=60.0, count=2)
    assert made.own == {2: [400.0, 400.0, 400.0]} and made.waited == {2: 1000.0}
    assert made.further == [400.0, 460.0]


def test_where_nothing_is_foreseen_the_plan_stands(queue, make_job):
    snapshot = queue(make_job(1, width=1))
    assert drawn(snapshot, FOURTH) is not None
    assert drawn(snapshot, QueuePast((0.25,) * (ENOUGH - 1))) is None, "too few are known"
    assert drawn(snapshot, FOURTH, site=SHARED) is None, "nodes are shared"
    two = replace(snapshot, nodes=snapshot.nodes | {"n4": replace(snapshot.nodes["n4"], features=("gpu",))})
    kind = next(c for c in offered(SITE, two.partitions["batch"], two.nodes) if not c.constraint)
    assert foreseen(two, kind, Further(OwnJob(1, 100.0, 50.0), 1), FOURTH) is None, "it is but a part of its partition"
    limited = queue(make_job(1, width=1, reason="QOSMaxJobsPerUserLimit"))
    assert drawn(limited, FOURTH, own=[1]) is None, "nobody knows when the own job starts"


def test_plans_are_calibrated_by_what_was_learned():
    assert calibrated([0.0, 100.0], 30.0, 0.0) == [30.0, 130.0]
    assert calibrated([100.0, 200.0], 50.0, 100.0) == [50.0, 100.0]
    assert calibrated([100.0], 1e6, 100.0) == [400.0]
    assert calibrated([], 5.0, 0.0) == []


def test_what_has_waited_longer_than_expected_may_wait_as_long_again_but_not_beyond_the_plan():
    assert outlasting([10.0, 20.0], [500.0, 900.0], waited=0.0) == [10.0, 20.0]
    assert outlasting([10.0, 20.0], [500.0, 900.0], waited=300.0) == [300.0, 300.0]
    assert outlasting([10.0, 20.0], [100.0, 900.0], waited=300.0) == [100.0, 300.0]
    assert outlasting([10.0, 20.0], [5.0, 900.0], waited=300.0) == [10.0, 300.0]


def test_how_often_jobs_are_preempted_there(tmp_path):
    them = nodes(2, arch="x86_64")
    path = tmp_path / "site.yaml"
    path.write_text("partitions: {near/spare: {preempted: 0.5}, near/calm: {preempted: 0}}\n")
    known = read_site(path)

    def record(partition, state, seconds):
        return AccountingRecord(1, "j", "alice", partition, "q", "a", state, 0, 0.0, 0.0, 10.0, 10.0 + seconds, None, 1)

    seen = [record("low", JobState.PREEMPTED, 1800.0), record("low", JobState.COMPLETED, 5400.0)]
    seen += [record("spare", JobState.COMPLETED, 1e6), record("calm", JobState.PREEMPTED, 60.0)]
    spare, calm, low, other = (
        preemptions(offered(SITE, partition(them, name=name), them, known)[0], seen)
        for name in ("spare", "calm", "low", "other")
    )
    assert spare.rate == pytest.approx(0.5 / 3600) and spare.source == "the site file"
    assert calm is None and other is None
    assert low.rate == pytest.approx(1.5 / 7200) and low.source == "of 2 runs of yours there 1 were preempted"


def test_a_checkpoint_of_a_task(tmp_path):
    made = bag(tmp_path, checkpoint="10m")
    assert made.checkpoint == 600.0 and bag_at(entry_of(made), "t", tmp_path, "t") == made
    with pytest.raises(UserError, match="checkpoint"):
        bag(tmp_path, checkpoint="soon")


def test_input_is_fetched_first_and_by_all_over_one_link(tmp_path):
    """Four tasks of 500 s to a node; each fetches 100 s of data over a link that has to be set up for 20 s."""
    them, path = nodes(2, arch="x86_64"), tmp_path / "site.yaml"
    path.write_text("clusters: {near: {bandwidth: 30 MB/s, latency: 20s}}\n")
    (far,) = offered(SITE, partition(them), them, read_site(path))
    (here,) = offered(SITE, partition(them), them)
    fetching = bag(tmp_path, input="3 GB")
    assert fetching.input == 3e9 and bag_at(entry_of(fetching), "t", tmp_path, "t") == fetching
    slow, quick = shape(fetching, far), shape(fetching, here)
    assert (slow.run, slow.fetch, slow.limit) == (500.0 + 420.0, 420.0, 2760.0)
    assert (quick.run, quick.fetch) == (500.0, 0.0) and shape(bag(tmp_path), far) == quick
    view = ClusterView("near", SITE, Snapshot(0.0, {}, them, {}), None)
    drawn = [[0.0], [0.0], [900.0]]
    assessed = Assessed(far, view, slow, starts=(0.0, 0.0, 900.0), drawn=drawn)
    (lane,), (late,) = lanes_of([assessed]), lanes_of([assessed], 0.9)
    assert (list(lane.starts), lane.run) == ([0.0, 400.0, 900.0], 920.0), "the second fetches when the first has"
    assert list(late.starts) == [0.0, 400.0, 900.0]
    assert list(lanes_of([Assessed(here, view, quick, starts=(0.0, 0.0))])[0].starts) == [0.0, 0.0]
    path.write_text("clusters: {near: {bandwidth: fast}}\n")
    with pytest.raises(UserError, match=r"clusters\.near\.bandwidth: bytes a second"):
        read_site(path)
    with pytest.raises(UserError, match="input: must be bytes such as"):
        bag(tmp_path, input="much")

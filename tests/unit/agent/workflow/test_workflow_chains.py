"""Jobs that their owner's script submits behind one another: which workflow they are, and what is done to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_jobs import codes, ended, look, of, run_of, stage_of, with_own

from penstock.api import JobState
from penstock.errors import UserError
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run.instructions import Change, Observe, Requeue
from penstock.workflow.state import WorkflowRun
from penstock.workflow.submit import chains
from penstock.workflow.submit.admission import admit, plan, registration
from penstock.workflow.submit.chains import begun_because, followed_because, join, read_links
from penstock_lab.testing import make_job


def links(*jobs: tuple, **more):
    """(called, job, dependency) of each."""
    entries = [{"called": c, "job": j, "dependency": d, "at": float(j), **more} for c, j, d in jobs]
    return read_links({"links": entries}, 1000.0)


def taken(runs: list[WorkflowRun], *jobs: tuple, **more) -> list[WorkflowRun]:
    """The runs after these jobs have been followed, as the controller does it."""
    found = join(runs, links(*jobs, **more))
    number = max((run.id for run in runs), default=0) + 1
    run = admit(found.run or found.begun(number, 1000, "alice", 1000.0), found.stages)
    gone = {other.id for other in found.gone}
    return sorted([*(r for r in runs if r.id not in {run.id, *gone}), run], key=lambda r: r.id)


def shape(run: WorkflowRun) -> dict[str, tuple]:
    return {s.name: (s.job, *(run.stages[j].name for j in s.after)) for s in run.stages}


def test_a_chain_is_called_after_its_first_job_and_grows():
    (run,) = runs = taken([], ("align", 5, ""), ("call", 6, "afterok:5"))
    assert (run.name, run.chain, run.submitted_at, run.acting) == ("align", True, 5.0, "eager")
    assert shape(run) == {"align": (5,), "call": (6, "align")}
    assert [s.phase for s in run.stages] == [StagePhase.QUEUED] * 2
    (run,) = taken(runs, ("call", 6, "afterok:5"), ("plot", 7, "afterok:6:5"))
    assert shape(run) == {"align": (5,), "call": (6, "align"), "plot": (7, "align", "call")}
    assert run_from_dict(run_to_dict(run)) == run


def test_what_is_known_already_changes_nothing():
    runs = taken([], ("a", 5, ""), ("b", 6, "afterok:5"))
    found = join(runs, links(("a", 5, ""), ("b", 6, "afterok:5")))
    assert (found.run, found.stages, found.gone) == (runs[0], (), ())


def test_names_that_are_taken_get_a_number_and_strange_ones_are_made_fit():
    runs = taken([], ("step", 5, ""), ("step", 6, "afterok:5"), ("step", 7, "afterok:6"))
    assert list(shape(runs[0])) == ["step", "step-2", "step-3"]
    long = "x" * 60
    (run,) = taken([], (long, 5, ""), (long, 6, "afterok:5"), ("ä b/c", 7, "afterok:6"), ("§", 8, "afterok:7"))
    assert list(shape(run)) == ["x" * 40, "x" * 38 + "-2", "b-c", "job"]


def test_a_job_behind_several_chains_makes_one_of_them():
    runs = taken([], ("align", 1, ""), ("call", 2, "afterok:1"))
    runs = taken(runs, ("align", 3, ""), ("call", 4, "afterok:3"))
    assert [run.name for run in runs] == ["align", "align"]
    (run,) = taken(runs, ("joint", 5, "afterok:2:4"))
    assert shape(run) == {
        "align": (1,),
        "call": (2, "align"),
        "align-2": (3,),
        "call-2": (4, "align-2"),
        "joint": (5, "call", "call-2"),
    }
    assert [unit.after for unit in run.units] == [s[1:] for s in shape(run).values()]
    found = join(runs, links(("joint", 5, "afterok:2:4")))
    (new,) = found.stages
    told = followed_because(admit(found.run, found.stages), new, found.gone)
    assert [reason.code for reason in told] == ["chain-after", "chains-joined"]


def test_a_job_behind_a_stage_of_a_named_workflow_joins_that():
    named = run_of([stage_of("a", 10, phase=StagePhase.RUNNING)], id=1)
    chain = taken([], ("x", 20, ""), ("y", 21, "afterok:20"))[0]
    runs = [named, run_of(chain.stages, id=2, name="x")]
    (run,) = taken(runs, ("b", 22, "afterok:10:21"))
    assert (run.id, run.name, run.chain) == (1, "w", False)
    assert shape(run)["b"] == (22, "a", "y")
    assert run.stage("b").mine.chained and not run.stage("a").mine.chained
    # Two that have names stay two; what the one cannot say of the other is Slurm's.
    other = run_of([stage_of("a", 30)], id=2, name="v")
    runs = taken([named, other], ("b", 22, "afterok:10:30"))
    assert [run.id for run in runs] == [1, 2]
    assert shape(runs[0])["b"] == (22, "a")
    assert runs[0].stage("b").mine.base == "afterok:30"


@pytest.mark.parametrize(
    "text", ["afterany:5", "afternotok:5", "after:5+2", "aftercorr:5", "afterok:5?afterok:6", "afterok:5_1"]
)
def test_what_a_workflow_cannot_say_is_slurms_and_is_not_dropped(text):
    (run,) = taken([], ("a", 5, ""), ("b", 6, text))
    assert shape(run) == {"a": (5,), "b": (6,)}
    assert run.stage("b").mine.base == text
    (new,) = [s for s in join([], links(("a", 5, ""), ("b", 6, text))).stages if s.name == "b"]
    assert [(r.code, text in r.text) for r in followed_because(run, new)][-1] == ("left-to-slurm", True)


def test_jobs_of_one_name_under_singleton_are_one_chain():
    (run,) = taken([], ("md", 5, ""), ("md", 6, "singleton"), near=[5])
    assert shape(run) == {"md": (5,), "md-2": (6,)}
    assert run.stage("md-2").mine.base == "singleton"


def test_a_chain_that_has_ended_goes_on_and_one_that_is_cancelled_is_not_taken_over():
    over = run_of([with_own(stage_of("a", 5, phase=StagePhase.DONE), chained=True)], phase=RunPhase.COMPLETED)
    (run,) = taken([over], ("b", 6, "afterok:5"))
    assert (run.id, run.phase, shape(run)["b"]) == (3, RunPhase.ACTIVE, (6, "a"))
    stop = run_of([with_own(stage_of("x", 9), chained=True)], id=4, phase=RunPhase.CANCELLING)
    runs = taken([over, stop], ("b", 6, "afterok:5:9"))
    assert [run.id for run in runs] == [3, 4]
    assert (shape(runs[0])["b"], runs[0].stage("b").mine.base) == ((6, "a"), "afterok:9")


def test_the_jobs_of_an_earlier_try_are_known_but_nothing_comes_after_them():
    run = run_of([with_own(stage_of("a", 7), chained=True, former=(5,))])
    (run,) = taken([run], ("b", 8, "afterok:5"))
    assert (shape(run)["b"], run.stage("b").mine.base) == ((8,), "afterok:5")


def test_a_number_that_slurm_has_given_again_is_that_of_the_younger_run():
    old = run_of([with_own(stage_of("a", 5, phase=StagePhase.DONE), chained=True)], id=1, phase=RunPhase.COMPLETED)
    new = run_of([with_own(stage_of("z", 5), chained=True)], id=2)
    runs = taken([old, new], ("b", 6, "afterok:5"))
    assert [list(shape(run)) for run in runs] == [["a"], ["z", "b"]]


def test_a_name_that_nobody_chose_draws_no_stage_of_a_named_workflow():
    runs = taken([], ("w", 5, ""), ("b", 6, "afterok:5"))
    asked = {"workflow": "w", "strategy": "asa", "stages": [{"name": "b", "job": 9, "after": []}]}
    assert plan(runs, registration(asked, 5.0))[0] is None


def test_too_many_jobs_and_what_is_none_are_refused(monkeypatch):
    monkeypatch.setattr(chains, "MOST_STAGES", 2)
    with pytest.raises(UserError, match="would have 3 jobs, at most 2"):
        taken([], ("a", 1, ""), ("b", 2, "afterok:1"), ("c", 3, "afterok:2"))
    for bad in (
        [],
        "x",
        [{"called": "a"}],
        [{"called": "a", "job": 0, "at": 1}],
        [{"called": "a", "job": 1, "at": "x"}],
    ):
        with pytest.raises(UserError):
            read_links({"links": bad}, 5.0)
    assert all(reason.text for reason in begun_because())


@given(st.lists(st.lists(st.integers(0, 11), max_size=3), min_size=1, max_size=12))
def test_in_whatever_order_jobs_depend_on_one_another_all_are_in_one_place_behind_those_before(parents):
    """Each job of number i + 1 depends on some of those before it."""
    runs: list[WorkflowRun] = []
    for i, before in enumerate(parents):
        named = sorted({b % i + 1 for b in before}) if i else []
        text = f"afterok:{':'.join(map(str, named))}" if named else ""
        runs = taken(runs, *((f"j{n}", n, "") for n in named), (f"j{i + 1}", i + 1, text))
    found = {stage.job: run for run in runs for stage in run.stages}
    assert sorted(found) == list(range(1, len(parents) + 1))
    assert sum(len(run.stages) for run in runs) == len(parents)
    for i, before in enumerate(parents):
        run = found[i + 1]
        (stage,) = [s for s in run.stages if s.job == i + 1]
        assert {run.stages[j].job for j in stage.after} == ({b % i + 1 for b in before} if i else set())
        assert all(run.stages[j].job < i + 1 for j in stage.after)


# -- passes ------------------------------------------------------------------------------------------------------------


def chain(*stages, **more) -> WorkflowRun:
    return run_of([with_own(stage, chained=True) for stage in stages], strategy="auto", by="eager", **more)


def test_nothing_is_done_to_a_chain_that_goes_on():
    run = chain(stage_of("a", 10), stage_of("b", 11, [0]))
    waits = make_job(11, state=JobState.PENDING, reason="Dependency", dependency="afterok:10(unfulfilled)")
    step = look(run, make_job(10, state=JobState.RUNNING, start=10.0), waits)
    assert [type(order) for order in step.instructions] == [Observe], "its waits are learned from"
    assert [s.phase for s in step.run.stages] == [StagePhase.RUNNING, StagePhase.QUEUED]


def test_what_its_owner_has_changed_by_hand_is_left_so():
    """A stage of a named workflow would be put back behind those before it."""
    run = chain(stage_of("a", 10), stage_of("b", 11, [0]))
    a = make_job(10, state=JobState.RUNNING, start=10.0)
    free = look(run, a, make_job(11, state=JobState.PENDING, reason="Resources", dependency=""))
    early = look(run, a, make_job(11, state=JobState.RUNNING, start=20.0))
    assert (of(Change, free), of(Requeue, early)) == ([], [])


def test_it_follows_a_stage_before_it_to_its_new_job():
    run = chain(
        with_own(stage_of("a", 12), former=(10,)), stage_of("c", 9, phase=StagePhase.RUNNING), stage_of("b", 11, [0, 1])
    )
    theirs = "afterok:10(failed),afterok:9(unfulfilled),afterany:7(unfulfilled)"
    waits = make_job(11, state=JobState.PENDING, reason="DependencyNeverSatisfied", dependency=theirs)
    c = make_job(9, state=JobState.RUNNING, start=10.0)
    step = look(run, make_job(12, state=JobState.PENDING), c, waits)
    (change,) = of(Change, step)
    assert (change.job, change.dependency, change.reasons[0].code) == (
        11,
        "afterany:7,afterok:12,afterok:9",
        "re-pointed",
    )
    unseen = look(run, c, waits)
    assert (of(Change, unseen), codes(unseen, "b")) == ([], ["look-first"])
    # It was through before anybody looked.
    (change,) = of(Change, look(run, ended(12), c, waits))
    assert change.dependency == "afterany:7,afterok:9"


def test_a_failed_job_leaves_those_after_it_where_they_are():
    run = chain(stage_of("a", 10), stage_of("b", 11, [0]))
    waits = make_job(11, state=JobState.PENDING, reason="DependencyNeverSatisfied", dependency="afterok:10(failed)")
    step = look(run, ended(10, JobState.FAILED), waits)
    assert (of(Change, step), step.run.phase, codes(step, "b")) == ([], RunPhase.FAILING, ["parent-broken"])

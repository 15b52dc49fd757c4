"""penstock bench dmr: malleable programs in virtual time under the whole agent, its tables and its report."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dmr import wire
from penstock_lab.cli.bench import dmr
from penstock_lab.papers.dmr import chapters, modes, paper, resize, table4
from penstock_lab.papers.dmr.application import COST, Application
from penstock_lab.papers.dmr.drive import drive
from penstock_lab.papers.dmr.models import models
from penstock_lab.papers.dmr.workload import Version, workload

SIZES = (12, 18)
NODES = tuple(f"n{i}" for i in range(1, 33))


def test_a_workload_is_the_same_jobs_in_every_version():
    fixed, shared = workload(30, Version()), workload(30, Version(moldable=True, share=0.2, factor=1))
    assert [e.submit for e in fixed] == [e.submit for e in shared] and fixed[0].submit == 0.0
    assert [e.spec.name for e in fixed] == [e.spec.name for e in shared]
    assert sum(e.malleable for e in shared) == 6
    assert {e.spec.min_nodes is not None for e in shared if not e.malleable} == {False}
    assert [e.spec.name for e in fixed] != [e.spec.name for e in workload(30, Version(), seed=2)]
    assert {e.spec.nodes for e in workload(30, Version("preferred"))} == {8, 1}


class Agent:
    """Answers checks with what it is told to, and notes what it was asked."""

    def __init__(self):
        self.offer, self.stands, self.said = None, True, []

    def __call__(self, request):
        self.said.append(request)
        if isinstance(request, wire.Check):
            size = len(self.offer) if self.offer else request.size
            action = "none" if size == request.size else "expand" if size > request.size else "shrink"
            epoch = request.epoch + (action != "none")
            return wire.CheckReply(action=action, size=size, epoch=epoch, nodes=self.offer or ())
        if isinstance(request, wire.Accept) and not self.stands:
            return wire.Failure(error="stale-epoch")
        return wire.Done()

    def count(self, kind):
        return sum(isinstance(r, kind) for r in self.said)


def program(agent, **more):
    return Application(1, models()["cg"], 2, NODES[:8], 0.0, agent, **more)


def run(application):
    now = 0.0
    while not application.step(now := application.at):
        pass
    return now


def test_a_program_checks_once_a_period_and_takes_its_models_time():
    agent = Agent()
    end = run(program(agent))
    alone = models()["cg"].seconds(8)
    assert agent.count(wire.Check) == pytest.approx(alone / 15.0, abs=1.5)
    assert end == pytest.approx(alone + agent.count(wire.Check) * COST.check)


def test_a_resize_costs_time_and_then_changes_the_speed():
    agent = Agent()
    application = program(agent)
    agent.offer = NODES[:16]
    application.step(first := application.at)
    assert application.actions[-1].kind == "expand"
    assert application.at - first == pytest.approx(COST.resize(8, 16) + COST.check)
    done = 1 - first / models()["cg"].seconds(8)
    assert run(application) > first + done * models()["cg"].seconds(16)
    assert [r.size for r in agent.said if isinstance(r, wire.Finished)] == [16]


def test_an_asynchronous_answer_is_taken_up_one_check_later_and_only_if_it_still_stands():
    agent = Agent()
    application = program(agent, synchronous=False)
    agent.offer = NODES[:4]
    application.step(application.at)
    assert agent.count(wire.Accept) == 0, "heard, not taken up"
    agent.stands = False
    application.step(application.at)
    assert agent.count(wire.Accept) == 1 and {a.kind for a in application.actions} == {"none"}
    agent.stands = True
    application.step(application.at)
    assert application.actions[-1].kind == "shrink"


@pytest.fixture(scope="module")
def outcomes():
    cases = [c for c in table4.CASES if c.name in ("fixed", "paper", "flexible", "flexible-moldable", "preferred")]
    found = {}
    for jobs in SIZES:
        for case in cases:
            entries = workload(jobs, case.version)
            found[jobs, case.name] = asyncio.run(drive(entries, case.policy))
    return found


@pytest.mark.long
def test_malleable_jobs_wait_less_than_fixed_ones(outcomes):
    table = {(row.jobs, row.version): row for row in table4.rows(outcomes)}
    for jobs in SIZES:
        fixed = table[jobs, "fixed"]
        assert fixed.resizes == 0 and fixed.cut == 0
        for version in ("paper", "flexible", "flexible-moldable"):
            row = table[jobs, version]
            assert row.resizes > 0 and row.waiting < fixed.waiting and row.completion < fixed.completion
            assert row.completion == pytest.approx(row.waiting + row.execution)
            assert table4.bound(jobs) < row.completion
        assert 0 < fixed.utilisation <= 1


def test_the_curve_accounts_for_every_node_second(outcomes):
    for outcome in outcomes.values():
        assert outcome.curve[-1].ended == len(outcome.ran) and outcome.curve[-1].nodes == 0
        assert max(p.nodes for p in outcome.curve) <= paper.NODES
        # Resizers hold nodes, too, before they are merged.
        assert outcome.node_seconds >= sum(r.node_seconds for r in outcome.ran) * (1 - 1e-9)


def test_rows_have_the_papers_values_beside_them(outcomes):
    row = replace(table4.rows(outcomes)[0], jobs=50, version="paper").row()
    assert row["paper_completion_s"] == 2260.22
    assert {"jobs", "version", "utilisation", "waiting_s", "execution_s", "completion_s"} <= set(row)


def test_goals_compare_with_fixed_and_preferred(outcomes):
    as_50 = {(50, name): outcome for (jobs, name), outcome in outcomes.items() if jobs == SIZES[0]}
    found = table4.goals(as_50)
    assert len(found) == 2 * 3 and {g.at_most for g in found} == {0.30, 0.95, 1.01}
    assert all(g.reached for g in found if g.at_most == 1.01)


def test_the_command_writes_a_report_of_parts(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(paper, "JOBS", SIZES[:1])
    small = [c for c in table4.CASES if c.name in ("fixed", "paper", "flexible", "flexible-moldable", "preferred")]
    measure = table4.measure

    def quick(cases=small, jobs=SIZES[:1], seed=1, tell=lambda text: None):
        return measure([c for c in cases if c.kind == "fitted"][:5], SIZES[:1], seed, tell)

    monkeypatch.setattr(table4, "measure", quick)
    monkeypatch.setattr(modes, "measure", quick)
    monkeypatch.setattr(paper, "TABLE_4", {(SIZES[0], v): paper.TABLE_4[50, v] for v in ("fixed", "flexible")})
    monkeypatch.setattr(chapters.paper, "JOBS", SIZES[:1])
    result = CliRunner().invoke(
        dmr, ["--part", "table4", "--part", "modes", "--json", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert set(said) == {"format", "table4", "modes"} and len(said["table4"]["rows"]) == 5
    assert {r["table"] for r in said["modes"]["rows"]} == {2, 3}
    page = (tmp_path / "report.html").read_text()
    for n in range(4, 9):
        assert (tmp_path / f"fig{n}.png").stat().st_size > 1000 and f"fig{n}.png" in page
    assert "Table 2, 12 jobs" in (tmp_path / "report.md").read_text()


def test_a_part_that_is_not_there():
    result = CliRunner().invoke(dmr, ["--part", "table5"])
    assert result.exit_code != 0 and "table4, bound, modes" in str(result.exception)


MARKS = {"decided": 10.5, "granted": 10.8, "merged": 11.0, "accepted": 11.2, "done": 13.2, "released": 13.9}
APP = {"app_spawn": 0.5, "app_move": 1.25}


def test_the_phases_of_a_resize_add_up_to_all_of_it():
    grown, shrunk = (resize.phases(kind, 10.0, {**MARKS, **APP}) for kind in ("expand", "shrink"))
    assert list(grown) == ["decide", "grant", "merge", "tell", "spawn", "move", "commit"]
    assert sum(grown.values()) == pytest.approx(3.2) and grown["commit"] == pytest.approx(0.25)
    assert list(shrunk) == ["decide", "tell", "spawn", "move", "commit", "return"]
    assert sum(shrunk.values()) == pytest.approx(3.9) and shrunk["return"] == pytest.approx(0.7)


def test_a_resize_is_held_against_slurm_and_mpi_alone():
    raw = {"raw grant": 0.3, "raw merge": 0.1, "raw spawn": 0.4, "raw move": 1.0, "raw return": 0.5}
    grown = resize.Resize(1, 2, 3, resize.phases("expand", 10.0, {**MARKS, **APP}), raw)
    shrunk = resize.Resize(2, 1, 3, resize.phases("shrink", 10.0, {**MARKS, **APP}), raw)
    found = {(g.where, g.what): (round(g.value, 3), g.reached) for g in resize.goals([grown, shrunk])}
    assert found == {
        ("1 to 2 nodes", "granted and merged, over Slurm's commands alone"): (1.25, True),
        ("1 to 2 nodes", "granted and merged, s"): (0.5, False),
        ("1 to 2 nodes", "moving 1 GB, over one Alltoallv"): (1.25, True),
        ("2 to 1 nodes", "moving 1 GB, over one Alltoallv"): (1.25, True),
    }
    assert [row["total"] for row in resize.rows([grown, shrunk])] == [pytest.approx(3.2), pytest.approx(3.9)]

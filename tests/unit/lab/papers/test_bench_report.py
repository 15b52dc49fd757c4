"""penstock bench asa: the report, its goals, and the paper's tables on a small scale."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_bench_logs import crowded

from penstock.errors import UserError
from penstock_lab.cli.bench import _run, asa
from penstock_lab.papers import accuracy, fig5, paper, tables
from penstock_lab.papers.report import Chapter, Goal, Table, as_html, as_markdown

SMALL = tables.Protocol(
    strategies=("bigjob", "perstage", "auto"), rules=("default",), machines=("hpc2n",), rounds=2, learning=1
)


def row(strategy: str, cores: int = 28, **values: float) -> tables.Row:
    names = ("wait", "perceived", "beyond", "overhead", "misses")
    found = dict.fromkeys(names, 0.0) | {"makespan": 100.0, "core_hours": 1.0}
    return tables.Row("hpc2n", "default", "montage", cores, strategy, 1, **(found | values))


def test_the_stages_take_the_time_and_the_core_hours_of_table_1():
    for (workflow, cores, strategy), cell in paper.TABLE_1.items():
        if strategy != "perstage":
            continue
        stages = paper.stages(workflow, cores)
        assert sum(s.run_time for s in stages) == pytest.approx(cell.makespan - cell.wait, abs=len(stages))
        hours = sum(s.run_time * s.nodes for s in stages) * paper.SLOT / 3600
        assert hours == pytest.approx(cell.core_hours, rel=0.07)
        assert all(s.run_time < s.time_limit for s in stages)
        assert [s.after for s in stages] == [(), *((s.name,) for s in stages[:-1])]


def test_goals_are_judged_where_per_stage_waits():
    cells = [
        row("bigjob", makespan=100.0, core_hours=4.0),
        row("perstage", wait=60.0, perceived=40.0, beyond=10.0, makespan=150.0, core_hours=2.0),
        row("auto", wait=20.0, perceived=8.0, makespan=110.0, core_hours=2.02),
        row("bigjob", cores=56, core_hours=4.0),
        row("perstage", cores=56, wait=1.0, perceived=1.0, core_hours=2.0),
        row("auto", cores=56, wait=1.0, perceived=1.0, core_hours=2.0),
    ]
    found = {goal.what: goal for goal in tables.goals(cells)}
    values = [round(goal.value, 4) for goal in found.values()]
    assert values == [1.1, 1.01, 0.2, round(4.02 / 8, 4)]
    assert [goal.reached for goal in found.values()] == [False, True, True, True]
    assert tables.bounds(cells) == {"default": 0.25}
    assert tables.normalised(cells, lambda r: r.core_hours)["default", "montage", "bigjob"].value == 2.0


def test_a_report_says_the_same_in_both_forms():
    cells = Table("Rows", ("a|b", "c"), [("1", "<2>")])
    chapter = Chapter("x", "Part", "Text & more.", [], [cells], [Goal("here", "what", 2.0, 1.0)])
    markdown, page = as_markdown("Title", [chapter]), as_html("Title", [chapter])
    assert "| a\\|b | c |" in markdown and "| here | what | 2.000 | 1 | NO |" in markdown
    assert "<td>&lt;2&gt;</td>" in page and "Text &amp; more." in page and "<td>NO</td>" in page


@pytest.fixture
def quick(tmp_path, monkeypatch):
    crowded(tmp_path, 40)
    monkeypatch.setenv("PENSTOCK_TRACES", str(tmp_path))
    three = ("share-mix", "last", "median")
    monkeypatch.setattr(fig5, "run", partial(fig5.run, 1, (0.0, 0.5), three, processes=1))
    monkeypatch.setattr(tables, "PROTOCOL", SMALL)
    monkeypatch.setattr(accuracy, "_WINDOWS", 1)
    monkeypatch.setattr(accuracy, "_JUDGED_FROM", accuracy._LEARN_FROM + 7200.0)
    return tmp_path


def test_json_of_one_part_has_rows_and_of_several_their_names(quick):
    one = json.loads(CliRunner().invoke(asa, ["--part", "fig5", "--json"]).stdout)
    ends = {f"{name}_{end}" for name in ("loss", "log10_error") for end in ("low", "high")}
    assert [set(r) for r in one["rows"]] == [{"predictor", "noise", "loss_mean", "log10_error", *ends}] * 6
    both = json.loads(CliRunner().invoke(asa, ["--part", "fig5", "--part", "logs", "--json"]).stdout)
    assert set(both) == {"format", "fig5", "logs"} and {"format": 1, **both["fig5"]} == one
    assert {r["predictor"] for r in both["logs"]["rows"]} >= {"last", "median", "queue", "share-mix"}


@pytest.mark.long  # 50 s of computing, which on a busy machine is three minutes
@pytest.mark.timeout(600)
def test_the_tables_are_run_and_reported(quick):
    out = quick / "out"
    shown = CliRunner().invoke(asa, ["--part", "tables", "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    rows = json.loads((out / "tables.json").read_text())["rows"]
    first = [r for r in rows if r["table"] == 1]
    assert {r["strategy"] for r in first} == {"bigjob", "perstage", "auto"}
    assert {r["cores"] for r in first if r["machine"] == "hpc2n"} == {28, 56, 112}
    assert all(r["core_hours"] > 0 and r["makespan"] > r["total_wait"] for r in first)
    assert {r["predictor"] for r in rows if r["table"] == 2} == set(accuracy.PREDICTORS)
    assert "Table 2" in (out / "report.md").read_text() and (out / "table1-montage.png").exists()


def test_a_part_that_is_measured_again_leaves_the_others_in_the_report(tmp_path):
    pytest.importorskip("matplotlib")

    def part(name: str, value: float):
        goals = [Goal("here", "a figure", value, 1.0, value - 0.5, value + 0.5)]
        return lambda out, tell: Chapter(
            name,
            f"Part {name}",
            "Words.",
            [{"value": value}],
            [Table("T", ("v",), [[f"{value}"]])],
            goals,
            [Path("p.png")],
        )

    known = {name: part(name, value) for name, value in (("one", 1.0), ("two", 2.0), ("three", 3.0))}
    _run("All", known, ["three"], tmp_path, as_json=False)
    _run("All", known, ["one"], tmp_path, as_json=False)
    assert (tmp_path / "report.md").read_text() == as_markdown("All", [known[k](None, None) for k in ("one", "three")])
    (tmp_path / "three.json").write_text('{"rows": []}')  # of an earlier release
    _run("All", {**known, "one": part("one", 9.0)}, ["one"], tmp_path, as_json=False)
    assert (tmp_path / "report.md").read_text() == as_markdown("All", [part("one", 9.0)(None, None)])


def test_mistakes_are_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_TRACES", raising=False)

    def refused(*options: str) -> str:
        with pytest.raises(UserError) as error:
            asa(list(options), standalone_mode=False)
        return str(error.value)

    assert "fig5, tables, logs" in refused("--part", "fig6")
    assert "PENSTOCK_TRACES" in refused("--part", "logs")
    assert "PENSTOCK_TRACES" in refused()
    (tmp_path / "file").write_text("")
    assert "--out" in refused("--part", "fig5", "--out", str(tmp_path / "file"))

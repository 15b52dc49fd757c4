"""`penstock plan --sites` among sites that are queue files, behind prefixes, and among sites that fail."""

from __future__ import annotations

import json
import os
import sys

import pytest

from penstock.cli import main
from penstock.errors import UserError
from penstock.workflow.files.formats import parse_workflow
from penstock_planning.hold.ledger import Ledger
from penstock_planning.plan.transfers import Measured, NetworkLink
from penstock_planning.sites.file import read_sites
from penstock_planning.sites.remote import command_of, greet, words_of

NEAR = {"procs": 2, "jobs": [{"id": "R", "procs": 2, "duration": 50, "state": "reserved", "start": 4}]}
FAR = {"procs": 4, "jobs": [{"id": "B", "procs": 4, "duration": 5, "state": "running"}]}
FLOW = """
name: flow
stages:
  - {name: a, nodes: 2, time: 4, run: "true", produces: 200 B}
  - {name: b, nodes: 4, time: 6, run: "true", after: a}
"""
LINKS = "links: [{between: [near, far], bandwidth: 100 B/s, latency: 1}]\npatience: 5m\n"  # the machine may be slow
PENSTOCK = f"{sys.executable} -m penstock"
# What a site does behind its prefix: it talks, answers from its queue, and reserves what it is told to.
BEHIND = """#!/bin/sh
echo "Welcome to $0"
shift
if [ "$1" = plan ]; then
    echo "$*" >words; cat >shipped
    if [ -e full ]; then echo "penstock: the slot of stage a cannot be had: full" >&2; exit 5; fi
    echo "Submitted batch job 7 for stage a into its reservation" >&2
    echo '{"stages": [{"name": "a", "start": 6, "end": 10}, {"name": "b", "start": 10, "end": 16}]}'
    exit
fi
exec %s "$@" --queue %s
"""


@pytest.fixture
def world(tmp_path, monkeypatch, capsys):
    """Runs `penstock plan flow.yaml --sites …` where `near` is a file and `far` a machine behind a command."""
    monkeypatch.setenv("PENSTOCK_CONFIG", "/dev/null")
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path / "state"))

    def run(sites, *options, flow=FLOW, arguments=("plan", "flow.yaml")):
        (tmp_path / "near.json").write_text(json.dumps(NEAR))
        (tmp_path / "far.json").write_text(json.dumps(FAR))
        (tmp_path / "flow.yaml").write_text(flow)
        (tmp_path / "sites.yaml").write_text(sites)
        behind = tmp_path / "behind"
        behind.write_text(BEHIND % (PENSTOCK, tmp_path / "far.json"))
        behind.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["penstock", arguments[0], "--sites", "sites.yaml", *arguments[1:], *options])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        got = capsys.readouterr()
        return code, got.out, got.err

    run.folder = tmp_path
    return run


def test_a_plan_at_one_site_is_reserved_there(world):
    only = f"sites: {{near: {{queue: near.json}}, far: {{prefix: [./behind], speed: 2, price: 4}}}}\n{LINKS}"
    flow = FLOW.replace("time: 4", "time: 4, expect: 3, took: [3, 3.5]")
    code, out, err = world(
        only, "--site", "far", "--reserve", "--budget", "600", "--deadline", "40", "--json", flow=flow
    )
    assert (code, err) == (0, "far: Submitted batch job 7 for stage a into its reservation\n")
    assert [s["start"] for s in json.loads(out)["reserved"]["stages"]] == [6, 10]
    words = (world.folder / "words").read_text().strip()
    asked = "--alpha 1.0 --seed 1 -A default --deadline @40 --budget 150.0"
    assert words == f"plan - --reserve --json {asked}"
    shipped = json.loads((world.folder / "shipped").read_text())
    first, second = shipped["stages"]
    assert (first["time"], first["expect"], first["took"], second["time"]) == (2, 1.5, [1.5, 1.75], 3)
    assert second["after"] == ["a"] and "expect" not in second
    assert len(parse_workflow(json.dumps(shipped)).stages) == 2
    code, out, _ = world(only, "--site", "far", "--reserve", flow=flow)
    assert code == 0 and ["b", "10", "16"] in [line.split() for line in out.splitlines()]
    (world.folder / "full").touch()
    code, _, err = world(only, "--site", "far", "--reserve", flow=flow)
    assert (code, err) == (5, "penstock: site far: the slot of stage a cannot be had: full\n")


ODD = """ "echo '{\\"session\\": 7}'" """
BOTH = f"sites: {{near: {{queue: near.json}}, far: {{prefix: [./behind]}}}}\n{LINKS}"


def places(out):
    return [(s["name"], s["site"], s["start"], s["end"]) for s in json.loads(out)["stages"]]


def test_a_plan_over_a_file_and_a_site_behind_a_command(world):
    code, out, err = world(BOTH, "--alpha", "0", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert places(out) == [("a", "near", 0, 4), ("b", "far", 7, 13)] and found["makespan"] == 13
    assert found["transfers"] == [
        {"of": "a", "for": "b", "from": "near", "to": "far", "bytes": 200, "start": 4, "end": 7, "correction": 1.0}
    ]
    assert found["stages"][1]["on"] == ["0", "1", "2", "3"] and found["stages"][1]["start_there"] == 7
    assert [(s["name"], s["procs"], s["clock_ahead"]) for s in found["sites"]] == [("near", 2, 0), ("far", 4, 0)]
    assert found["left_out"] == []


def test_greedy_buys_at_both_sites_and_people_see_where(world):
    code, out, err = world(BOTH, "--alpha", "0", "--method", "greedy", "--gantt")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["a", "near", "2", "0", "4"] in lines and ["b", "far", "4", "7", "13"] in lines
    assert ["a", "b", "near", "to", "far", "200", "B", "4", "7"] in lines
    assert "near/0" in out and "far/3" in out and "# taken" in out


def test_a_site_that_does_not_answer_is_left_out_and_said(world):
    sites = "sites: {far: {prefix: [./behind]}, dead: {prefix: [sh, -c, 'echo no route >&2; exit 255']}, "
    code, out, err = world(f"{sites} none: {{prefix: [/nowhere/ssh]}}}}\npatience: 5m", "--json")
    assert code == 0 and places(out) == [("a", "far", 5, 9), ("b", "far", 9, 15)]
    assert (
        "site dead is left out: it hung up: no route" in err and "site none is left out: /nowhere/ssh: No such" in err
    )
    assert [one["name"] for one in json.loads(out)["left_out"]] == ["none", "dead"]


@pytest.mark.parametrize(
    ("sites", "options", "code", "said"),
    [
        (
            "sites: {dead: {prefix: [sh, -c, sleep 600]}}\npatience: 1s",
            (),
            6,
            "no site answers: dead: no answer in 1 s",
        ),
        (f"sites: {{odd: {{prefix: [sh, -c, {ODD}]}}}}", (), 6, "its answer cannot be read: speaks version 7"),
        ("sites: {near: {queue: nothing.json}}\npatience: 5m", (), 6, "nothing.json cannot be read"),
        (
            BOTH,
            ("--alpha", "0", "--reserve"),
            2,
            "--reserve: the plan uses near and far, and only a plan at one site can",
        ),
        (BOTH, ("--reserve", "--method", "paper"), 2, "--reserve: the method paper charges whole slots"),
        ("sites: {far: {queue: far.json}}\npatience: 5m", ("--reserve",), 2, "--reserve: far is a queue file"),
        (BOTH, ("--site", "moon"), 2, "--site: there is no site 'moon' (sites: near, far)"),
        (BOTH, ("--queue", "near.json"), 2, "a queue file is a site with `queue: FILE`"),
        (BOTH, ("-p", "batch"), 2, "says the partition of each"),
        (BOTH, ("--method", "magic"), 2, "--method must be one of"),
        (BOTH, ("--site", "near"), 5, "task b: none of near ever gives a job 4 nodes (at most 2)"),
        (BOTH, ("--deadline", "12"), 5, "no plan ends in 12: the fastest takes 13"),
        (BOTH, ("--deadline", "0"), 2, "--deadline must be later than now (0)"),
        (
            f"{BOTH.partition(LINKS)[0]}patience: 5m",
            (),
            2,
            "links: there is none between near and far",
        ),
    ],
)
@pytest.mark.few(5)
def test_mistakes(world, sites, options, code, said):
    got, out, err = world(sites, *options)
    assert got == code and (out == "" or "--reserve" in options), err
    assert said in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sites.yaml: must be a map with the keys sites, "),
        ("sites: {}", "sites: must be a map of sites by name"),
        ("sites: {a b: {}}", "sites: a name must be"),
        ("sites: {a: {hosts: x}}", "sites.a: unknown key 'hosts': did you mean 'host'?"),
        ("sites: {a: {host: -oProxyCommand=x}}", "sites.a.host: must be the name of a host"),
        ("sites: {a: {host: b, prefix: [c]}}", "sites.a: has both 'host' and 'prefix'"),
        ("sites: {a: {prefix: ssh b}}", "sites.a.prefix: must be a list of words"),
        ("sites: {a: {partition: '; rm'}}", "sites.a.partition: must be the name of a partition"),
        ("sites: {a: {speed: 0}}", "sites.a.speed: must be a number above 0"),
        ("sites: {a: {price: -1}}", "sites.a.price: must be a number of at least 0"),
        ("sites: {a: {}}\nlinks: [{between: [a], bandwidth: 1}]", "links[0].between: must be the names of two sites"),
        ("sites: {a: {}}\nlinks: [{between: [a, b], bandwidth: 1}]", "links[0].between: there is no site 'b'"),
        ("sites: {a: {}}\nlinks: [{between: [a, a], bandwidth: 1}]", "[a, a] is one site twice"),
        (
            "sites: {a: {}, b: {}}\nlinks: [{between: [a, b], bandwidth: 1}, {between: [b, a], bandwidth: 1}]",
            "links[1].between: [b, a] has a link already",
        ),
        (
            "sites: {a: {}, b: {}}\nlinks: [{between: [a, b], bandwidth: fast}]",
            "links[0].bandwidth: bytes a second: must",
        ),
        ("sites: {a: {}, b: {}}\nlinks: [{between: [a, b]}]", "links[0]: the key 'bandwidth' is missing"),
        (
            "sites: {a: {}, b: {}}\nlinks: [{between: [a, b], bandwidth: 1, latency: x}]",
            "links[0].latency: must be a dur",
        ),
        (
            "sites: {a: {}}\nstaging: [false, x]",
            "[rsync, -a], false is no text (quote it)",
        ),
        ("sites: {a: {}}\nstaging: rsync", "staging: must be a list of words"),
        ("sites: {a: {}}\npatience: 0", "patience: must be a duration"),
    ],
)
def test_what_is_wrong_in_a_file_of_sites_is_named(tmp_path, text, said):
    path = tmp_path / "sites.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_sites(path)
    assert str(caught.value).startswith(f"{path}: ") and said in str(caught.value)


STAGING = f"""
sites:
  near: {{queue: near.json, data: here/}}
  far: {{prefix: [./behind], data: there/}}
staging: [cp, "{{source}}{{path}}", "{{target}}{{path}}"]
{LINKS}"""


def test_what_staging_takes_corrects_the_next_plan(world):
    for name in ("here", "there"):
        (world.folder / name).mkdir()
    (world.folder / "here" / "out").write_bytes(b"x" * 200)
    code, out, err = world(STAGING, arguments=("stage", "near", "far", "out"))
    assert (code, err) == (0, "") and (world.folder / "there" / "out").read_bytes() == b"x" * 200
    assert out.startswith("Moved 200 B from near to far in ") and "the file of sites says 3 s" in out
    ledger = Ledger(world.folder / "state" / "ledger.db")
    (moved,) = ledger.transfers()["near", "far"]
    assert moved.predicted == 3 and 0 < moved.seconds < 60
    for _ in range(10):  # what was measured here depends on the machine
        ledger.add_transfer("near", "far", 0.0, 200, Measured(3, 6))
    ledger.close()
    code, out, err = world(STAGING, "--alpha", "0", "--json")
    assert (code, err) == (0, "")
    # Moving takes 6, so that b would end at 16: it is better that both run far, where they end at 15.
    assert places(out) == [("a", "far", 5, 9), ("b", "far", 9, 15)]
    slow = STAGING.replace("near.json", "near.json, speed: 2")  # a ends at 2
    (one,) = json.loads(world(slow, "--alpha", "0", "--json")[1])["transfers"]
    assert (one["start"], one["end"], one["correction"]) == (2, 8, 2)


def test_what_staging_took_as_json(world):
    for name in ("here", "there"):
        (world.folder / name).mkdir()
    (world.folder / "here" / "out").write_bytes(b"x" * 200)

    def moved(sites, *options):
        code, out, _ = world(sites, "--json", *options, arguments=("stage", "near", "far", "out"))
        assert code == 0
        found = json.loads(out)  # and nothing of what the command says
        assert found.pop("format") == 1
        assert found.pop("seconds") > 0 and (found.pop("from"), found.pop("to")) == ("near", "far")
        return found

    found = moved(STAGING)
    assert found.pop("correction") > 0
    assert found == {"path": "out", "bytes": 200, "predicted": 3}
    not_measured = {"path": "out", "bytes": 200, "predicted": None, "correction": None}
    assert moved(STAGING.replace(LINKS, "patience: 5m\n")) == not_measured
    (world.folder / "here" / "out").write_bytes(b"")
    assert moved(STAGING.replace("[cp", "[cp, -v")) == not_measured | {"bytes": 0}
    assert moved(STAGING.replace("queue: near.json", "prefix: [./behind]")) == not_measured | {"bytes": None}


@pytest.mark.parametrize(
    ("sites", "arguments", "code", "said"),
    [
        (
            STAGING.replace("[cp", "[/bin/false"),
            ("near", "far", "out", "--size", "5"),
            1,
            "staging failed: /bin/false ended with 1",
        ),
        (STAGING, ("near", "moon", "out"), 2, "there is no site 'moon' (sites: near, far)"),
        (STAGING, ("near", "far", "out", "--size", "much"), 2, "--size: must be"),
        (STAGING, ("near", "far", "--", "-out"), 2, "a path must not begin with -"),
        (
            STAGING.replace("{path}", "{file}"),
            ("near", "far", "out"),
            2,
            "only {source}, {target} and {path} can stand",
        ),
        (STAGING.replace("[cp", "[/nowhere/cp"), ("near", "far", "out"), 2, "staging: /nowhere/cp: No such file"),
        (BOTH, ("near", "far", "out"), 2, "staging: is missing"),
    ],
)
def test_staging_that_fails_is_not_measured(world, sites, arguments, code, said):
    got, out, err = world(sites, *arguments, arguments=("stage",))
    assert (got, out) == (code, "") and said in err, err
    assert not (world.folder / "state" / "ledger.db").exists()


def test_how_a_site_is_asked(tmp_path):
    path = tmp_path / "sites.yaml"
    path.write_text(
        "sites: {here: {}, far: {host: me@far, command: /opt/penstock}, cave: {prefix: [ssh, cave]}}\n"
        "links: [{between: [here, far], bandwidth: 10 MB/s, latency: 0}]"
    )
    file = read_sites(path)
    here, far, cave = file.chosen([])
    words = ["slots", "--gres", "gpu:a;b"]
    assert command_of(here, words_of(here, words)) == [sys.executable, "-m", "penstock", *words]
    ssh = ["ssh", "-oBatchMode=yes", "me@far", "/opt/penstock slots --gres 'gpu:a;b'"]  # for a shell there
    assert command_of(far, words_of(far, words)) == ssh
    assert command_of(cave, words_of(cave, words)) == ["ssh", "cave", "penstock", *words]
    assert file.links["far", "here"] == file.links["here", "far"] == NetworkLink(10e6, 0)
    assert (far.data, here.data) == ("me@far:", "")


def test_nothing_is_left_of_a_session(tmp_path):
    path = tmp_path / "sites.yaml"
    path.write_text(f"sites: {{stuck: {{prefix: [sh, -c, 'echo $$ >{tmp_path}/pid; sleep 600; true']}}}}")
    lines, gone = greet(read_sites(path).chosen([]), [], 5.0)
    assert lines == [] and "no answer in 5 s" in gone["stuck"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)

"""`penstock profile`: what is measured, written and read again, and how profiles are compared."""

import json
import sys
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from penstock.errors import PenstockError, UserError
from penstock_planning.broker import counters
from penstock_planning.broker.profiles import Profile, compare, load_profile, requirements_of, save_profile
from penstock_planning.broker.tasks import read_bags
from penstock_planning.commands import profile as command
from penstock_planning.commands.profile import profile

WORK = (
    sys.executable,
    "-c",
    # It stays at its peak long enough to be seen there.
    "import sys, time; sum(range(3_000_000)); x = b'a' * 30_000_000; open(sys.argv[1], 'wb').write(x); time.sleep(0.3)",
)


def run(*arguments):
    result = CliRunner().invoke(profile, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_command_is_measured(tmp_path):
    path = tmp_path / "p.yaml"
    result = run("--runs", 2, "--out", path, "--machine", "here", "--json", "--", *WORK, tmp_path / "x")
    said = json.loads(result.stdout)
    made = load_profile(path)
    assert (made.name, made.counters, len(made.runs)) == ("here", said["counters"], 2)
    assert made.counters == "perf" or "cycles are CPU time x clock" in result.stderr
    for one in made.runs:
        assert one.cpu > 0.01 and one.wall > 0 and one.cycles > 1e6
        assert one.memory > 20e6 and 30e6 <= one.written < 31e6
    assert made.amount == pytest.approx(said["amount"]) and said["amount"] > 1e6
    with pytest.raises(UserError, match="is there already"):
        run("--out", path, "--", "true")
    run("--out", path, "--force", "--", "true")


def test_without_counters_it_says_why(tmp_path, monkeypatch):
    def none(self):
        raise counters.Unavailable("not permitted (kernel.perf_event_paranoid is 4; 2 or less would permit it)")

    monkeypatch.setattr(counters.Counters, "__init__", none)
    monkeypatch.setattr(command, "Counters", counters.Counters)
    result = run("--out", tmp_path / "p.yaml", "--", sys.executable, "-c", "sum(range(10**6))")
    assert "kernel.perf_event_paranoid is 4" in result.stderr
    made = load_profile(tmp_path / "p.yaml")
    assert made.counters == "cpu-time" and made.rate == 1.0 and made.amount == made.mean["cycles"]


@pytest.mark.parametrize("words", [("false",), ("/no/such/program",)])
def test_a_command_that_fails(tmp_path, words):
    with pytest.raises(PenstockError, match=r"a run that fails is no profile|cannot be run"):
        run("--out", tmp_path / "p.yaml", "--", *words)
    assert not (tmp_path / "p.yaml").exists()


def machine(name, base, largest, cycles, instructions, wall, architecture="x86_64"):
    mean = {"wall": wall, "cpu": wall, "cycles": cycles, "instructions": instructions, "memory": 1e9}
    return Profile(name, ["md"], architecture, "", base, largest, "perf", [], mean)


BASELINE = machine("amarel", 2.4e9, 3e9, 1e12, 2.2e12, 400.0)


def test_a_comparison():
    # G14: the predicted 2.2e12 sequential cycles, 1e12 measured at 2.15 instructions a cycle.
    comet = machine("comet", 2.5e9, 3.3e9, 1e12, 2.15e12, 346.0)
    bridges = machine("bridges", 2.3e9, 3.3e9, 1e12, 2.2e12, 366.0)
    found, right = compare(BASELINE, [comet, bridges])
    assert found[0].p2a_cy == pytest.approx(2.2) and found[0].epsilon == pytest.approx(2.27, abs=0.005)
    assert found[0].by_base == pytest.approx(880.0) and found[0].error_base == pytest.approx(154.3, abs=0.05)
    assert found[0].error_max == pytest.approx(92.7, abs=0.05)
    assert right == {"base": 1.0, "max": 0.0}
    assert compare(BASELINE, [comet])[1] == {}


def test_profiles_that_cannot_be_compared():
    with pytest.raises(UserError, match="its architecture is aarch64"):
        compare(BASELINE, [machine("arm", 2e9, 3e9, 1e12, 1e12, 5.0, "aarch64")])
    with pytest.raises(UserError, match="was measured by cpu-time"):
        compare(BASELINE, [replace(BASELINE, name="b", counters="cpu-time")])


def test_a_task_by_its_profile(tmp_path):
    save_profile(tmp_path / "md.yaml", BASELINE)
    assert load_profile(tmp_path / "md.yaml") == BASELINE
    (tmp_path / "t.yaml").write_text("name: md\nprofile: md.yaml\nrequirements: [{type: io, amount: 1 GB}]\n")
    (bag,) = read_bags(tmp_path / "t.yaml")
    cycles, memory, io = sorted(bag.task.requirements, key=lambda r: r.consumable.type)
    assert (cycles.amount, str(cycles.consumable)) == (pytest.approx(2.2e12), "compute {isa: x86|x86_64}")
    assert memory.consumable.type == "io" and io.held and io.amount == 1e9
    assert len(requirements_of(replace(BASELINE, mean={"cycles": 5.0}))) == 1


def test_the_table(tmp_path):
    for one in (BASELINE, machine("comet", 2.5e9, None, 1e12, 2.15e12, 346.0)):
        save_profile(tmp_path / f"{one.name}.yaml", one)
    result = run("compare", tmp_path / "amarel.yaml", tmp_path / "comet.yaml")
    assert "2.200" in result.stdout and "2.27 %" in result.stdout and "+154.3 %" in result.stdout
    found = json.loads(run("compare", tmp_path / "amarel.yaml", tmp_path / "comet.yaml", "--json").stdout)
    assert found["machines"][0]["by_max"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mean": {"wall": 1.0}}, "mean: the key 'cycles' is missing"),
        ({"mean": {"cycles": -1.0}}, "mean.cycles: must be a number above 0"),
        ({"mean": {"cycles": 1.0, "wall": -1}}, "mean.wall: must be a number of at least 0"),
        ({"mean": {"cycles": 1.0, "wal": 1}}, "unknown key 'wal'"),
        ({"counters": "guess"}, "counters: must be perf or cpu-time"),
        ({"base": 0}, "base: must be a number above 0"),
        ({"architecture": None}, "the key 'architecture' is missing"),
        ({"runs": [{"cycles": 5}]}, "runs[0]: the key 'wall' is missing"),
    ],
)
def test_bad_profiles(tmp_path, change, said):
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump({"architecture": "x86_64", "mean": {"cycles": 1.0}, **change}))
    with pytest.raises(UserError) as caught:
        load_profile(path)
    assert said in str(caught.value) and "p.yaml" in str(caught.value)

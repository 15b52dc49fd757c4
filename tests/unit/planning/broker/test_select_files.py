"""`penstock select` from files, without a cluster: what it prints, and what it says of bad input."""

import json

import pytest
from click.testing import CliRunner

from penstock.cli.schemas import schema_of
from penstock.errors import Infeasible, UserError
from penstock_planning.broker.resources import read_resources
from penstock_planning.broker.tasks import read_bags
from penstock_planning.commands.select import select
from penstock_planning.select.consumables import Metric

TASK = """
name: md
requirements:
  - {type: compute, form: {isa: x86, simd: [sse4.1, avx2]}, amount: 3e12}
"""
RESOURCES = """
resources:
  - {name: B, capabilities: [{type: compute, form: {isa: x86}, rate: 2.8e9}]}
  - {name: E, tq: {50: 10, 95: 1h},
     capabilities: [{type: compute, form: {isa: [x86, arm], simd: sse4.1}, rate: 2.5 GHz}]}
  - {name: A, tq: 200, charge: 2, capabilities: [{type: compute, form: {isa: x86, simd: [avx2]}, rate: 2.8 GHz}]}
"""


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    return put


def run(*arguments):
    result = CliRunner().invoke(select, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rows(*arguments):
    return json.loads(run(*arguments, "--json").stdout)["resources"]


def test_rows_are_best_first(write):
    found = rows(write("t.yaml", TASK), "--resources", write("r.yaml", RESOURCES))
    assert [r["resource"] for r in found] == ["E", "A", "B"]
    assert set(found[0]) == {"resource", "viable", "why", "cost", "tx", "tq", "ttc"}
    assert found[0] == {"resource": "E", "viable": True, "why": None, "cost": 1200, "tx": 1200, "tq": 10, "ttc": 1210}
    assert found[1]["ttc"] == pytest.approx(3e12 / 2.8e9 + 200)
    assert not found[2]["viable"] and "simd" in found[2]["why"] and found[2]["ttc"] is None


def test_by_quantile_and_by_money(write):
    task, resources = write("t.yaml", TASK), write("r.yaml", RESOURCES)
    found = rows(task, "--resources", resources, "--quantile", "0.95")
    assert [r["resource"] for r in found] == ["A", "E", "B"] and found[1]["tq"] == 3600
    found = rows(task, "--resources", resources, "--metric", "cost")
    assert [(r["resource"], r["viable"]) for r in found] == [("A", True), ("E", True), ("B", False)]
    assert found[0]["cost"] == pytest.approx(2 * 3e12 / 2.8e9 / 3600)
    assert found[1]["cost"] is None and "charge" in found[1]["why"]


def test_the_qos_of_a_resource_is_in_the_schema_of_what_is_printed():
    row = {"resource": "batch", "viable": True, "why": None, "cost": None, "tx": 1.0, "tq": 2.0, "ttc": 3.0}
    told = row | {"jobs": 1, "tasks": 2, "qos": "long"}
    known = schema_of("select")["$defs"]["Resource"]["properties"]
    assert known["qos"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert told.keys() <= known.keys()


def test_json_and_the_papers_words_are_understood(write):
    consumable = {"type": "compute", "form": {"isa": ["x86"]}}
    task = write("t.json", {"tasks": [{"name": "one", "instructions": [[{"c": consumable, "amt": 1e9}]] * 2}]})
    caps = [{"consumable": consumable, "rate": 1e9, "rates": {"money": 1e9}}]
    resources = write("r.json", [{"id": 7, "capabilities": caps}])
    (row,) = rows(task, "--resources", resources)
    assert (row["resource"], row["tx"], row["tq"], row["ttc"]) == ("7", 2.0, 0.0, 2.0)
    (offered,) = read_resources(resources)
    assert offered.resource.capabilities[0].rates == {Metric.MONEY: 1e9}


def test_several_tasks_name_themselves(write):
    task = write("t.yaml", "include: a.yaml\ntasks:\n  b: {count: 5, requirements: [{type: io, amount: 1 GB}]}\n")
    write("a.yaml", "name: a\nrequirements: [{type: io, amount: 2 GB}]\n")
    resources = write("r.yaml", "name: r\ncapabilities: [{type: io, rate: 1 GB/s}]\n")
    assert [(r["task"], r["tx"]) for r in rows(task, "--resources", resources)] == [("a", 2.0), ("b", 1.0)]
    assert [b.count for b in read_bags(task)] == [1, 5]


def test_a_task_without_a_name_is_called_as_its_file(write):
    nameless = TASK.replace("name: md\n", "")
    assert [bag.task.name for bag in read_bags(write("nbody.yaml", nameless))] == ["nbody"]
    two = write("two.json", {"tasks": [{"requirements": [{"type": "compute", "amount": 1}]}] * 2})
    assert [bag.task.name for bag in read_bags(two)] == ["two", "two2"]


def test_the_table_and_its_explanation(write):
    result = run(write("t.yaml", TASK), "--resources", write("r.yaml", RESOURCES), "--explain")
    assert "not viable: compute: does not say its simd" in result.stdout
    assert "at 2.5e+09/s: 1200 s" in result.stdout
    assert "no `tq` is given for B" in result.stderr


def test_parallel_and_held(write):
    task = write(
        "t.yaml",
        "name: p\nparallel: {cores: 4, speedup: {2: 1.9, 4: 3.5}}\n"
        "requirements: [{type: compute, amount: 7e9}, {type: memory, hold: 4 GB}]\n",
    )
    resources = write(
        "r.yaml",
        "- {name: big, capabilities: [{type: compute, rate: 1e9}, {type: memory, capacity: 8 GB}]}\n"
        "- {name: small, capabilities: [{type: compute, rate: 9e9}, {type: memory, capacity: 2 GB}]}\n",
    )
    found = rows(task, "--resources", resources)
    assert [(r["resource"], r["viable"], r["tx"]) for r in found] == [("big", True, 2.0), ("small", False, None)]
    assert found[1]["why"] == "memory: has 2e+09, 4e+09 at once are required"


def test_what_nobody_offers_is_named_with_the_nearest(write):
    task, resources = write("t.yaml", TASK.replace("x86", "riscv")), write("r.yaml", RESOURCES)
    result = CliRunner().invoke(select, [str(task), "--resources", str(resources), "--json"])
    assert [r["viable"] for r in json.loads(result.stdout)["resources"]] == [False] * 3
    assert isinstance(result.exception, UserError)
    assert "md needs 3e+12 of compute {isa: riscv, simd: avx2|sse4.1}, which no resource offers" in str(
        result.exception
    )
    assert "the nearest is compute {isa: arm|x86, simd: sse4.1} of E" in str(result.exception)


def test_what_no_single_resource_offers(write):
    task = write("t.yaml", "name: a\nrequirements: [{type: io, amount: 1}, {type: compute, amount: 1}]\n")
    one = "- {name: a, capabilities: [{type: io, rate: 1}]}\n- {name: b, capabilities: [{type: compute, rate: 1}]}\n"
    with pytest.raises(Infeasible, match="no resource is viable for a"):
        run(task, "--resources", write("r.yaml", one))


REQ = "name: a\nrequirements: [{%s}]\n"
CAP = "name: r\ncapabilities: [{%s}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REQ % "type: io, amount: 3 parsecs", "requirements[0].amount: unknown unit 'parsecs'"),
        (REQ % "type: io, amount: -1", "requirements[0].amount: must be above 0"),
        (REQ % "type: io, amount: 0", "must be above 0"),
        (REQ % "type: io, amount: .nan", "must be above 0 and finite"),
        (REQ % "type: io", "must have either 'amount' (used up) or 'hold'"),
        (REQ % "type: io, amount: 1, hold: 1", "must have either 'amount'"),
        (REQ % "amount: 1", "the key 'type' is missing"),
        (REQ % "type: io, amount: 1, form: {isa: []}", "form: isa has no values"),
        (REQ % "type: io, amount: 1, form: {isa: ''}", "form: an empty text is no value"),
        (REQ % "type: io, amount: 1, form: [x86]", "form: must be a map"),
        (REQ % "type: io, amount: 1, form: {isa: '>x86'}", "only numbers and versions"),
        (REQ % "type: io, ammount: 1", "did you mean 'amount'?"),
        (REQ % "type: memory, hold: 1", "uses nothing up"),
        ("name: a\n", "the key 'requirements' is missing"),
        ("name: a\nrequirements: 3\n", "requirements: must be a list, not 3"),
        ("", "must be a map or a list, not empty"),
        ("[]", "has no tasks"),
        ("tasks: [1]", "tasks[0]: must be a map with the keys name, count"),
        ("a: [", "is not valid YAML"),
        ("include: t.yaml\n", "t.yaml: includes itself (t.yaml -> t.yaml)"),
        ("include: other.yaml\n", "includes itself (t.yaml -> other.yaml -> t.yaml)"),
        ("include: nowhere.yaml\n", "t.yaml: include: there is no file"),
        ("include: 3\n", "include: must be the name of a file"),
        (REQ % "type: io, amount: 1" + "count: 0\n", "count: must be a whole number from 1"),
        (REQ % "type: io, amount: 1" + "time: soon\n", "time: must be a duration"),
        (
            REQ % "type: io, amount: 1" + "parallel: {serial: 2}\n",
            "parallel.serial: must be a fraction from 0 to 1, not 2",
        ),
        (REQ % "type: io, amount: 1" + "parallel: {cores: 4}\n", "it must say how it gets faster"),
        (
            REQ % "type: io, amount: 1" + "parallel: {speedup: {0: 1}}\n",
            "parallel.speedup: must be a whole number from 1 to 10000000, not 0",
        ),
        (REQ % "type: io, amount: 1" + "fill: full\n", "fill: must be pack, pad or none, not 'full'"),
        ("tasks:\n- &a\n  " + (REQ % "type: io, amount: 1").replace("\n", "\n  ") + "\n- *a\n", "two tasks are called"),
    ],
)
def test_bad_tasks(write, text, said):
    path = write("t.yaml", text)
    write("other.yaml", "include: t.yaml\n")
    with pytest.raises(UserError) as caught:
        read_bags(path)
    assert said in str(caught.value) and "t.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CAP % "type: io, rate: -5", "capabilities[0].rate: must be above 0"),
        (CAP % "type: io, rate: 5 GB", "unknown unit 'GB'"),
        (CAP % "type: io", "must have either 'rate'"),
        (CAP % "type: io, rate: 1, rates: {gold: 1}", "unknown key 'gold'"),
        (CAP % "type: io, rate: 1, rates: {money: 0}", "rates.money: must be above 0"),
        (CAP % "type: io, rate: 1}, {type: io, rate: 2", "offers io twice"),
        ("name: r\n", "the key 'capabilities' is missing"),
        ("capabilities: []\n", "the key 'name' is missing"),
        (CAP % "type: io, rate: 1" + "tq: -5\n", "tq: must be 0 or a duration"),
        (CAP % "type: io, rate: 1" + "tq: {95: 1m, 50: 2m}\n", "tq: waits are finite seconds"),
        (CAP % "type: io, rate: 1" + "tq: {500: 1m}\n", "tq: must have quantiles in per cent"),
        (CAP % "type: io, rate: 1" + "correction: 0\n", "correction: must be a number above 0"),
        (CAP % "type: io, rate: 1" + "charge: -1\n", "charge: must be a number of at least 0"),
        ("- {name: r, capabilities: []}\n- {name: r, capabilities: []}\n", "two resources are called 'r'"),
        ('{"resources": [}', "is not valid"),
    ],
)
def test_bad_resources(write, text, said):
    with pytest.raises(UserError) as caught:
        read_resources(write("r.yaml", text))
    assert said in str(caught.value) and "r.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "speed"), "--metric: no affinity 'speed' is installed "),
        (("--quantile", "95"), "--quantile must be a number between 0 and 1"),
    ],
)
def test_bad_options(write, more, said):
    with pytest.raises(UserError, match=said):
        run(write("t.yaml", TASK), "--resources", write("r.yaml", RESOURCES), *more)


def test_a_task_file_is_needed(write):
    with pytest.raises(UserError, match="a task file must be named: penstock select FILE"):
        run("--resources", write("r.yaml", RESOURCES))


def test_an_affinity_of_ones_own(write, monkeypatch):
    from importlib.metadata import EntryPoint

    from penstock.core import extensions

    class Slowest:
        name = "slowest"
        metric = Metric.TIME

        def value(self, option):
            return option.ttc

    class Loaded(EntryPoint):
        def load(self):
            return {"slowest": Slowest, "broken": None}[self.name]

    plugins = [Loaded(name=n, value="x:y", group="penstock.affinity") for n in ("slowest", "broken")]
    monkeypatch.setattr(extensions, "entry_points", lambda group: plugins if group == "penstock.affinity" else [])
    task, resources = write("t.yaml", TASK), write("r.yaml", RESOURCES)
    assert [r["resource"] for r in rows(task, "--resources", resources, "--metric", "slowest")] == ["A", "E", "B"]
    with pytest.raises(UserError, match="the affinity 'broken' cannot be loaded"):
        run(task, "--resources", resources, "--metric", "broken")

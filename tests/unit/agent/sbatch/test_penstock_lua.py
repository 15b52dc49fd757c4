"""penstock.lua says what `penstock sbatch` says, in every version of Lua, and never raises."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import limits
from malleable_cases import CASES, LEFT_ALONE, Case
from penstock.errors import UserError
from penstock.resize.commands.molding import start_nodes
from penstock.sbatch.directives import Request, Said, read_directives, request
from penstock.sbatch.job import SbatchJob
from penstock.slurm.option_words import SbatchWords, read_words
from places import PROJECT

pytest.importorskip("lupa", reason="no lupa here, which brings Lua (pip install lupa)")

FOLDER = PROJECT / "plugins" / "slurm"
VERSIONS = ("lua51", "lua52", "lua53", "lua54", "lua55", "luajit21")
NO_VAL16, NO_VAL = 65534, 4294967294


class Slurm:
    """A Lua state as slurmctld or a command makes it: with `slurm` in it, whose messages are kept."""

    def __init__(self, version: str) -> None:
        self.lua: Any = importlib.import_module(f"lupa.{version}").LuaRuntime(encoding="latin-1")
        self.told: list[str] = []
        self.logged: list[str] = []
        self.lua.globals().penstock_told = self.told.append
        self.lua.globals().penstock_logged = self.logged.append
        self.lua.execute(
            # As Slurm's own functions do, these take a format first, and end the script if it does not fit.
            "slurm = {ERROR = -1, SUCCESS = 0,"
            "  log_user = function(...) penstock_told(string.format(...)) end,"
            "  log_error = function(...) penstock_logged(string.format(...)) end}"
        )
        self.module = self.lua.execute((FOLDER / "penstock.lua").read_text())

    def table(self, values: Mapping[str, object]) -> Any:
        return self.lua.table_from({k: v for k, v in values.items() if v is not None})

    def job(self, script: str | None, environment: Mapping[str, str] | None = None, **fields: object) -> Any:
        unset = {"min_nodes": NO_VAL, "num_tasks": NO_VAL, "ntasks_per_node": NO_VAL16}
        return self.table(
            {**unset, "script": script, "environment": self.table({"HOME": "/", **(environment or {})}), **fields}
        )

    def refusal(self, job: Any) -> str | None:
        """What it is refused with; None: accepted. What is said of an accepted one stays in `told`."""
        self.told.clear()
        if self.module.accepts_job(job):
            return None
        (text,) = self.told
        return text


@pytest.fixture(scope="module", params=VERSIONS)
def slurm(request) -> Slurm:
    return Slurm(request.param)


def fields_of(options: tuple[str, ...]) -> dict[str, object]:
    """What sbatch makes of these options."""
    names: dict[str, tuple[str, Callable[[str], object]]] = {
        "ntasks-per-node": ("ntasks_per_node", int),
        "nodes": ("min_nodes", int),
        "nodelist": ("req_nodes", str),
    }
    return {names[name][0]: names[name][1](value or "") for name, value in read_words(options).found}


def asked(case: Case) -> Request:
    """What `penstock sbatch` takes it for; UserError with what it says of it."""
    found = read_directives(case.script.splitlines(), "script")
    if case.forced:
        found["malleable"] = Said(case.forced, "DMR_SIZES")
    said = request({}, {key: value for key, value in found.items() if key == "malleable"}, None)
    start_nodes(SbatchJob(read_words(case.options), SbatchWords(), said), {})
    return said


def python_refusal(case: Case) -> str | None:
    try:
        asked(case)
    except UserError as e:
        return f"penstock: {e}"
    return None


@pytest.mark.parametrize("case", CASES)
def test_python_and_lua_say_the_same(slurm, case):
    environment = {"DMR_SIZES": case.forced} if case.forced else {}
    lua = slurm.refusal(slurm.job(case.script, environment, **fields_of(case.options)))
    assert lua == python_refusal(case)
    if case.refusal is None:
        assert lua is None
    else:
        assert lua is not None and lua.startswith(f"penstock: {case.refusal}")


def test_what_is_accepted_the_program_understands():
    accepted = [sizes for case in CASES if case.refusal is None and (sizes := asked(case).malleable)]
    assert len(accepted) > 9
    for sizes in accepted:
        limits.from_text(sizes, 1)


@pytest.mark.parametrize("line", LEFT_ALONE)
def test_other_words_are_left_to_penstock_sbatch(slurm, line):
    with pytest.raises(UserError):
        request({}, read_directives([line], "script"), None)
    assert slurm.refusal(slurm.job(f"{line}\ntrue\n")) is None and not slurm.told


@given(
    st.lists(st.sampled_from(["#PENSTOCK", "malleable", "=", "2:8", "8:4", "'", '"', "\\", "#", " ", "\t", "\n", "\r"]))
    | st.lists(st.characters(min_codepoint=1, max_codepoint=126))
)
def test_any_line_is_read_alike(pieces):
    assert_alike("#PENSTOCK malleable=" + "".join(pieces))
    assert_alike("".join(pieces))


@given(st.lists(st.integers(0, 9) | st.sampled_from(["", "x", "2147483647", "2147483648", " 1"]), max_size=6))
def test_any_sizes_are_judged_alike(parts):
    assert_alike(f"#PENSTOCK malleable='{':'.join(map(str, parts))}'")


STATES = [Slurm(version) for version in ("lua51", "lua54")]


def assert_alike(text: str) -> None:
    lines = text.splitlines()
    try:
        said = {k: v for k, v in read_directives(lines, "script").items() if k == "malleable"}
        request({}, said, None)
        python = None
    except UserError as e:
        python = f"penstock: {e}"
        if any(word in python for word in ("#PENSTOCK takes", "says nothing", "needs a value", "was given in")):
            return  # of other words, which may come first
    for state in STATES:
        assert state.refusal(state.job(text)) == python


def test_a_request_without_effect_is_pointed_out(slurm):
    assert slurm.refusal(slurm.job("#PENSTOCK malleable=2:8\n")) is None
    (told,) = slurm.told
    assert told.startswith("penstock: script:1: malleable=2:8 has no effect: only `penstock sbatch`")
    assert slurm.refusal(slurm.job("#PENSTOCK malleable=2:8\n", {"DMR_SIZES": "2:8"})) is None
    assert not slurm.told


def test_ranks_per_node_may_come_from_the_environment(slurm):
    job = slurm.job("#PENSTOCK malleable=5:7\n", {"DMR_RANKS_PER_NODE": "4"})
    assert slurm.refusal(job) == "penstock: malleable=5:7: no size of it fills whole nodes of 4 processes"
    by_sbatch_22_05 = slurm.job("#PENSTOCK malleable=5:7\n", ntasks_per_node=4, num_tasks=4)
    assert "whole nodes of 4" in (slurm.refusal(by_sbatch_22_05) or "")
    for more in ({"num_tasks": 4}, {"tres_per_job": "gres/gpu:4"}, {"num_tasks": 8, "ntasks_per_node": 4}):
        job = slurm.job("#PENSTOCK malleable=5:7\n", {"DMR_RANKS_PER_NODE": "4"}, **more)
        assert slurm.refusal(job) is None


def test_jobs_without_a_script(slurm):
    # Slurm logs it when somebody asks for the environment of one.
    asked = slurm.lua.eval("setmetatable({}, {__index = function(_, name) asked = (asked or '') .. name end})")
    assert slurm.refusal(asked) is None
    assert slurm.lua.globals().asked == "script"
    assert slurm.refusal(slurm.job("true\n", environment=None)) is None


def test_only_the_head_of_a_script_is_read(slurm):
    much = "# words\n" * 3_000
    assert slurm.refusal(slurm.job(f"{much}#PENSTOCK malleable=8:4\n")) is None
    assert "above" in (slurm.refusal(slurm.job(f"#PENSTOCK malleable=8:4\n{much}")) or "")
    cut = "#" * (16384 - len("\n#PENSTOCK malleable=2:8")) + "\n#PENSTOCK malleable=2:8"
    assert slurm.refusal(slurm.job(cut + ":4\n")) is None and not slurm.told


@pytest.mark.parametrize("broken", ["nil", "{script = 1}", "setmetatable({}, {__index = function() error({}) end})"])
def test_its_own_errors_let_jobs_through(slurm, broken):
    slurm.logged.clear()
    assert slurm.module.accepts_job(slurm.lua.eval(broken)) is True
    (line,) = slurm.logged
    assert line.startswith("penstock.lua: ") and line.endswith("goes through unchanged")
    assert not slurm.told


@pytest.mark.parametrize("version", VERSIONS)
def test_even_without_a_way_to_say_so(version):
    state = Slurm(version)
    state.lua.execute("slurm = nil")
    assert state.module.accepts_job(None) is True
    assert state.module.accepts_command(None) is True
    assert state.module.accepts_job(state.job("#PENSTOCK malleable=8:4\n")) is False


@pytest.mark.parametrize(
    ("kind", "export", "sizes", "in_job", "refused"),
    [
        ("salloc", "invalid-context", "8:4", False, True),
        ("salloc", "invalid-context", "2:8", False, False),
        ("salloc", "invalid-context", "", False, False),
        ("srun", None, "8:4", False, True),
        ("srun", None, "8:4", True, False),
        ("sbatch", None, "8:4", True, True),
        ("sbatch", "NONE", "8:4", False, False),
        ("sbatch", "HOME,DMR_SIZES", "8:4", False, True),
        ("srun", "ALL,X=1", "8:4", False, True),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_commands(version, kind, export, sizes, in_job, refused):
    state = Slurm(version)
    variables = {"DMR_SIZES": sizes or None, "SLURM_JOB_ID": "7" if in_job else None}
    state.lua.globals().os.getenv = variables.get
    assert state.module.accepts_command(state.table({"type": kind, "export": export})) is not refused
    expected = "penstock: DMR_SIZES: malleable: the minimum 8 is above the maximum 4"
    assert state.logged == ([expected] if refused else []) and not state.told


@pytest.mark.parametrize("name", ["job_submit.lua", "cli_filter.lua"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_two_lines(version, name, tmp_path):
    text = (FOLDER / name).read_text()
    lines = [line for line in text.splitlines() if "penstock" in line and not line.startswith("--")]
    page = (FOLDER.parents[1] / "docs" / "slurm-plugins.md").read_text()
    assert len(lines) == 2 and all(line.strip() in page for line in lines)
    for place, refused in ((FOLDER / "penstock.lua", True), (tmp_path / "missing.lua", False)):
        state = Slurm(version)
        variables = {"DMR_SIZES": "8:4"}
        state.lua.globals().os.getenv = variables.get
        assert state.lua.execute(text.replace("/etc/slurm/penstock.lua", os.fspath(place))) == 0
        job = state.job("#!/bin/sh\n", {"DMR_SIZES": "8:4"})
        if name == "job_submit.lua":
            code = state.lua.globals().slurm_job_submit(job, None, 1000)
            assert state.lua.globals().slurm_job_modify(None, None, None, 1000) == 0
        else:
            code = state.lua.globals().slurm_cli_pre_submit(state.table({"type": "salloc"}), 0)
            assert state.lua.globals().slurm_cli_setup_defaults(None, True) == 0
            assert state.lua.globals().slurm_cli_post_submit(0, 1, 0) == 0
        assert code == (-1 if refused else 0)


def test_it_does_not_look_elsewhere():
    text = (FOLDER / "penstock.lua").read_text().partition("]]")[2]
    for word in ("io.", "os.execute", "os.remove", "popen", "require", "dofile", "slurm.jobs", "slurm.reservations"):
        assert word not in text

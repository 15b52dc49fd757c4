"""What the front programs write and read as JSON is what Python's package would."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fronts.programs.plainjson import dumps, loads

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\udcff", "é", '"\\\n\x7f']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(ANY)
def test_it_is_written_and_read_as_by_the_package(value):
    text = dumps(value)
    assert text == json.dumps(value)
    for form in (text, json.dumps(value, indent=2, ensure_ascii=False), f" \n{text}\t\r\n"):
        assert repr(loads(form)) == repr(json.loads(form))


@given(st.text(alphabet='[]{}",:01-.eE tfn\n\x00', max_size=12))
def test_what_is_no_json_is_refused_as_by_the_package(text):
    try:
        found = repr(json.loads(text))
    except ValueError as wrong:
        with pytest.raises(ValueError) as error:
            loads(text)
        assert str(error.value) == str(wrong)
    else:
        assert repr(loads(text)) == found


def test_where_python_has_no_such_functions_the_package_does_it(monkeypatch):
    usual = builtins.__import__

    def without(name, *rest):
        if name == "_json":
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert loads(dumps({"a": [1, None, "é"]})) == {"a": [1, None, "é"]}


def test_a_front_program_loads_neither_the_package_nor_what_it_loads():
    asks = """import sys
from penstock.fronts.programs import front, relay, sbatch
from penstock.fronts.programs.plainjson import dumps, loads
loads(dumps({"op": "answer", "words": ["-u", "bob"], "environ": {}, "at": 1.5}))
print(*sorted({"json", "re", "enum", "signal", "socket", "subprocess"} & sys.modules.keys()))"""
    there = [run(asks), run("import sys; print(*sys.modules)")]
    assert there[0] <= there[1]  # a .pth file of the site may load some


def run(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())

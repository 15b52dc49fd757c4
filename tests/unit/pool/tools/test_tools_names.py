"""The names under which programs import what pools have for other tools."""

from __future__ import annotations

import ast

import pytest

from places import PROJECT


def said(path: str) -> tuple[set[str], str]:
    """What a module says that it has, and its text."""
    text = (PROJECT / path).read_text()
    named = next(
        node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    return set(ast.literal_eval(named)), text


@pytest.mark.parametrize("tool", ["dask", "joblib", "parsl"])
def test_all_of_it_has_a_name_in_the_core(tool):
    theirs, _ = said(f"plugins/pool/penstock_pool/tools/{tool}.py")
    names, text = said(f"agent/penstock/tools/{tool}.py")
    assert names == theirs and f"from penstock_pool.tools.{tool} import {', '.join(sorted(theirs))}\n" in text

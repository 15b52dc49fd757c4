"""`penstock submit --help` has a line of each strategy: of Penstock's own without loading them."""

from __future__ import annotations

import pytest

from penstock.core.extensions import STRATEGIES
from penstock.workflow.strategies import registry
from penstock.workflow.strategies.registry import known_strategies, strategy_line, strategy_named


def test_it_is_the_first_line_of_its_docstring():
    assert list(registry._LINES) == list(STRATEGIES.own)
    for name in known_strategies():
        assert strategy_line(name) == (strategy_named(name).__doc__ or "").strip().splitlines()[0]


def test_one_of_an_extension_says_it_itself(monkeypatch):
    class Other:
        """does it in another way

        And more."""

    monkeypatch.setattr(registry, "strategy_named", lambda name: Other())
    assert strategy_line("other") == "does it in another way"
    Other.__doc__ = None
    assert strategy_line("other") == ""


def test_a_strategy_that_nobody_knows_has_none():
    with pytest.raises(Exception, match="no strategy 'nosuch' is installed"):
        strategy_line("nosuch")

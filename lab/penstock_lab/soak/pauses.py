"""Pauses and allow-lists that come and go in the real soak, and what was to be left alone when because of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.errors import NotFound, PenstockError
from penstock.values.allow import FEATURES
from penstock_lab.soak.bounds import LeftAloneSpan
from penstock_lab.soak.site import BOB, OPERATOR, OWNER, Site

__all__ = ["SoakPauses"]

_RULES: Final[tuple[list[dict[str, Any]], ...]] = (
    [],
    [{"features": ["workflows", "slots"]}],
    [{"features": ["malleable", "select"]}],
    [{"features": ["workflows", "malleable", "select"]}],
    [{"partitions": ["other"]}],
)
_NEVER: Final = float("inf")


class SoakPauses:
    """`all` is what was to be left alone so far. An act in the agent's journal is of the book "agent", one of a user's
    commands of the book of that user."""

    def __init__(self, place: Site, draw: random.Random, counts: Counter[str], event: Callable[[str], None]) -> None:
        self._site = place
        self._draw = draw
        self._counts = counts
        self._event = event
        self._over: list[LeftAloneSpan] = []
        self._pauses: dict[tuple[object, ...], LeftAloneSpan] = {}
        self._allow: list[LeftAloneSpan] = []

    @property
    def all(self) -> list[LeftAloneSpan]:
        """With those that still hold."""
        return [*self._over, *self._pauses.values(), *self._allow]

    @property
    def on(self) -> bool:
        """Whether anything is to be left alone now."""
        return bool(self._pauses or self._allow)

    def pause(self) -> bool:
        """Of the agent, by root: all, a feature, a user's, or what is in a partition. Whether it was answered."""
        draw = self._draw
        feature = draw.choice((None, *FEATURES, *FEATURES))
        uid = draw.choice((None, None, self._site.cluster.user(OWNER).uid))
        partition = draw.choice((None, None, "batch"))
        scope = (feature, uid, partition)
        if scope in self._pauses:
            return True
        if self._site.ask("pause", feature=feature, uid=uid, partition=partition, why="soak") is None:
            self._event("a pause was not answered")
            # It may hold all the same, and is lifted with the others; nothing is expected of it.
            self._pauses[scope] = LeftAloneSpan("agent", (), _NEVER, _NEVER)
            return False
        self._counts["pauses"] += 1
        self._event(f"paused: {scope}")
        features = FEATURES if feature is None else (feature,)
        self._pauses[scope] = LeftAloneSpan("agent", features, time.time(), _NEVER, f"pause {scope}")
        # A user's commands ask the agent, or read its file.
        own = LeftAloneSpan(OWNER, features, time.time(), _NEVER, f"pause {scope}")
        self._pauses[(*scope, OWNER)] = own
        return True

    def resume(self) -> bool:
        """Lift all pauses; whether the agent has said that none is left."""
        if not self._pauses:
            return True
        for scope, span in self._pauses.items():
            self._pauses[scope] = replace(span, end=min(span.end, time.time()))
        try:
            self._site.request("resume", feature=None, uid=None, partition=None)
        except NotFound:
            pass  # those that were not answered never held, or the last try lifted them and its answer was lost
        except PenstockError:
            return False
        self._event("pauses lifted")
        self._over += self._pauses.values()
        self._pauses.clear()
        return True

    def allow(self, rules: list[dict[str, Any]] | None = None) -> None:
        """Another allow-list for everybody; the agent is killed, and finds it when it lives again. None: any."""
        rules = self._draw.choice(_RULES) if rules is None else rules
        self._change(rules)
        self._counts["allow-lists"] += 1
        self._event(f"limits.allow: {rules}")
        allowed = {name for rule in rules for name in rule.get("features", () if "partitions" in rule else FEATURES)}
        features = [name for name in FEATURES if name not in allowed]
        self._allow = [
            LeftAloneSpan(book, features, time.time(), _NEVER, f"allow {rules}")
            for book in ("agent", OWNER, BOB, OPERATOR)
        ]

    def allow_all(self) -> None:
        """All is allowed again."""
        if self._allow:
            self._change(None)
            self._event("limits.allow: all")

    def _change(self, rules: list[dict[str, Any]] | None) -> None:
        if self._site.running:
            self._site.kill()
        self._over += [replace(span, end=time.time()) for span in self._allow]
        self._allow = []
        self._site.allow(rules)

"""The app of a portal (WSGI): a page of expected waits, and the same as JSON for forms.

Every answer is made from the agent's last look. It reads nothing but the address of a request, and changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from penstock_portals.asking import AgentRefusal, AgentSilent, ask, expect
from penstock_portals.markup import (
    STYLE_HASH,
    change_text,
    document,
    form_html,
    hours_html,
    own_html,
    reliable_text,
    table_html,
)
from penstock_portals.query import BadQuery, job_of, pairs_of
from penstock_portals.words import age_text, limit_text, wait_text

__all__ = ["application_at"]

StartResponse = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[Mapping[str, Any], StartResponse], Iterable[bytes]]

_SIZES = 4
_LIMITS = (3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
_SHOWN = 3
"""Partitions on one page: more would take longer than a page may."""
_LISTED = 30
"""Partitions of which a widget is told."""
_HEADERS = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self'; base-uri 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]


def application_at(path: str) -> Application:
    """The WSGI application that asks the agent at this socket."""

    def application(environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        status, kind, text = _answer(path, environ)
        body = text.encode()
        headers = [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))), *_HEADERS]
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        start_response(status, headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    return application


def _answer(path: str, environ: Mapping[str, Any]) -> tuple[str, str, str]:
    """Status, kind of content, and text."""
    if environ.get("REQUEST_METHOD", "GET") not in ("GET", "HEAD"):
        return "405 Method Not Allowed", "text/plain", "Only GET is answered here.\n"
    place = str(environ.get("PATH_INFO", "")) or "/"
    answers = {"/": _page, "/api/partitions": _partitions, "/api/waits": _waits}
    if place not in answers:
        return "404 Not Found", "text/plain", f"There are: {', '.join(answers)}\n"
    is_page = place == "/"
    wrong = ""
    try:
        return "200 OK", *answers[place](path, pairs_of(str(environ.get("QUERY_STRING", ""))))
    except BadQuery as e:
        status, wrong = "400 Bad Request", str(e)
    except AgentRefusal as e:
        status, wrong = "403 Forbidden" if e.kind == "NotPermitted" else "503 Service Unavailable", str(e)
    except AgentSilent as e:
        status, wrong = "503 Service Unavailable", f"Expected waits are not known now: {e}."
    if not is_page:
        return status, "application/json", json.dumps({"error": wrong}) + "\n"
    return (
        status,
        "text/html",
        document(f'<p class="wrong" role="alert">{escape(wrong)}</p><p><a href="?">Back</a></p>'),
    )


# -- for forms and widgets ---------------------------------------------------------------------------------------------


def _waits(path: str, given: Mapping[str, str]) -> tuple[str, str]:
    """One job."""
    told = expect(path, [job_of(given)], sooner=True)
    found = told["jobs"][0]
    if "error" in found:
        raise BadQuery(found["error"])
    answer = {**found, "text": wait_text(found["p50"], found["p95"]), "look": age_text(told), "age": told["age"]}
    answer["sooner"] = [{**one, "text": change_text(one)} for one in found["sooner"]]
    return "application/json", json.dumps(answer) + "\n"


def _partitions(path: str, given: Mapping[str, str]) -> tuple[str, str]:
    """A small job in each partition: a node for an hour, or for the longest time if that is less."""
    if given:
        raise BadQuery("this takes no fields; /api/waits does")
    known = _by_use(expect(path, [])["partitions"])[:_LISTED]
    told = expect(path, [{"partition": p["name"], "nodes": 1, "time_limit": _longest(p, _LIMITS[0])} for p in known])
    rows = [
        {**found, "text": wait_text(found["p50"], found["p95"]), "limit": limit_text(found["time_limit"])}
        for found in told["jobs"]
        if "error" not in found
    ]
    return "application/json", json.dumps({"look": age_text(told), "age": told["age"], "partitions": rows}) + "\n"


# -- the page ----------------------------------------------------------------------------------------------------------


def _page(path: str, given: Mapping[str, str]) -> tuple[str, str]:
    job = job_of(given) if given else None
    partitions = _by_use(expect(path, [])["partitions"])
    shown = [p for p in partitions if p["name"] == given.get("partition")] or partitions[:_SHOWN]
    grids = [(p, _sizes(p["max_nodes"]), _limits(p)) for p in shown]
    cells = [
        {"partition": p["name"], "nodes": size, "time_limit": limit}
        for p, sizes, limits in grids
        for size in sizes
        for limit in limits
    ]
    told = expect(path, cells)
    look = f"{age_text(told)} {reliable_text(told['reliability'])}"
    parts = [f"<p>{escape(look)}</p>", form_html(given, partitions)]
    if job is not None:
        parts.append(own_html(expect(path, [job], sooner=True)["jobs"][0]))
    answers = iter(told["jobs"])
    for partition, sizes, limits in grids:
        parts.append(table_html(partition["name"], sizes, limits, [next(answers) for _ in sizes for _ in limits]))
    rest = [p for p in partitions if p not in shown]
    if rest:
        parts.append("<p>Choose a partition above to see one of the others.</p>")
    offset = time.localtime().tm_gmtoff
    parts.append(hours_html(ask(path, {"op": "hours", "offset": offset})["hours"]))
    return "text/html", document("\n".join(parts))


def _by_use(partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that start jobs, the default one first."""
    usable = (p for p in partitions if p["up"] and p["max_nodes"])
    return sorted(usable, key=lambda p: (not p["default"], p["name"]))


def _longest(partition: Mapping[str, Any], limit: float) -> float:
    longest = partition["max_time"]
    return limit if longest is None else min(limit, float(longest))


def _sizes(most: int) -> list[int]:
    """Four sizes at most, by the same factor apart: 1, 2, 4, 8 or 1, 8, 64, 512."""
    factor = 2
    while factor ** (_SIZES - 1) * factor <= most:
        factor *= 2
    return [factor**power for power in range(_SIZES) if factor**power <= most]


def _limits(partition: Mapping[str, Any]) -> list[float]:
    return sorted({_longest(partition, limit) for limit in _LIMITS})

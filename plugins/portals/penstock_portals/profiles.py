"""Profiles that a hub offers: what each asks of Slurm, how long it would wait, and what was chosen. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from penstock_portals.words import LIMIT_FORMS, age_text, duration, limit_seconds, megabytes, wait_text

__all__ = ["WISHED", "checked", "chosen", "form_html", "pending_text", "request_of", "wish_of"]

WISHED = ("gres", "memory", "nprocs", "partition", "queue", "runtime")
"""What of a request to Slurm its wait depends on."""

Profile = Mapping[str, str]

_OWN = ("name", "title")


def checked(profiles: Sequence[Mapping[str, Any]], requests: Collection[str]) -> list[dict[str, str]]:
    """The profiles as texts. ValueError, which says what would be right, where one is none: each has a `name` of its
    own, may have a `title`, and of `requests` (what the spawner asks of Slurm) what it wants."""
    found: list[dict[str, str]] = []
    for number, given in enumerate(profiles, start=1):
        profile = {str(key): str(value) for key, value in given.items()}
        where = f"profile {profile.get('name') or number}"
        if not profile.get("name") or any(profile["name"] == other["name"] for other in found):
            raise ValueError(f"{where}: must have a name that no other profile has")
        unknown = sorted(profile.keys() - {*_OWN, *requests})
        if unknown:
            known = ", ".join([*_OWN, *sorted(requests)])
            raise ValueError(f"{where}: there is no {unknown[0]!r} (there are: {known})")
        if any("\n" in value for value in profile.values()):
            raise ValueError(f"{where}: its texts must be on one line each")
        if profile.get("runtime") and limit_seconds(profile["runtime"]) is None:
            raise ValueError(f"{where}: runtime must be {LIMIT_FORMS}")
        found.append(profile)
    return found


def request_of(profile: Profile) -> dict[str, str]:
    """What it asks of Slurm, by the spawner's names; its time limit as every sbatch takes it."""
    found = {key: value for key, value in profile.items() if key not in _OWN}
    seconds = limit_seconds(found.get("runtime", ""))
    if seconds is not None:
        whole = round(seconds)
        found["runtime"] = f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return found


def wish_of(request: Mapping[str, str]) -> dict[str, Any]:
    """The job of a server, as the agent takes it, of what the spawner asks of Slurm."""
    wish: dict[str, Any] = {}
    partition = request.get("partition") or request.get("queue")
    if partition:
        wish["partition"] = partition
    if request.get("gres"):
        wish["gres"] = request["gres"]
    limit, memory = limit_seconds(request.get("runtime", "")), megabytes(request.get("memory", ""))
    if limit is not None:
        wish["time_limit"] = limit
    if memory is not None:
        wish["memory"] = memory
    cpus = request.get("nprocs", "")
    if cpus.isascii() and cpus.isdigit() and 0 < int(cpus) < 10_000:
        wish["cpus"] = int(cpus)
    return wish


def chosen(profiles: Sequence[Profile], options: Mapping[str, Any]) -> Profile:
    """The profile of these options of a user; the first where none is named. ValueError where there is none such, or
    more is said: whoever speaks to the hub's API may send anything."""
    more = sorted(str(key) for key in options if key != "profile")
    if more:
        raise ValueError(f"{more[0][:40]!r} cannot be chosen, only `profile` can")
    name = options.get("profile", profiles[0]["name"])
    for profile in profiles:
        if profile["name"] == name:
            return profile
    raise ValueError(f"profile: must be one of {', '.join(p['name'] for p in profiles)}")


def form_html(profiles: Sequence[Profile], told: Mapping[str, Any] | None, patience: float) -> str:
    """Radio buttons, a line for each profile. `told` is what the agent says of their jobs, None: it says nothing; the
    hub waits `patience` seconds for a server."""
    waits = [_said(found, patience) for found in told["jobs"]] if told else []
    waits = waits if len(waits) == len(profiles) else [""] * len(profiles)  # no profile is lost by an odd answer
    lines = []
    for number, (profile, wait) in enumerate(zip(profiles, waits)):  # noqa: B905 (Python 3.9)
        name, title = escape(profile["name"]), escape(profile.get("title") or profile["name"])
        said = f' <span class="text-muted" id="penstock-wait-{number}">{escape(wait)}</span>' if wait else ""
        mark = f' aria-describedby="penstock-wait-{number}"' if wait else ""
        first = " checked" if number == 0 else ""
        lines.append(
            f'<div><label><input type="radio" name="profile" value="{name}"{first}{mark}> {title}</label>{said}</div>'
        )
    look = f"<p><small>{escape(age_text(told))}</small></p>" if told else ""
    return f"<fieldset><legend>What your server gets</legend>{''.join(lines)}</fieldset>{look}"


def _said(found: Mapping[str, Any], patience: float) -> str:
    if "error" in found:
        return "cannot start as it is configured"
    text = f"expected wait: {wait_text(found['p50'], found['p95'])}"
    # Else who chooses it waits for nothing.
    gives_up = found["p50"] is not None and found["p50"] > patience
    return f"{text}; the hub gives up after {duration(patience)}" if gives_up else text


def pending_text(waited: float, expected: Mapping[str, Any] | None, turn: Mapping[str, Any] | None) -> str:
    """What to say of a server whose job has waited so long (s), by what was `expected` of it and its `turn`."""
    parts = [f"In the queue for {duration(waited)}." if waited >= 60 else "In the queue."]
    if turn is not None and turn.get("place"):
        parts.append(f"Place {turn['place']} of {turn['of']} in partition {turn['partition']}.")
    if expected is not None and expected.get("p50") is not None:
        if waited > expected["p95"]:
            parts.append("It waits longer than 19 of 20 such jobs were expected to.")
        else:
            parts.append(f"Expected when it was submitted: {wait_text(expected['p50'], expected['p95'])}.")
    return " ".join(parts)

"""What sacct says of a pool's jobs: those that it chooses, by their times and states as Slurm's accounting does, and by
what they are. How they are shown is said in `penstock_fronts.sacct`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.slurm.moments import parse_moment
from penstock.slurm.parse import ParseError
from penstock.slurm.states import LONG_STATES, SHORT_STATES
from penstock_fronts import sacct
from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import CommandAnswer, Option, Through
from penstock_pool.jobs.amounts import UNITS
from penstock_pool.jobs.nodes import nodes_of
from penstock_pool.jobs.rows import JobTimes

__all__ = ["PoolSacct", "answer", "read"]

_STEP: Final = re.compile(r"([1-9][0-9]{9,10}(?:_[0-9]+)?)\.[A-Za-z0-9]+", re.ASCII)
_ASKS_FOR_HELP: Final = frozenset(["h", "e", "U", "V", "helpreason", "helpstate"])
_PASSED_OVER: Final = frozenset(["D", "v"])
_FIELDS: Final = {
    "A": ("Account",), "g": ("Group", "GID"), "name": ("JobName",), "q": ("QOS",), "r": ("Partition",),
    "u": ("User", "UID"), "W": ("WCKey",),
}  # fmt: skip
_UNACCOUNTED: Final = frozenset(["COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT"])
_LONG: Final = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,"
    "tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,"
    "tresusageouttot"
)


@dataclass(frozen=True, slots=True)
class PoolSacct:
    """What is asked for. `ask` says what is shown, `ids` of which jobs or tasks of arrays (None: of all), and `steps`
    of which steps alone. `start` and `end` in seconds since 1970. None as a filter: any. `equal`: for fields of a job
    the values that one of them must have (in small letters). `unit`: that of memory, as `amount` says. `nothing`: it is
    about no job of a pool."""

    ask: sacct.SacctAsk
    ids: Sequence[tuple[int, int | None]] | None
    steps: frozenset[str]
    start: float
    end: float
    states: frozenset[str] | None
    nodes: frozenset[str] | None
    equal: Mapping[tuple[str, ...], frozenset[str]]
    unit: str | None
    nothing: bool

    def keeps(self, times: JobTimes, row: Mapping[str, str]) -> bool:
        """Whether a job is one that is asked for, by its times and its row."""
        if self.nothing or (self.nodes is not None and row["NodeList"] not in self.nodes):
            return False
        if any(wanted.isdisjoint(row[name].lower() for name in names) for names, wanted in self.equal.items()):
            return False
        if self.states is not None:
            return any(self._was(state, times) for state in self.states)
        lives = times.ended is None or times.ended >= self.start
        if self.ids is not None:
            return lives and times.submitted <= self.end
        return lives and times.eligible is not None and times.eligible < self.end

    def _was(self, state: str, times: JobTimes) -> bool:
        """Whether accounting says that it was in this state in the span."""
        eligible, began, ended = times.eligible, times.began, times.ended
        if state == "PENDING":
            waited = times.state == "PENDING" if began is None else self.start < began
            return eligible is not None and waited and eligible < self.end
        if state == "RUNNING":
            runs = times.state in ("RUNNING", "COMPLETING") if ended is None else self.start < ended
            return began is not None and runs and began < self.end
        return times.state == state and ended is not None and self.start <= ended <= self.end


@dataclass(slots=True)
class _Said:
    """What the options say, before defaults."""

    start: float = 0.0
    end: float = 0.0
    states: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    equal: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    unit: str | None = None
    exact: bool = False
    long: bool = False
    nothing: bool = False
    others: list[Option] = field(default_factory=list)


def read(words: Sequence[str], asker: Asker, site: ShimSite, now: float) -> PoolSacct:
    """What the command asks for; `now` in seconds since 1970. Raises `Through`."""
    steps = frozenset(match[0] for word in words for match in _STEP.finditer(word))
    said = _Said()
    # Of a step, too, the job has to be found first.
    for option in sacct.options_of([_STEP.sub(r"\1", word) for word in words]):
        _take(said, option.name, option.value, site, now)
    ask = sacct.asked(said.others + ([Option("o", _LONG)] if said.long else []), asker, site)
    if not asker.same_zone and (said.start or said.end):
        raise Through("times in another zone, or in a format of the caller's")
    start, end = said.start, said.end
    if said.states:
        start = start or (now if ask.ids is None else 0.0)
        end = end or start
    elif ask.ids is None:
        start = start or parse_moment("today", now, past=True)
    return PoolSacct(
        replace(ask, ids=None, bare=bool(steps), widths=sacct.WIDTHS),
        None if ask.ids is None else [_name(one) for one in ask.ids],
        steps,
        start,
        end or now,
        frozenset(said.states) or None,
        frozenset(said.nodes) or None,
        {names: frozenset(wanted) for names, wanted in said.equal.items()},
        said.unit if said.unit is not None else "" if said.exact else None,
        said.nothing,
    )


def _name(text: str) -> tuple[int, int | None]:
    job, _, task = text.partition("_")
    return int(job), int(task) if task else None


def _take(said: _Said, name: str, value: str | None, site: ShimSite, now: float) -> None:
    parts = [part for part in (value or "").split(",") if part]
    if name in _FIELDS:
        said.equal.setdefault(_FIELDS[name], set()).update(part.lower() for part in parts)
        if not parts or (name == "u" and "-1" in parts):
            said.equal.pop(_FIELDS[name])
        return
    match name:
        case "S":
            said.start = _time(value or "", now)
        case "E":
            said.end = _time(value or "", now)
        case "s":
            said.states |= {_state(part) for part in parts}
        case "N":
            said.nodes.update(nodes_of(value or ""))
        case "a":
            said.equal.pop(_FIELDS["u"], None)
        case "M":
            said.nothing = site.cluster not in ("", *parts) and "all" not in parts
        case "units":
            said.unit = (value or " ")[0].upper()
            if said.unit not in UNITS:
                raise Through(f"Invalid unit type '{value}'")
        case "noconvert":
            said.exact = True
        case "l":
            said.long = True
        case _ if name in _ASKS_FOR_HELP:
            said.nothing = True
            said.others.append(Option("n"))
        case _ if name not in _PASSED_OVER:
            said.others.append(Option(name, value))


def _time(text: str, now: float) -> float:
    try:
        return parse_moment(text, now, past=True)
    except ParseError:
        raise Through(f"Invalid time specification: {text[:40]}") from None


def _state(part: str) -> str:
    word = part.upper()
    state = LONG_STATES.get(word, word)
    if state not in SHORT_STATES or state in _UNACCOUNTED:
        raise Through(f"job state {part[:40]} is not supported / accounted")
    return state


def answer(asked: PoolSacct, look: Table, asker: Asker, *, beside: bool) -> CommandAnswer:
    """What sacct prints of a look that has the jobs which are asked for. `beside`: what Slurm says stands before it.
    Raises `Through`."""
    rows = tuple(row for row in look.rows if not asked.steps or row["JobID"] in asked.steps)
    ask = replace(asked.ask, header=asked.ask.header and not beside)
    # All that the look has was asked for, whenever it was.
    return sacct.answer(ask, replace(look, rows=rows), replace(asker, midnight=""))

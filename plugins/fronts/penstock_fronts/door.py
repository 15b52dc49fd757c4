"""What front programs ask at the agent's Unix socket: `answer` says what a status command would print, or that the real
one has to run; `touched` says that jobs were changed. Whatever is not sure goes through."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.parts import Operation
from penstock.errors import PenstockError, UserError
from penstock.slurm.look_cache import LookCache
from penstock.slurm.raw_looks import RawLooks, RawText
from penstock.values.lines import split_lines
from penstock_fronts import sacct, scontrol, squeue
from penstock_fronts.rows import Table, Unreadable, parse_table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.squeue_format import LETTERS
from penstock_fronts.words import CommandAnswer, Through

__all__ = ["PROGRAMS", "ShimDoor", "site_of"]

PROGRAMS: Final = ("squeue", "sacct", "scontrol")
"""Those that are answered for."""
_MOST_WORDS: Final = 2000
_MOST_LETTERS: Final = 200_000
_FACTS_KEPT: Final = 60.0
_CLUSTERS_KEPT: Final = 600.0
_MOST_NUMBERS: Final = 1000
_ASKED_KEPT: Final = 600.0
_FRESH: Final = 1.0
_PATIENCE: Final = 10.0  # seconds until the real command runs in place of a look that does not come
_LONG: Final = 500_000  # characters
_LONGEST_SPAN: Final = 8 * 86400.0
_STATES: Final = "itT"
_ISO: Final = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True, slots=True)
class _Content:
    """What a look has: a table, or (scontrol) a text, with the queue just before it."""

    table: Table | None = None
    text: str = ""


class ShimDoor:
    """Answers for `looks`. `shared`: the agent serves all users, not only its own. `environment` has the variables
    that the looks are taken with, which the caller's have to agree with."""

    def __init__(
        self,
        looks: RawLooks,
        age: float,
        *,
        shared: bool = False,
        environment: Mapping[str, str] = os.environ,
        cache: LookCache[_Content] | None = None,
    ) -> None:
        self._looks = looks
        self._shared = shared
        self._environment = environment
        self.cache: LookCache[_Content] = cache or LookCache(age)
        self._facts: LookCache[ShimSite] = LookCache(_FACTS_KEPT)
        self._clusters: LookCache[frozenset[str]] = LookCache(_CLUSTERS_KEPT)
        self._asked: dict[int, float] = {}  # jobs that sacct was asked for, and when last
        self._spans: dict[int, tuple[str, float]] = {}  # by user: the earliest start that was asked for, and when
        self.answers: Counter[tuple[str, str]] = Counter()  # by program, and served or through

    def operations(self) -> dict[str, Operation]:
        """The operations by name."""
        return {"answer": self.answer, "touched": self.touched}

    async def touched(self, uid: int, request: Mapping[str, Any]) -> object:
        """Jobs were submitted, changed or cancelled by the caller; 0: it is not known which."""
        jobs = request.get("jobs")
        if not isinstance(jobs, list) or len(jobs) > _MOST_WORDS or not all(type(job) is int for job in jobs):
            raise UserError("jobs: must be a list of the numbers of jobs")
        self.touch(jobs, uid)
        return {"jobs": len(jobs)}

    def touch(self, jobs: Collection[int], uid: int) -> None:
        """The agent, or a front program, has done something to jobs of this user."""
        if self._shared or uid == os.geteuid():
            self.cache.touch(jobs, uid)

    async def answer(self, uid: int, request: Mapping[str, Any]) -> object:
        """`{"out", "err", "code"}`, or `{"through": why}`."""
        program, words, environ = _request(request)
        try:
            async with asyncio.timeout(_PATIENCE):  # the look goes on, for whoever comes next
                said = await self._answer(uid, program, words, environ)
        except Through as why:
            self.answers[program, "through"] += 1
            return {"through": str(why)}
        except TimeoutError:
            self.answers[program, "through"] += 1
            return {"through": "no look yet"}
        except (PenstockError, Unreadable) as e:
            self.answers[program, "through"] += 1
            return {"through": f"no look: {e}"}
        self.answers[program, "served"] += 1
        return {"out": said.out, "err": said.err, "code": said.code}

    async def _answer(self, uid: int, program: str, words: Sequence[str], environ: Mapping[str, str]) -> CommandAnswer:
        if not self._shared and uid != os.geteuid():
            raise Through("this agent serves its own user only")
        if environ.get("SLURM_CONF") != self._environment.get("SLURM_CONF"):
            raise Through("another slurm.conf than the agent's")
        site = (await self._facts.get("site", self._site, uid=uid)).content
        if self._shared and site.private:
            raise Through("what is shown depends on who asks (PrivateData)")
        asker = self._asker(uid, environ)
        match program:
            case "squeue":
                return await self._squeue(words, asker, site)
            case "sacct":
                return await self._sacct(words, asker, site)
            case _:
                return await self._scontrol(words, asker, site)

    def _asker(self, uid: int, environ: Mapping[str, str]) -> Asker:
        same = environ.get("TZ") == self._environment.get("TZ")
        same = same and environ.get("SLURM_TIME_FORMAT", "") in ("", "standard")
        now = time.localtime()
        return Asker(uid, environ, same, _uid_of, time.asctime(now), time.strftime("%Y-%m-%dT00:00:00", now))

    # -- programs -----------------------------------------------------------------------------------------------

    async def _squeue(self, words: Sequence[str], asker: Asker, site: ShimSite) -> CommandAnswer:
        asked = squeue.read(words, asker.environ, site)
        everything = asked.everything or not site.hidden
        if not everything and self._shared:
            raise Through("what is shown depends on who asks (hidden partitions)")
        options = (["-a"] if everything else []) + (["-r"] if asked.array else [])
        letters = LETTERS
        if asked.state_alone:  # which newer releases refuse together with -a
            options, letters = ["--only-job-state"], _STATES

        async def take() -> _Content:
            look = await self._looks.squeue(letters, *options)
            return _Content(await _table(look, letters))

        def said(content: _Content) -> CommandAnswer:
            assert content.table is not None
            return squeue.answer(asked, content.table, asker)

        jobs = None if asked.ids is None else [job for job, _ in asked.ids]
        whose = asker.uid if asked.me else None
        return await self._from(("squeue", *options), take, said, self.cache.since(jobs, whose), asker.uid)

    async def _sacct(self, words: Sequence[str], asker: Asker, site: ShimSite) -> CommandAnswer:
        clusters = (await self._clusters.get("clusters", self._looks.clusters, uid=asker.uid)).content
        asked = sacct.read(words, asker, replace(site, alone=set(clusters) == {site.cluster}))
        kind: tuple[object, ...]
        if asked.ids is not None:
            jobs = [int(one.partition("_")[0]) for one in asked.ids]
            numbers, kind = self._numbers(jobs)
            options = ["-j", ",".join(map(str, sorted(numbers)))]
            since = self.cache.since(jobs, None)
        else:
            start = self._span(asker.uid, asked.start or asker.midnight)
            options = ["-u", str(asker.uid), "-S", start, "-E", "now"]
            kind = ("sacct", asker.uid, start)
            since = self.cache.since(None, asker.uid)

        async def take() -> _Content:
            look = await self._looks.sacct(*options)
            return _Content(await _table(look))

        def said(content: _Content) -> CommandAnswer:
            assert content.table is not None
            return sacct.answer(asked, content.table, asker)

        return await self._from(kind, take, said, since, asker.uid)

    def _numbers(self, jobs: Sequence[int]) -> tuple[Collection[int], tuple[object, ...]]:
        """All that was asked for lately: one look has them all, as long as none comes that it lacks."""
        now = self.cache.clock()
        new = [job for job in jobs if job not in self._asked]
        self._asked.update(dict.fromkeys(jobs, now))
        if new:
            kept = sorted(self._asked, key=self._asked.__getitem__)[-_MOST_NUMBERS:]
            self._asked = {job: self._asked[job] for job in kept if self._asked[job] > now - _ASKED_KEPT}
        if any(job not in self._asked for job in jobs):
            raise Through("too many jobs")
        return self._asked, ("sacct",)

    def _span(self, uid: int, start: str) -> str:
        """The start of a look that has all that this user asks for."""
        now, wall = self.cache.clock(), time.time()
        if start > time.strftime(_ISO, time.localtime(wall)):
            raise Through("a span that has not begun")
        if start < time.strftime(_ISO, time.localtime(wall - _LONGEST_SPAN)):
            raise Through("a span longer than looks have")
        known, at = self._spans.get(uid, (start, now))
        if start <= known or at < now - _ASKED_KEPT:
            self._spans[uid] = (start, now)
            return start
        return known

    async def _scontrol(self, words: Sequence[str], asker: Asker, site: ShimSite) -> CommandAnswer:
        asked = scontrol.read(words, asker.environ, site)
        options = ["-o", "show", "job"] if asked.line else ["show", "job"]

        async def take() -> _Content:
            queue = await self._looks.squeue(LETTERS, "-a", "-r")
            look = await self._looks.scontrol(*options)
            return _Content(await _table(queue, LETTERS), look.text)

        def said(content: _Content) -> CommandAnswer:
            assert content.table is not None
            return scontrol.answer(asked, content.text, content.table, asker)

        since = self.cache.since(None if asked.job is None else [asked.job], None)
        return await self._from(("scontrol", *options), take, said, since, asker.uid)

    async def _from(
        self,
        kind: tuple[object, ...],
        take: Callable[[], Awaitable[_Content]],
        said: Callable[[_Content], CommandAnswer],
        since: float,
        uid: int,
    ) -> CommandAnswer:
        """The answer from a look; where that lacks the jobs that were asked for, from a newer one."""
        look = await self.cache.get(kind, take, since, uid)
        try:
            return said(look.content)
        except Through as why:
            now = self.cache.clock()
            if not why.ids or now - look.begun < _FRESH:
                raise
            return said((await self.cache.get(kind, take, now, uid)).content)

    # -- the site -----------------------------------------------------------------------------------------------

    async def _site(self) -> ShimSite:
        config = (await self._looks.scontrol("show", "config")).text
        partitions = (await self._looks.scontrol("-a", "-o", "show", "partition")).text
        return site_of(config, partitions)


async def _table(look: RawText, names: str | None = None) -> Table:
    """Its rows; of a long one in a thread, as others want answers meanwhile."""
    if len(look.text) > _LONG:
        return await asyncio.to_thread(parse_table, look.text, look.separator, names)
    return parse_table(look.text, look.separator, names)


def site_of(config: str, partitions: str) -> ShimSite:
    """The site, from `scontrol show config` and `scontrol -a -o show partition`."""
    values = dict(_pair(line) for line in split_lines(config) if " = " in line)
    words = partitions.split()
    return ShimSite(
        values.get("ClusterName", ""),
        _release(values.get("SLURM_VERSION", "")),
        private=values.get("PrivateData", "none") != "none",
        hidden="Hidden=YES" in words or any(w.startswith("AllowGroups=") and w != "AllowGroups=ALL" for w in words),
        federated=values.get("FederationParameters", "(null)") != "(null)",
    )


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(" = ")
    return name.strip(), value.strip()


def _release(text: str) -> tuple[int, ...]:
    parts = text.split("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def _request(request: Mapping[str, Any]) -> tuple[str, list[str], dict[str, str]]:
    program, words, environ = request.get("program"), request.get("words"), request.get("environ", {})
    if program not in PROGRAMS:
        raise UserError(f"program: must be one of {', '.join(PROGRAMS)}, not {str(program)[:40]!r}")
    if not isinstance(words, list) or len(words) > _MOST_WORDS or not all(isinstance(word, str) for word in words):
        raise UserError("words: must be a list of the command's words")
    if not isinstance(environ, dict) or not all(isinstance(v, str) for v in [*environ, *environ.values()]):
        raise UserError("environ: must be a mapping of variables")
    if sum(map(len, words)) > _MOST_LETTERS:
        raise UserError("words: too long")
    return program, words, environ


def _uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        pass
    if not name.isascii() or not name.isdigit() or len(name) > 9:
        return None
    try:
        return pwd.getpwuid(int(name)).pw_uid
    except KeyError:
        return None

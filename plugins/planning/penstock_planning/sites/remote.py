"""Sessions with sites: one process each, all asked at once, none waited for longer than its patience."""

from __future__ import annotations

import json
import math
import os
import select
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from penstock.errors import NotNow, UserError
from penstock.values.documents import flat
from penstock.values.lines import split_lines
from penstock_planning.plan.greedy import SlotMarket
from penstock_planning.plan.pricing import Quote
from penstock_planning.plan.session import number_in, set_in
from penstock_planning.plan.sites import Hello, OfferedSite, offset
from penstock_planning.sites.file import SiteEntry

__all__ = ["LineOfSite", "RemoteMarket", "SiteGone", "command_of", "greet", "words_of"]

_LONGEST: Final = 100_000_000  # bytes of one answer
_NOISE: Final = 200  # lines that a login shell may print before the first of the session
_LEAVE: Final = 2.0


class SiteGone(NotNow):
    """A site does not answer, or not in a form that can be read; `site` is its name, `why` the reason."""

    def __init__(self, site: str, why: str) -> None:
        super().__init__(f"site {site}: {why}")
        self.site, self.why = site, why


def words_of(site: SiteEntry, arguments: Sequence[str]) -> list[str]:
    """The words that ask a site: penstock with these arguments, as it is called there."""
    if site.here and site.command is None:
        return [sys.executable, "-m", "penstock", *arguments]
    return [site.command or "penstock", *arguments]


def command_of(site: SiteEntry, words: Sequence[str]) -> list[str]:
    """The command that runs `words` at a site. ssh hands one text to a shell there, so it is quoted."""
    if site.host is not None:
        return ["ssh", "-oBatchMode=yes", site.host, shlex.join(words)]
    return [*site.prefix, *words]


class LineOfSite:
    """A process that answers JSON lines. Everything that goes wrong is SiteGone, with what the process said last."""

    def __init__(self, site: SiteEntry, arguments: Sequence[str], patience: float) -> None:
        self.site, self._patience = site, patience
        self._rest = b""
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.asked = time.time()
        try:
            self._process = subprocess.Popen(
                command_of(site, words_of(site, arguments)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            raise SiteGone(site.name, f"{error.filename or site.name}: {error.strerror}") from None

    def hello(self, until: float) -> tuple[Hello, float]:
        """What the site says first, and when that came; `until` as time.monotonic() counts."""
        for _ in range(_NOISE):
            line = self._line(until)
            if line.lstrip().startswith(b'{"session"'):
                came = time.time()
                try:
                    return Hello.parse(self._json(line)), came
                except UserError as error:
                    raise SiteGone(self.site.name, f"its answer cannot be read: {error}") from None
        raise SiteGone(self.site.name, "what it says is no session of penstock slots")

    def send(self, question: Mapping[str, Any]) -> None:
        """Ask; the answer comes by `receive`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        except OSError:
            raise SiteGone(self.site.name, self._last_words("it hung up")) from None

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest question that has none."""
        found = self._json(self._line(time.monotonic() + self._patience))
        if "error" in found:
            raise SiteGone(self.site.name, f"it refuses: {flat(found['error'])}")
        return found

    def close(self) -> None:
        """End the process and all that it began; it is not used afterwards."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(_LEAVE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        self._said.close()

    def _line(self, until: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise SiteGone(self.site.name, self._last_words(f"no answer in {self._patience:g} s"))
            more = os.read(pipe.fileno(), 1 << 20)
            if not more:
                raise SiteGone(self.site.name, self._last_words("it hung up"))
            self._rest += more
            if len(self._rest) > _LONGEST:
                raise SiteGone(self.site.name, "its answer is too long")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _json(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SiteGone(self.site.name, f"its answer cannot be read: {line[:80]!r}")
        return found

    def _last_words(self, otherwise: str) -> str:
        """The last line of its standard error, where it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5 if otherwise == "it hung up" else 0)
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(self._said.tell() - 2000, 0))
        lines = split_lines(self._said.read().decode(errors="replace").strip())
        return f"{otherwise}: {flat(lines[-1])}" if lines else otherwise


def greet(
    sites: Sequence[SiteEntry], arguments: Sequence[str], patience: float
) -> tuple[list[tuple[LineOfSite, OfferedSite]], dict[str, str]]:
    """Begin a session with every site: those that answered, with what they offer, and why each other one did not."""
    opened: list[LineOfSite] = []
    gone: dict[str, str] = {}
    for site in sites:
        own = ["slots", "--session", *(["--queue", site.queue] if site.queue is not None else [])]
        own += ["-p", site.partition] if site.partition is not None else []
        try:
            opened.append(LineOfSite(site, [*own, *(() if site.queue is not None else arguments)], patience))
        except SiteGone as error:
            gone[site.name] = error.why
    found = []
    until = time.monotonic() + patience
    for line in opened:
        site = line.site
        try:
            hello, came = line.hello(until)
        except SiteGone as error:
            gone[site.name] = error.why
            line.close()
            continue
        ahead = offset(line.asked, came, hello.now) if hello.live else 0.0
        found.append((line, OfferedSite(site.name, hello, ahead, site.speed, site.price)))
    return found, gone


class RemoteMarket(SlotMarket):
    """A site that sells slots over its session; times are on our clock, prices in our units."""

    def __init__(self, line: LineOfSite, offered: OfferedSite) -> None:
        self.name = offered.name
        self._line, self._offered = line, offered
        self._asked: tuple[int, float] = (0, 0.0)

    @property
    def size(self) -> int:
        """See `SlotMarket`."""
        return self._offered.hello.most

    def ask(self, procs: int, duration: float, after: float) -> None:
        """See `SlotMarket`."""
        self._asked = procs, duration
        self._line.send({"quote": {"procs": procs, "duration": duration, "after": after + self._offered.ahead}})

    def answer(self) -> Sequence[Quote]:
        """See `SlotMarket`."""
        said, (procs, duration), site = self._line.receive(), self._asked, self._offered
        try:
            return [
                Quote(
                    number_in(q, "start") - site.ahead,
                    procs,
                    duration,
                    number_in(q, "c", least=0) * site.price,
                    number_in(q, "f", least=0) * site.price if q.get("f") is not None else math.inf,
                    nodes=set_in(q, "nodes"),
                )
                for q in said["quotes"]
            ]
        except (UserError, KeyError, TypeError, AttributeError) as error:
            raise SiteGone(self.name, f"its prices cannot be read: {error}") from None

    def take(self, name: str, quote: Quote) -> None:
        """See `SlotMarket`."""
        slot = {"start": quote.start + self._offered.ahead, "duration": quote.duration, "nodes": f"{quote.nodes:x}"}
        self._line.send({"take": {"name": name, **slot}})
        self._line.receive()

    def forget(self) -> None:
        """See `SlotMarket`."""
        self._line.send({"forget": True})
        self._line.receive()

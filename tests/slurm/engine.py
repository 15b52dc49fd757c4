"""A Docker engine for tests: the one that runs here, else one that is started for them and ends with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock_lab.cluster.rootfs import cached
from places import PROJECT

__all__ = ["Engine", "NoEngineError", "Site", "engine"]

_BASE = "penstock-base:tests"


class NoEngineError(Exception):
    """Why no engine runs here."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One that answers. `environment` leads the client to it."""

    environment: dict[str, str]
    compose: tuple[str, ...]

    def run(self, *words: str, check: bool = True, limit: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command that speaks to it, in the project's folder; what it said is in the error of one that fails."""
        done = subprocess.run(
            words,
            cwd=PROJECT,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 or not check, f"{words} ends with {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def docker(self, *words: str, check: bool = True, limit: float = 120.0) -> str:
        """What `docker` says."""
        return self.run("docker", *words, check=check, limit=limit).stdout.strip()

    def image(self, name: str = "penstock", *options: str) -> None:
        """Build the image, on a base out of Debian's packages: a release that is at hand, else Debian 12.

        Not with PENSTOCK_TEST_IMAGE=kept, for who works on the tests alone: then that of an earlier run is taken.
        """
        if os.environ.get("PENSTOCK_TEST_IMAGE") == "kept" and self.docker("images", "-q", name):
            return
        if not self.docker("images", "-q", _BASE):
            tree = cached("trixie")
            words = [] if tree is None else ["--tree", str(tree.root)]
            self.run(str(PROJECT / "deploy" / "image" / "base.sh"), *words, _BASE, limit=1500)
        # By this machine's own network: an engine's may lead nowhere.
        where = ["--network", "host", "--build-arg", f"BASE={_BASE}", "-f", "deploy/Dockerfile", "-t", name]
        self.docker("build", "-q", *options, *where, ".", limit=1500)


@contextmanager
def engine() -> Iterator[Engine]:
    """Raises `NoEngineError` with the reason where none can be had; only with WITH_ENGINE=1 is one started."""
    if shutil.which("docker") is None:
        raise NoEngineError("no docker (Debian: apt-get install --no-install-recommends docker.io docker-compose)")
    compose = _compose()
    if subprocess.run(["docker", "info"], capture_output=True, timeout=60).returncode == 0:
        yield Engine({}, compose)
        return
    if os.environ.get("WITH_ENGINE") != "1":
        raise NoEngineError("no engine answers here; scripts/test.sh --all installs and starts one")
    if shutil.which("dockerd", path=_PATH) is None:
        raise NoEngineError("no engine answers, and there is no dockerd (Debian: docker.io) to start one")
    if os.geteuid() != 0:
        raise NoEngineError("no engine answers, and only root can start one")
    folder = Path(tempfile.mkdtemp(prefix="pst-engine-", dir="/var/tmp"))
    try:
        with _started(folder) as socket:
            yield Engine({"DOCKER_HOST": f"unix://{socket}"}, compose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _compose() -> tuple[str, ...]:
    """The plug-in, or the program that Debian 12 has in its place."""
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60)
    if asked.returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        raise NoEngineError("no docker compose (Debian: apt-get install --no-install-recommends docker-compose)")
    return ("docker-compose",)


@contextmanager
def _started(folder: Path) -> Iterator[Path]:
    """An engine with everything it has in this folder; its mounts end with it."""
    socket, log = folder / "docker.sock", folder / "log"
    words = ["unshare", "--mount", "--propagation", "slave", "--", "dockerd", "--log-level=warn", "--bridge=none"]
    words += [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    with log.open("w") as output:
        daemon = subprocess.Popen(
            [*words, f"--host=unix://{socket}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"PATH": _PATH},
        )
    try:
        asked = ["docker", "-H", f"unix://{socket}", "info"]
        end = time.monotonic() + 60
        while subprocess.run(asked, capture_output=True, timeout=60).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > end:
                said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
                raise NoEngineError("dockerd does not run here: " + " | ".join(line[-300:] for line in said))
            time.sleep(0.2)
        yield socket
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


class Site:
    """What one of the compose files describes, under a name of its own."""

    def __init__(self, it: Engine, file: str, name: str, environment: dict[str, str] | None = None) -> None:
        self.engine = Engine(it.environment | (environment or {}), it.compose)
        self._words = (*it.compose, "-p", name, "-f", str(PROJECT / "deploy" / file))
        self.name = name

    def compose(self, *words: str, check: bool = True, limit: float = 300.0) -> str:
        """What `docker compose` says."""
        return self.engine.run(*self._words, *words, check=check, limit=limit).stdout.strip()

    def container(self, service: str) -> str:
        """Its id."""
        return self.compose("ps", "-q", service).splitlines()[0]

    def until_healthy(self, services: Sequence[str], limit: float = 180.0) -> None:
        """Until the engine says so of all of them."""
        end = time.monotonic() + limit
        for service in services:
            health = ""
            while health != "healthy":
                assert time.monotonic() < end, f"{service} is {health}\n{self.compose('logs', '--tail=30')}"
                health = self.engine.docker("inspect", "-f", "{{.State.Health.Status}}", self.container(service))
                time.sleep(0.2)

    def inside(self, service: str, user: str, *words: str, limit: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command as this user, at home; it may fail."""
        home = "/root" if user == "root" else f"/home/{user}"
        enter = ["docker", "exec", "-u", user, "-w", home, "-e", f"HOME={home}", self.container(service)]
        return self.engine.run(*enter, *words, check=False, limit=limit)

    def said(self, service: str, user: str, *words: str, limit: float = 120.0) -> str:
        """What a command says, which must not fail."""
        done = self.inside(service, user, *words, limit=limit)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.strip()

    def down(self) -> None:
        """Containers, networks and volumes."""
        self.compose("down", "-v", "--timeout", "60", check=False)

"""An agent as a process on a real cluster, run by one of its ordinary users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster
from waiting import until

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


class SlurmAgent:
    """Agent of the user `who`; its folder is gone after `down`. Settings are sections as in the configuration file."""

    def __init__(self, cluster: Cluster, who: str = "alice", **sections: dict[str, Any]) -> None:
        self.cluster = cluster
        self.who = who
        self.place = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/var/tmp"))
        self.place.chmod(0o755)
        user = cluster.user(who)
        self.folder = self.place / "own"
        self.folder.mkdir()
        os.chown(self.folder, user.uid, user.gid)
        settings: dict[str, dict[str, Any]] = {
            "agent": {"state_dir": str(self.folder / "agent"), "interval": 0.5, "idle_interval": 0.5, "seed": 7},
            "slurm": {"min_interval": 0.4, "requests_per_second": 20, "timeout": 20, "submissions_per_hour": 1000},
            "asa": {"predictor": "asa-default", "alternatives": [1.0, 2.0]},
            "dmr": {"listen": "127.0.0.1:0", "munge_socket": str(cluster.munge_socket)},
        }
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        self.config = self.place / "penstock.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self.environment = {"PENSTOCK_CONFIG": str(self.config), "COLUMNS": "200"}
        self.socket = self.folder / "agent" / "agent.sock"
        self.log = self.place / "agent.log"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> SlurmAgent:
        """Start the agent and wait until it answers."""
        self.launch()
        self.until(self.answers, "the agent")
        return self

    def launch(self) -> None:
        """Start its process."""
        with self.log.open("a") as output:
            self.process = self.cluster.popen_as(
                self.who, [*COMMAND, "agent"], env=self.environment, cwd=self.folder, stdout=output, stderr=output
            )

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        try:
            return bool(ask(self.socket, "ping")["pid"])
        except PenstockError:
            return False

    def said(self) -> str:
        """The end of the agent's log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def until(self, probe: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Poll until `probe` gives something true, and return it."""
        return until(probe, lambda: f"{what}; the agent said: {self.said()}", seconds)

    def run(self, who: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One `penstock` command of a user."""
        return self.cluster.run_as(who, [*COMMAND, *words], env=self.environment, cwd=self.place)

    def write(self, text: str) -> str:
        """A workflow file whose stages run in a folder that the agent's user can write to; its path."""
        file = self.place / "w.yaml"
        file.write_text(f"workdir: {self.folder}\n{text}")
        return str(file)

    def submit(self, text: str, strategy: str) -> int:
        """Hand a workflow to the agent as its own user; the run's number."""
        done = self.run(self.who, "submit", self.write(text), "--strategy", strategy)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.removeprefix("Submitted workflow "))

    def state(self, run: int) -> dict[str, Any]:
        """The run as the agent tells it."""
        (found,) = [w for w in ask(self.socket, "status")["workflows"] if w["id"] == run]
        return dict(found)

    def finish(self, run: int, seconds: float = 90.0) -> dict[str, Any]:
        """Wait for the run's end and return it."""
        final = ("completed", "failed", "cancelled")
        self.until(lambda: self.state(run)["phase"] in final, f"the end of workflow {run}", seconds)
        return self.state(run)

    def accounting(self, since: float) -> list[dict[str, str]]:
        """This user's jobs submitted since then that accounting knows, by their ids, whatever became of them."""
        fields = ["JobID", "JobName", "State", "ExitCode", "Submit", "Start", "End"]
        login = self.cluster.users[self.who]
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        words = ["sacct", "-n", "-P", "-X", "-D", "-u", login, "-S", begin, "-o", ",".join(fields)]
        done = self.cluster.run_as(self.who, words, env={"SLURM_TIME_FORMAT": "%s"}, check=True)
        rows = [dict(zip(fields, line.split("|"), strict=True)) for line in done.stdout.splitlines()]
        return sorted((r for r in rows if int(r["Submit"]) >= int(since)), key=lambda row: int(row["JobID"]))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the agent; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def down(self) -> None:
        """End whatever runs of it and remove its folder."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        shutil.rmtree(self.place, ignore_errors=True)

    def wrap(self, command: str, script: str) -> None:
        """From its next start on the agent finds this bash script first when it runs `command`; $REAL is the real one.

        `once` in the script is true the first time only.
        """
        folder = self.place / "bin"
        folder.mkdir(exist_ok=True)
        mark = self.folder / f"{command}-was-here"
        path = self.cluster.user_env(self.who)["PATH"]
        real = shutil.which(command, path=path)
        file = folder / command
        file.write_text(
            f'#!/bin/bash\nREAL={real}\nonce() {{ [ ! -e {mark} ] && touch {mark}; }}\n{script}\nexec $REAL "$@"\n'
        )
        file.chmod(0o755)
        self.environment["PATH"] = f"{folder}:{path}"


class Desk:
    """A user at the command line, with scripts in a folder of that user's own."""

    def __init__(self, site: SlurmAgent, who: str = "alice") -> None:
        self.site = site
        self.who = who
        self.home = site.cluster.home(who)

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """One command; those of Penstock begin with "penstock"."""
        argv = [*COMMAND, *words[1:]] if words[0] == "penstock" else list(words)
        if stdin is not None:
            argv = ["bash", "-c", 'text=$1; shift; printf %s "$text" | "$@"', "-", stdin, *argv]
        return self.site.cluster.run_as(self.who, argv, env=self.site.environment, cwd=self.home, timeout=60)

    def say(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> str:
        """A script; its path."""
        done = self.run("bash", "-c", 'printf %s "$2" > "$1"', "-", name, text)
        assert done.returncode == 0, done.stderr
        return str(self.home / name)

    def queue(self) -> dict[str, list[str]]:
        """State, reason and dependency of every job of the user, by id."""
        rows = self.say("squeue", "-h", "--me", "-t", "all", "-o", "%i|%T|%r|%E").splitlines()
        return {row.split("|")[0]: row.split("|")[1:] for row in rows}

    def begins(self, *jobs: int | str) -> list[str]:
        """From when on each of these jobs of the user may start, as Slurm writes it."""
        rows = (self.say("scontrol", "-o", "show", "job", str(job)) for job in jobs)
        return [next(w for w in row.split() if w.startswith("EligibleTime=")).partition("=")[2] for row in rows]

    def workflow(self, name: str = "w") -> dict:
        """The workflow as `penstock status --json` tells it."""
        return json.loads(self.say("penstock", "status", name, "--json"))["workflows"][0]

    def phases(self) -> dict[str, str]:
        return {s["name"]: s["phase"] for s in self.workflow()["stages"]}

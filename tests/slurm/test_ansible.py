"""The Ansible role on a booted Debian with a Slurm: from nothing to a service, and the second run changes nothing."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fresh import Machine
from malleable import until
from test_install import free_ports

from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(3600)]

_ROLE = PROJECT / "deploy" / "ansible"


@pytest.fixture
def folder() -> Iterator[Path]:
    """What the machine sees: the package, and an Ansible of its own, which runs in it."""
    with tempfile.TemporaryDirectory(prefix="pst-ansible-", dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        for words in (
            ["/usr/bin/python3", "-m", "venv", str(place / "ansible")],
            [str(place / "ansible/bin/pip"), "-q", "install", "ansible-core"],
            ["bash", str(PROJECT / "deploy" / "build-deb.sh"), str(place / "package")],
        ):
            subprocess.run(words, check=True, timeout=1800, stdin=subprocess.DEVNULL)
        yield place


def test_the_role_installs_once_and_then_changes_nothing(folder: Path) -> None:
    machine = Machine(folder, _ROLE)
    try:
        run(machine, folder)
    finally:
        print(machine.journal("penstock"))
        machine.down()


def run(machine: Machine, folder: Path) -> None:
    machine.start_slurm(free_ports(6))
    port = free_ports(2)
    (package,) = (folder / "package").glob("penstock_*.deb")
    machine.script("apt-get -q update; apt-get -y -q install --no-install-recommends python3 python3-apt", limit=1800)
    config = {
        "agent": {
            "serve": "all",
            "state_dir": "/srv/site/state",
            "socket": "/run/penstock/agent.sock",
            "shared": "yes",
        },
        "dmr": {"listen": f"0.0.0.0:{port}", "hosts": ["login1", "login2"]},
        "limits": {"dry_run": True},
    }
    more = {
        "penstock_package": str(package),
        "penstock_config": config,
        "penstock_shared": "/srv/site",
        "ansible_python_interpreter": "/usr/bin/python3",
    }

    def play(**changes: object) -> dict[str, int]:
        words = ["env", "LC_ALL=C.UTF-8", f"{folder}/ansible/bin/ansible-playbook", "-c", "local", "-i", "localhost,"]
        done = machine.run(*words, "-e", json.dumps({**more, **changes}), f"{_ROLE}/site.yml", limit=1800)
        recap = re.search(r"^localhost\s*: (.*)$", done.stdout, re.MULTILINE)
        assert recap, done.stdout + done.stderr
        told = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap[1])}
        assert not told["failed"] or changes, done.stdout
        return told

    machine.script("mkdir -p /srv/site")
    assert play()["changed"] >= 4
    until("it serves", lambda: machine.show("penstock", "ActiveState", "StatusText") == ["active", "serving"], 120, 0.5)
    assert machine.show("penstock", "UnitFileState") == ["enabled"]
    assert yaml.safe_load(machine.script("cat /etc/penstock/penstock.yaml")) == config
    assert "Operator" in machine.script("sacctmgr -n -P show user penstock format=adminlevel")
    assert "agent.lease" in machine.script("ls /srv/site/state") and "penstock.db" in machine.script(
        "ls /srv/site/state"
    )
    machine.script("penstock status", login="alice")
    (pid,) = machine.show("penstock", "MainPID")
    assert play()["changed"] == 0
    assert machine.show("penstock", "MainPID") == [pid]

    # A wrong configuration never gets its name.
    wrong = {**config, "agent": {**config["agent"], "intervall": 1}}
    assert play(penstock_config=wrong)["failed"] == 1
    assert yaml.safe_load(machine.script("cat /etc/penstock/penstock.yaml")) == config
    assert machine.show("penstock", "MainPID", "ActiveState") == [pid, "active"]

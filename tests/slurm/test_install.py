"""What a stranger does to get Penstock: the Debian package, the guide word by word, and the image."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fresh import Machine
from malleable import until

from guide import GUIDE, blocks
from outside import need_program
from penstock.workflow.commands.runs import shown
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(5400)]

# For what takes a minute or two, downloads included; a busy machine has more.
_LIMIT = 1800.0


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="pst-install-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """The project's own files, as in a fresh clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    place = folder / "source"
    for name in filter(None, listed):
        if not name.startswith("tests/") and (PROJECT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, place / name)
    for one in (place, *place.rglob("*")):
        one.chmod(0o755 if one.is_dir() or one.stat().st_mode & 0o100 else 0o644)
    return place


@pytest.fixture(scope="module")
def packages(folder: Path, source: Path) -> list[Path]:
    """penstock, penstock-lab."""
    words = [str(source / "deploy" / "build-deb.sh"), str(folder / "package")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def package(packages: list[Path]) -> Path:
    return packages[0]


@pytest.fixture
def machine(folder: Path) -> Iterator[Machine]:
    it = Machine(folder)
    try:
        yield it
    finally:
        it.down()


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(21000, 32000, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def files(machine: Machine) -> set[str]:
    """What a package could have left: everything but what is gone at the next boot, logs and caches."""
    hidden = (
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "var/tmp",
        "var/log",
        "var/cache",
        "var/lib/apt",
        "var/lib/dpkg",
        "var/lib/systemd",
    )
    words = [word for path in hidden for word in ("-path", f"/{path}", "-prune", "-o")]
    return set(machine.run("find", "/", "-xdev", *words, "-print", check=True, limit=600).stdout.splitlines())


# -- the package -------------------------------------------------------------------------------------------------------


def test_the_package_comes_and_goes_without_a_trace(machine: Machine, packages: list[Path]) -> None:
    install = f"DEBIAN_FRONTEND=noninteractive apt-get -y -q install {packages[0]}"
    # What it depends on stays; what it brings itself must not.
    machine.script("apt-get -q update; apt-get -y -q install python3", limit=_LIMIT)
    before = files(machine)
    said = machine.script(install, limit=_LIMIT)
    assert "the service is not started" in said and "install.md" in said
    assert machine.show("penstock", "LoadState", "ActiveState", "UnitFileState") == ["loaded", "inactive", "disabled"]

    # What is in it works as it is, for everybody.
    machine.run("useradd", "--create-home", "bob", check=True)
    assert re.fullmatch(
        r"penstock, version \S+( \(\w+(-dirty)?\))?\n", machine.script("penstock --version", login="bob")
    )
    # What a user's modules set for another Python is no matter.
    machine.script("mkdir bad; echo 'raise SystemExit(9)' >bad/click.py", login="bob")
    machine.script("cd bad; export PYTHONPATH=$PWD; penstock config check", login="bob")
    for page in ("penstock", "penstock-submit"):
        assert machine.script(f"man --warnings {page} | cat").startswith(page.upper())
    assert "malleable" not in machine.script("man -w penstock")
    found = machine.script("whatis penstock-submit 2>/dev/null || mandb -q && whatis penstock-submit")
    assert "penstock-submit (1)" in found
    complete = "source /usr/share/bash-completion/completions/penstock; COMP_WORDS=(penstock sub) COMP_CWORD=1"
    assert machine.script(f"{complete}; _penstock_completion penstock; echo ${{COMPREPLY[*]}}") == "submit\n"
    assert machine.script("penstock config check") == "/etc/penstock/penstock.yaml: ok\n"
    assert machine.script("stat -c '%U %a' /var/lib/penstock") == "penstock 700\n"
    # Nothing is broken, nothing is missing, and nothing is written into it while it is used.
    assert machine.script("dpkg -V penstock") == ""
    assert "not found" not in machine.script(
        "find /usr/lib/penstock -name '*.so*' -type f -exec ldd {} + 2>/dev/null | grep 'not found' | sort -u || true"
    )
    assert machine.script("find /usr/lib/penstock -newer /var/lib/dpkg/info/penstock.list") == ""
    imported = "import distributed, dmr, penstock_plugins, numpy; print('all')"
    assert machine.script(f'cd /; /usr/lib/penstock/bin/python -c "{imported}"') == "all\n"
    # For environments of others: wheels, and Open OnDemand's app as it is copied.
    wheels = machine.script("cd /usr/share/penstock; ls *.whl").split()
    named = {"penstock", "penstock_dmr", "penstock_portals", "snakemake_executor_plugin_penstock"}
    assert {wheel.partition("-")[0] for wheel in wheels} == named
    app = "import passenger_wsgi; print(callable(passenger_wsgi.application))"
    assert machine.script(f"cd /usr/share/penstock/ondemand/app; python3 -B -c '{app}'") == "True\n"
    machine.script("systemd-analyze verify --man=no /usr/lib/systemd/system/penstock.service")

    # The laboratory is a package of its own.
    assert "penstock-lab" in machine.run("penstock", "demo").stderr
    machine.script(f"apt-get -y -q install {packages[1]}", limit=_LIMIT)
    assert machine.script("man --warnings penstock-cluster-up | cat").startswith("PENSTOCK-CLUSTER-UP")
    assert "cluster" in machine.script("penstock --help; penstock cluster --help >/dev/null")
    machine.script("apt-get -y -q remove penstock-lab", limit=_LIMIT)

    # Removing keeps configuration and state, and ends the service.
    machine.run("systemctl", "enable", "penstock", check=True)
    machine.script("echo '# ours' >>/etc/penstock/penstock.yaml; touch /var/lib/penstock/penstock.db")
    machine.script("apt-get -y -q remove penstock", limit=_LIMIT)
    assert machine.script("tail -n 1 /etc/penstock/penstock.yaml; ls /var/lib/penstock") == "# ours\npenstock.db\n"
    assert machine.run("systemctl", "is-enabled", "penstock").returncode != 0
    # It comes back to what it left; a file that the administrator has changed is not overwritten.
    machine.script(install, limit=_LIMIT)
    assert machine.script("tail -n 1 /etc/penstock/penstock.yaml; ls /var/lib/penstock") == "# ours\npenstock.db\n"

    machine.script("apt-get -y -q purge penstock", limit=_LIMIT)
    assert machine.run("getent", "passwd", "penstock").returncode == 2
    machine.script("userdel --remove bob")
    left = {
        path
        for path in files(machine) - before
        if not re.match(r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$", path)
    }
    assert not left, sorted(left)[:20]


def test_the_same_source_gives_the_same_packages(folder: Path, source: Path, packages: list[Path]) -> None:
    need_program("sha256sum", "coreutils")
    words = [str(source / "deploy" / "build-deb.sh"), str(folder / "again")]
    # What is bundled is pinned by what the first one has.
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        unpacked = subprocess.run(
            ["bash", "-c", f"dpkg-deb --fsys-tarfile {packages[0]} | tar -xO ./usr/share/doc/penstock/bundled.txt"],
            capture_output=True,
            text=True,
            check=True,
        )
        pins.write(unpacked.stdout)
        pins.flush()
        done = subprocess.run(
            ["env", f"PIP_CONSTRAINT={pins.name}", *words], capture_output=True, text=True, timeout=1800
        )
    assert done.returncode == 0, done.stderr
    again = [Path(line) for line in done.stdout.splitlines()]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packages]


# -- the guide ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["package", "pip", "self"])
def test_a_stranger_installs_by_the_guide_alone(machine: Machine, source: Path, way: str) -> None:
    machine.start_slurm(free_ports(6))
    dmr = free_ports(2)
    if way == "self":  # who has no root finds it there
        machine.script("apt-get update; apt-get install -y --no-install-recommends python3-venv", limit=_LIMIT)
    spent = 0.0
    for block in blocks(GUIDE.read_text()):
        if way not in block.ways:
            continue
        if "penstock config check" in block.text:
            # The one thing that differs: this machine's ports are shared with others, so that two of them change.
            ports = f"s/:9342/:{dmr}/; s/:9341/:{dmr + 1}/"
            machine.script(f"sed -i '{ports}' /etc/penstock/penstock.yaml")
        place = f"cd {source}\n" if block.in_source else ""
        begun = time.monotonic()
        said = machine.script(place + block.text, login="root" if block.root else "alice", limit=_LIMIT)
        spent += time.monotonic() - begun
        print(f"docs/install.md:{block.line}: {time.monotonic() - begun:.0f} s\n{said}")
        check(machine, way, block.text, said)
    print(f"{way}: {spent:.0f} s in all")


def check(machine: Machine, way: str, text: str, said: str) -> None:
    """After some of the blocks: that what the guide says is so."""
    if "penstock doctor" in text and way != "self":
        assert "one agent for everybody" in said or "serve" in said, said
    if "systemctl enable" in text:
        assert machine.show("penstock", "ActiveState", "StatusText") == ["active", "serving"]
        assert "dry run" in machine.script("penstock status")
    if "dry_run: false" in text:
        until("it acts", lambda: "dry run" not in machine.script("penstock status"), _LIMIT, 1.0)
    if "penstock submit" in text:
        (pid,) = machine.show("penstock", "MainPID")

        def ended() -> bool:
            return over(machine.run("runuser", "-u", "alice", "--", "penstock", "status", "--json", check=True).stdout)

        until("the first workflow ends", ended, _LIMIT, 2.0)
        (memory,) = re.findall(r"VmRSS:\s+(\d+) kB", machine.script(f"cat /proc/{pid}/status"))
        print(f"the agent's memory: {int(memory) / 1024:.0f} MiB")
    if "apt-get purge" in text:
        assert machine.run("test", "-e", "/etc/penstock").returncode == 1
        assert machine.run("getent", "passwd", "penstock").returncode == 2


def over(status: str) -> bool:
    """Whether the one workflow of `penstock status --json` has ended, which must be well."""
    (run,) = shown(json.loads(status))
    assert not run.final or run.phase == "completed", run
    return run.final


# -- the image ---------------------------------------------------------------------------------------------------------


def test_the_image_without_docker(folder: Path, packages: list[Path]) -> None:
    need_program("mmdebstrap", "mmdebstrap")
    chroot, root = PROJECT / "deploy" / "image" / "chroot.sh", folder / "image"
    done = subprocess.run([chroot, "build", root, *packages], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]

    def inside(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [chroot, "exec", root, user, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
        )

    def said(user: str, *words: str) -> str:
        done = inside(user, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    with (folder / "image.log").open("w+") as log:
        words = [
            chroot,
            "run",
            root,
            "PENSTOCK_NODES=4",
            "PENSTOCK_SLURM__MIN_INTERVAL=1",
            "PENSTOCK_AGENT__INTERVAL=2",
        ]
        running = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:

            def serves() -> bool:
                assert running.poll() is None, (folder / "image.log").read_text()
                return (folder / "image.pid").exists() and inside("pst-alice", "penstock", "status").returncode == 0

            until("the agent serves", serves, 300, 1.0)
            assert said("pst-alice", "sinfo", "-h", "-o", "%D").strip() == "4"
            assert said("root", "ps", "-o", "user=", "-C", "penstock").split() == ["penstock"], "never root"
            # A user's job and workflow; the agent acts for them as an Operator.
            stages = "{name: a, nodes: 1, time: 2m, run: sleep 2}, {name: b, nodes: 1, time: 2m, run: 'true'}"
            flow = f"{{name: w, stages: [{stages}]}}"
            said("pst-alice", "bash", "-c", f'cd "$(mktemp -d)"; echo "{flow}" >w.yaml; penstock submit w.yaml')
            until(
                "the workflow ends",
                lambda: over(said("pst-alice", "penstock", "status", "--json")),
                300,
                1.0,
            )
            running.terminate()
            assert running.wait(120) in (0, 143), (folder / "image.log").read_text()
        finally:
            running.kill()
            running.wait()
    assert not (folder / "image.pid").exists()
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(root) in line]

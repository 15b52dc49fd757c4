"""The distributions, as wheels: what is in them, what they pull, and an upgrade from the one that 0.1.0 was."""

from __future__ import annotations

import hashlib
import os
import re
import site
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import __version__
from penstock.cli import cli
from penstock.host.commit import from_checkout
from places import PROJECT

BESIDE = ("dashboard", "fronts", "messages", "planning", "pool", "pyslurm", "rest", "site-view")
# What needs others of them, beside the core.
NEEDS = {"penstock-pool": ["penstock-fronts"]}
FOLDERS = {"pyslurm": "pyslurm-backend"}
SNAKEMAKE = "snakemake-executor-plugin-penstock"
SOURCES = {
    "penstock": PROJECT,
    "penstock-dmr": PROJECT / "dmr",
    "penstock-lab": PROJECT / "lab",
    # A folder `pyslurm` on the path, as `plugins` is in a checkout, would pass for that library.
    **{f"penstock-{name}": PROJECT / "plugins" / FOLDERS.get(name, name) for name in BESIDE},
    SNAKEMAKE: PROJECT / "plugins" / "snakemake-executor",
    "penstock-portals": PROJECT / "plugins" / "portals",
}


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=170, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    # What builds them is installed here; else pip installs it anew for each of them.
    pip = (sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, *SOURCES.values())
    found = {path.name.partition("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}
    assert found.keys() == SOURCES.keys()
    return found


def tops(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as it:
        return {name.partition("/")[0] for name in it.namelist() if ".dist-info/" not in name}


def needs(wheel: Path) -> list[str]:
    """What it pulls without an extra."""
    return [one for one in every_need(wheel) if "extra ==" not in one]


def every_need(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as it:
        about = next(name for name in it.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(it.read(about)).get_all("Requires-Dist") or []


def test_what_is_in_them(wheels):
    assert tops(wheels["penstock"]) == {"penstock", "penstock_plugins", "psij-descriptors"}
    assert tops(wheels["penstock-dmr"]) == {"penstock_dmr", "dmr.py"}
    assert tops(wheels["penstock-lab"]) == {"penstock_lab", "penstock_parts"}
    for name in BESIDE:
        found = {"penstock_parts"} if name not in ("pyslurm", "rest") else set()  # back ends are found by entry points
        assert tops(wheels[f"penstock-{name}"]) == found | {f"penstock_{name.replace('-', '_')}"}
    assert tops(wheels[SNAKEMAKE]) == {"snakemake_executor_plugin_penstock"}
    assert tops(wheels["penstock-portals"]) == {"penstock_portals"}


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_they_have_one_version_and_ask_for_each_other_by_it(wheels):
    assert {version(wheel) for wheel in wheels.values()} == {__version__}
    assert f"penstock-dmr=={__version__}" in needs(wheels["penstock"])
    assert needs(wheels["penstock-lab"]) == [f"penstock[planning,pool,rest]=={__version__}"]
    for name in (f"penstock-{one}" for one in BESIDE):
        pins = {f"{one}=={__version__}" for one in ("penstock", *NEEDS.get(name, []))}
        assert {one for one in needs(wheels[name]) if one.startswith("penstock")} == pins
        assert f"{name}=={__version__}; extra == '{name.removeprefix('penstock-')}'" in every_need(wheels["penstock"])
    assert f"penstock[pool]=={__version__}" in needs(wheels[SNAKEMAKE])
    assert needs(wheels["penstock-portals"]) == [], "the hub's own environment has what its spawner needs"


@pytest.fixture(scope="module")
def from_sdists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels made of sdists, each in a folder with nothing beside it."""
    folder = tmp_path_factory.mktemp("from-sdists")
    run(sys.executable, "-m", "venv", folder / "tools")
    run(folder / "tools" / "bin" / "pip", "install", "-q", "hatchling")
    found = {}
    for name, source in SOURCES.items():
        # `hatchling` knows its project by the folder that it runs in.
        build = f"cd '{source}' && '{folder}/tools/bin/hatchling' build -t sdist -d '{folder}/{name}'"
        run("bash", "-c", build)
        (sdist,) = (folder / name).glob("*.tar.gz")
        run(folder / "tools" / "bin" / "pip", "-q", "wheel", "--no-deps", "--wheel-dir", folder / name, sdist)
        (found[name],) = (folder / name).glob("*.whl")
    return found


@pytest.mark.long
def test_an_sdist_gives_the_wheel_that_the_source_gives(wheels, from_sdists):
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as direct, zipfile.ZipFile(from_sdists[name]) as indirect:
            assert sorted(direct.namelist()) == sorted(indirect.namelist())
            for one in direct.namelist():
                assert sorted(direct.read(one).splitlines()) == sorted(indirect.read(one).splitlines()), one


@pytest.mark.parametrize("source", ["wheels", pytest.param("from_sdists", marks=pytest.mark.long)])
def test_a_wheel_says_of_which_commit_it_was_made(source, request, tmp_path):
    known = from_checkout()
    if known is None:
        pytest.skip("git knows no commit of this source")
    with zipfile.ZipFile(request.getfixturevalue(source)["penstock"]) as it:
        it.extractall(tmp_path)
    code = "import penstock.host.commit as it; print(it.__file__, it.commit())"
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60).stdout
    assert said == f"{tmp_path}/penstock/host/commit.py {known}\n"


def test_the_command_says_its_version_with_the_commit_where_it_is_known(monkeypatch):
    assert CliRunner().invoke(cli, ["--version"]).output in (
        f"penstock, version {__version__}\n",
        f"penstock, version {__version__} ({from_checkout()})\n",
    )
    monkeypatch.setattr("penstock.host.commit.commit", lambda: None)
    assert CliRunner().invoke(cli, ["--version"]).output == f"penstock, version {__version__}\n"


def test_the_library_pulls_nothing_and_runs_with_nothing(wheels, tmp_path):
    assert needs(wheels["penstock-dmr"]) == []
    run(sys.executable, "-m", "venv", tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    before = run(python, "-m", "pip", "list", "--format", "freeze").splitlines()
    run(python, "-m", "pip", "install", "-q", "--no-index", wheels["penstock-dmr"])
    after = run(python, "-m", "pip", "list", "--format", "freeze").splitlines()
    assert [re.sub("=.*", "", line) for line in after if line not in before] == ["penstock-dmr"]
    code = "import pickle, dmr, dmr.wire; print(dmr.wire.__name__, pickle.loads(pickle.dumps(dmr.App)))"
    assert run(python, "-c", code) == "dmr.wire <class 'dmr.app.App'>\n"
    assert "Gives this job" in run(python, "-m", "dmr.size", "--help")


@pytest.mark.long
def test_the_library_can_be_worked_on_where_it_lies(tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "editable")
    python = tmp_path / "editable" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", "-e", SOURCES["penstock-dmr"])
    assert run(python, "-c", "import dmr; print(dmr.__file__)") == f"{SOURCES['penstock-dmr']}/dmr/__init__.py\n"


def _wheel(folder: Path, version: str, files: dict[str, str], needs: str = "") -> Path:
    """A distribution `penstock` with these files and no other."""
    about = f"penstock-{version}.dist-info"
    more = f"Requires-Dist: {needs}\n" if needs else ""
    files = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: penstock\nVersion: {version}\n{more}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"penstock-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as it:
        for name, text in files.items():
            it.writestr(name, text)
        sums = [f"{name},sha256={hashlib.sha256(text.encode()).hexdigest()}," for name, text in files.items()]
        it.writestr(f"{about}/RECORD", "\n".join([*sums, f"{about}/RECORD,,"]) + "\n")
    return path


@pytest.mark.long
def test_an_upgrade_from_the_one_distribution_leaves_the_library(wheels, tmp_path):
    """pip takes away what the old `penstock` owned after it has installed what the new one depends on."""
    own = {f"dmr/{path.relative_to(PROJECT / 'dmr' / 'dmr')}": "" for path in (PROJECT / "dmr" / "dmr").rglob("*.py")}
    old = _wheel(tmp_path, "0.1.0", own | {"penstock/__init__.py": ""})
    new = _wheel(tmp_path, "0.2.0", {"penstock/__init__.py": ""}, needs="penstock-dmr")
    run(sys.executable, "-m", "venv", tmp_path / "site")
    python = tmp_path / "site" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-index", old)
    run(python, "-m", "pip", "install", "-q", "--no-index", "-U", "--find-links", wheels["penstock-dmr"].parent, new)
    assert run(python, "-c", "import dmr; print(dmr.App.__module__)") == "dmr.app\n"


ALONE = """
import importlib, pkgutil, sys
ways_in = ("penstock.tools.", "penstock.pool.", "penstock.messages.")
sys.path[:0] = sys.argv[1].split(":")
import penstock
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.startswith(ways_in) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules if name.startswith("penstock")}))
"""


def test_every_module_of_the_core_loads_where_nothing_is_installed_beside_it():
    # -S: what the .pth files of this environment name is not on the path.
    path = ":".join([str(PROJECT / "agent"), str(PROJECT / "plugins"), str(PROJECT / "dmr"), *site.getsitepackages()])
    assert run(sys.executable, "-ISc", ALONE, path) == "penstock\n"


WORKFLOW = """\
name: mosaic
shell: strict
stages:
  - {name: first, nodes: 1, time: 5m, run: sleep 60}
  - {name: second, nodes: 1, time: 5m, run: "true"}
"""


@pytest.fixture(scope="module")
def alone(wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the core, and the simulated Slurm of the laboratory."""
    place = tmp_path_factory.mktemp("alone")
    run(sys.executable, "-m", "venv", place)
    run(place / "bin" / "pip", "install", "-q", wheels["penstock-dmr"], wheels["penstock"])
    run(place / "bin" / "pip", "install", "-q", "--no-deps", wheels["penstock-lab"])
    return place / "bin"


@pytest.mark.long
def test_the_core_alone_runs_a_workflow_on_the_simulated_slurm(alone, tmp_path):
    settings = f"slurm: {{backend: mock, mock_socket: {tmp_path}/mock/mock.sock, min_interval: 1s}}\n"
    (tmp_path / "config.yaml").write_text(f"agent: {{interval: 1s, idle_interval: 2s}}\n{settings}")
    (tmp_path / "mosaic.yaml").write_text(WORKFLOW)
    env = os.environ | {"HOME": str(tmp_path), "PENSTOCK_CONFIG": str(tmp_path / "config.yaml")}
    slurm = [alone / "python", "-m", "penstock_lab.mock.server", "--dir", tmp_path / "mock", "--nodes", "2"]

    def penstock(*words: str, code: int = 0) -> str:
        command = [alone / "penstock", *words]
        # Jobs write where they were submitted.
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    with subprocess.Popen(slurm) as mock:
        until(lambda: (tmp_path / "mock" / "mock.sock").exists())
        with subprocess.Popen([alone / "penstock", "agent"], env=env, stderr=subprocess.DEVNULL) as agent:
            until(lambda: subprocess.run([alone / "penstock", "status"], env=env, capture_output=True).returncode == 0)
            penstock("submit", str(tmp_path / "mosaic.yaml"))
            until(lambda: "running" in penstock("status", "mosaic"))
            penstock("cancel", "mosaic")
            until(lambda: "cancelled" in penstock("status", "mosaic"))
            assert "none is installed beside the core" in penstock("doctor", "-v")
            agent.terminate()
        mock.terminate()
    assert "comes with penstock-pool: install that" in penstock("pool", "status", code=2)
    assert "comes with penstock-planning: install that" in penstock("slots", code=2)
    assert "comes with penstock-messages: install that" in penstock("message", "list", code=2)


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("penstock-fronts", ()),
        ("penstock-pool", ("pool",)),
        ("penstock-dashboard", ("dashboard",)),
        ("penstock-messages", ("message",)),
        ("penstock-site-view", ("site-view",)),
        ("penstock-planning", ("slots", "quote", "plan", "hold", "ledger", "select", "bags", "profile", "stage")),
    ],
)
def test_each_distribution_goes_with_the_core_alone(wheels, tmp_path, name, commands):
    run(sys.executable, "-m", "venv", tmp_path)
    others = NEEDS.get(name, [])
    ours = (wheels[one] for one in ("penstock-dmr", "penstock", *others, name))
    run(tmp_path / "bin" / "pip", "install", "-q", *ours)
    for command in commands:
        assert run(tmp_path / "bin" / "penstock", command, "--help").startswith(f"Usage: penstock {command}")
    package, *used = (one.replace("-", "_") for one in (name, *others))
    whole = ALONE.replace("penstock.", f"{package}.").replace("import penstock\n", f"import {package}\n")
    whole = whole.replace("penstock.__path__", f"{package}.__path__")
    assert run(tmp_path / "bin" / "python", "-Ic", whole, "").split() == ["penstock", *sorted({package, *used})]


def test_what_each_asks_hatch_to_do_is_the_same():
    """An sdist has to have the whole of it, so it cannot be one file."""
    assert len({(SOURCES[f"penstock-{name}"] / "hatch_build.py").read_text() for name in BESIDE}) == 1


def test_no_file_belongs_to_two_distributions(wheels):
    """pip takes a file away with whichever of them goes first."""
    found: Counter[str] = Counter()
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as it:
            found.update(it.namelist())
    assert [name for name, count in found.items() if count > 1] == []

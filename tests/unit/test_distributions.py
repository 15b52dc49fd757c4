"""The three distributions, as wheels: what is in them, what they pull, and an upgrade from the one that 0.1.0 was."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SOURCES = {"penstock": PROJECT, "penstock-dmr": PROJECT / "dmr", "penstock-lab": PROJECT / "lab"}


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=170, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--wheel-dir", folder, *SOURCES.values())
    found = {path.name.partition("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}
    assert found.keys() == SOURCES.keys()
    return found


def tops(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as it:
        return {name.partition("/")[0] for name in it.namelist() if ".dist-info/" not in name}


def needs(wheel: Path) -> list[str]:
    """What it pulls without an extra."""
    with zipfile.ZipFile(wheel) as it:
        about = next(name for name in it.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_bytes(it.read(about)).get_all("Requires-Dist") or []
    return [one for one in told if "extra ==" not in one]


def test_what_is_in_them(wheels):
    assert tops(wheels["penstock"]) == {"penstock", "penstock_plugins"}
    assert tops(wheels["penstock-dmr"]) == {"penstock_dmr", "dmr.py"}
    assert tops(wheels["penstock-lab"]) == {"penstock_lab"}


def test_they_have_one_version_and_ask_for_each_other_by_it():
    told = {name: tomllib.loads((folder / "pyproject.toml").read_text())["project"] for name, folder in SOURCES.items()}
    (version,) = {project["version"] for project in told.values()}
    assert f"penstock-dmr=={version}" in told["penstock"]["dependencies"]
    assert told["penstock-lab"]["dependencies"] == [f"penstock=={version}"]


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

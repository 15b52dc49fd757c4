"""What is installed beside the core, and what of it the agent takes in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import __version__
from penstock.admin.doctor.reader import _parts
from penstock.cli import cli
from penstock.cli.table import commands, place_of
from penstock.config import config_of
from penstock.core import installed
from penstock.core.installed import installed_parts
from penstock.core.parts import Part
from penstock.errors import ConfigError, UserError
from penstock.host import distributions
from penstock.host.distributions import CommandPlace, InstalledDistribution, beside, is_installed, loaded

TOLD = {
    "distribution": "theirs",
    "part": "theirs.part:Theirs",
    "commands": {"greet": ["Site", "theirs.commands:greet", "Say hello."]},
    "answers": "theirs.answers:ANSWERS",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of packages of the Python that runs, the only one."""
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.syspath_prepend(str(tmp_path))
    beside.cache_clear()
    installed_parts.cache_clear()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("theirs", "again")]:
        del sys.modules[name]
    beside.cache_clear()
    installed_parts.cache_clear()


def put(folder: Path, told: object = TOLD, name: str = "theirs", part: str = "", needs: str | None = None) -> Path:
    """A distribution as pip leaves it; `part` is the text of its module, `needs` what it asks for."""
    file = folder / "penstock_parts" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told) if not isinstance(told, str) else told)
    package = folder / name
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "part.py").write_text(part)
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(exist_ok=True)
    asks = f"penstock=={__version__}" if needs is None else needs
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\nRequires-Dist: {asks}\n")
    return file


PART = """
from penstock.core.parts import Part
class Theirs(Part):
    name = "theirs"
"""


def test_a_file_says_what_a_distribution_brings(folder):
    file = put(folder)
    (one,) = beside()
    assert one == InstalledDistribution(
        "theirs",
        file,
        "theirs.part:Theirs",
        {"greet": CommandPlace("Site", "theirs.commands:greet", "Say hello.")},
        "theirs.answers:ANSWERS",
    )
    assert one.version == "1.5"
    assert is_installed("theirs") and not is_installed("other")


def test_what_comes_with_penstock_comes_first_and_pythonpath_does_not_count(folder, monkeypatch):
    put(folder, {"distribution": "a"}, "a")
    put(folder, {"distribution": "penstock-planning"}, "planning")
    put(folder, {"distribution": "penstock-pool"}, "pool")
    put(folder, {"distribution": "penstock-messages"}, "messages")
    put(folder, {"distribution": "penstock-fronts"}, "fronts")
    elsewhere = folder / "elsewhere"
    put(elsewhere, {"distribution": "b"}, "b")
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.chdir(elsewhere)
    own = ["penstock-fronts", "penstock-messages", "penstock-pool", "penstock-planning"]
    assert [one.name for one in beside()] == [*own, "a"]


def test_a_checkout_is_found_by_its_pth_file(folder):
    checkout = folder / "src"
    put(checkout, {"distribution": "mine"}, "mine")
    (folder / "mine.pth").write_text(f"import os\n# no folder\n/not/there\n{checkout}\n")
    assert [one.name for one in beside()] == ["mine"]


@pytest.mark.parametrize(
    "told",
    [
        "{",
        [],
        {},
        {"distribution": "x", "part": "no place"},
        {"distribution": "x", "commands": {"c": ["Site"]}},
        {"distribution": "x", "commands": {"c": ["Site", "m", "Help."]}},
        {"distribution": "x", "answers": "m:a; import os"},
    ],
)
def test_a_file_that_says_nothing_of_use_is_named(folder, told):
    file = put(folder, told)
    with pytest.raises(ConfigError, match=f"^{file}: it does not say which distribution brings what"):
        beside()


def test_a_part_is_taken_in(folder):
    put(folder, part=PART)
    (kind,) = installed_parts()
    assert issubclass(kind, Part) and kind.name == "theirs"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("raise RuntimeError('oh')", "cannot be loaded: RuntimeError"),
        ("", "cannot be loaded: AttributeError"),
        ("Theirs = 3", "is no part"),
        ("class Theirs: name = 'theirs'", "is no part"),
        ("from penstock.core.parts import Part as Theirs", "is no part"),
    ],
)
def test_what_is_no_part_is_refused(folder, part, why):
    file = put(folder, part=part)
    with pytest.raises(ConfigError, match=f"^{file}: .*{why}"):
        installed_parts()


CHECKED = """
from penstock.core.findings import fine
from penstock.core.parts import Part

class Theirs(Part):
    name = "again"

    @staticmethod
    def checks(config, within):
        yield fine("again", "all is well")
        CHECKS
"""


@pytest.mark.parametrize(
    ("needs", "part", "why"),
    [
        ("penstock", "", "the part of theirs is not taken in: theirs 1.5 does not ask for `penstock=="),
        (None, "", "the part theirs.part:Theirs cannot be loaded: AttributeError"),
        (None, "Theirs = 3", "theirs.part:Theirs is no part"),
    ],
)
def test_doctor_says_which_part_is_refused_and_asks_the_others(folder, needs, part, why):
    put(folder, part=part, needs=needs)
    again = TOLD | {"distribution": "again", "part": "again.part:Theirs"}
    put(folder, again, "again", CHECKED.replace("CHECKS", ""))
    seen, found = _parts(config_of({}), 1.0)
    assert [(one.distribution, why in one.why_not) for one in seen] == [("again", False), ("theirs", True)]
    assert [(finding.check, finding.outside) for finding in found] == [("again", True)]


def test_doctor_and_config_check_name_a_part_that_takes_the_name_of_one_of_penstocks(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CONFIG", str(folder / "penstock.yaml"))
    (folder / "penstock.yaml").write_text("{}")
    put(folder, part=PART.replace('"theirs"', '"workflows"'))
    ((seen,), found) = _parts(config_of({}), 1.0)
    assert (seen.why_not, found) == ("there is another part 'workflows'", ())
    done = CliRunner().invoke(cli, ["config", "check"])
    assert str(done.exception).startswith("theirs.part: a part of Penstock itself is named 'workflows'")


def test_checks_of_a_part_that_fail_are_those_of_that_part(folder):
    put(folder, part=CHECKED.replace("CHECKS", "raise RuntimeError('oh')"))
    (seen,), found = _parts(config_of({}), 1.0)
    assert (seen.why_not, seen.unasked) == ("", "its checks have failed: RuntimeError('oh')")
    assert [finding.check for finding in found] == ["again"]


def test_two_parts_of_one_name_are_refused(folder):
    put(folder, part=PART)
    put(folder, TOLD | {"distribution": "again", "part": "again.part:Theirs"}, "again", PART)
    with pytest.raises(ConfigError, match="there is another part 'theirs'"):
        installed_parts()


@pytest.mark.parametrize("needs", ["penstock", "penstock>=0.1", f"penstock=={__version__}.1", "numpy", "penstock==9"])
def test_a_part_is_locked_to_the_release_that_it_was_made_for(folder, needs):
    put(folder, part="raise SystemExit('it ran')", needs=needs)
    with pytest.raises(ConfigError, match=f"theirs 1.5 does not ask for `penstock=={__version__}`"):
        installed_parts()


@pytest.mark.parametrize(
    "needs", [f"penstock[pool]=={__version__}", f"penstock (=={__version__})", f"penstock == {__version__}"]
)
def test_it_may_be_written_in_several_ways(folder, needs):
    put(folder, part=PART, needs=needs.format(__version__))
    assert len(installed_parts()) == 1


def test_a_folder_of_the_path_that_pip_knows_nothing_of_brings_no_part(folder):
    put(folder, part="raise SystemExit('it ran')")
    (folder / "theirs-1.5.dist-info" / "METADATA").unlink()
    (folder / "theirs-1.5.dist-info").rmdir()
    with pytest.raises(ConfigError, match="theirs is not installed in this Python"):
        installed_parts()
    assert beside()[0].version == ""


@pytest.mark.parametrize("place", ["penstock_parts/theirs.json", "penstock_parts", "theirs", "theirs/part.py", "."])
@pytest.mark.parametrize("others", ["mode", "owner"])
def test_what_others_can_write_is_not_run(folder, place, others):
    put(folder, part="raise SystemExit('it ran')")
    path = folder / place
    if others == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(path, 65534, -1)
        said = f"{path.resolve()} belongs to user 65534"
    else:
        path.chmod(path.stat().st_mode | 0o002)
        said = f"{path.resolve()} can be written by others"
    with pytest.raises(ConfigError, match=said):
        installed_parts()


def test_a_part_is_in_a_package_all_of_which_is_checked(folder):
    put(folder, TOLD | {"part": "alone:Theirs"})
    (folder / "alone.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ConfigError, match=f"{folder}/alone: No such file or directory"):
        installed_parts()


def test_what_a_link_leads_to_counts_as_well(folder):
    open_to_all = folder / "open"
    put(open_to_all / "inside", part="raise SystemExit('it ran')")
    (folder / "mine.pth").write_text(f"{folder}/link\n")
    (folder / "link").symlink_to(open_to_all / "inside")
    open_to_all.chmod(0o777)
    with pytest.raises(ConfigError, match=f"{open_to_all} can be written by others"):
        installed_parts()


def test_who_owns_penstock_itself_may_own_its_parts(folder, monkeypatch):
    """A site's software belongs to an account of its own, and may be written by a group of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    core = folder / "core.py"
    core.touch()
    for path in (core, put(folder, part=PART), folder / "penstock_parts", folder / "theirs", folder / "theirs/part.py"):
        os.chown(path, 4711, 4712)
        path.chmod(path.stat().st_mode | 0o020)
    with pytest.raises(ConfigError, match="belongs to user 4711"):
        installed_parts()
    monkeypatch.setattr(distributions, "__file__", str(core))
    assert len(installed_parts()) == 1
    core.chmod(0o644)
    installed_parts.cache_clear()
    with pytest.raises(ConfigError, match="can be written by others"):
        installed_parts()


def test_a_section_of_what_is_not_installed_is_named(folder):
    for section, needs in (
        ("messages", "penstock-messages"),
        ("pool", "penstock-pool"),
        ("provision", "penstock-planning"),
        ("select", "penstock-planning"),
        ("shim", "penstock-fronts"),
    ):
        with pytest.raises(ConfigError, match=f"^configuration: `{section}:` needs {needs}: install that, too$"):
            config_of({section: {}})
    with pytest.raises(ConfigError, match="did you mean `pool`"):
        config_of({"pol": {}})


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("dashboard", "penstock-dashboard"),
        ("message", "penstock-messages"),
        ("pool", "penstock-pool"),
        ("site-view", "penstock-site-view"),
    ],
)
def test_a_command_of_what_is_not_installed_says_what_to_install(folder, name, needs):
    done = CliRunner().invoke(cli, [name, "--help"])
    said = f"`penstock {name}` comes with {needs}: install that beside penstock (pip)"
    assert isinstance(done.exception, UserError) and str(done.exception) == said
    assert place_of("status") is not None and name not in commands()


def test_each_place_that_the_own_ones_name_is_there():
    for one in beside():
        for place in filter(None, (one.part, one.answers, *(command.place for command in one.commands.values()))):
            assert loaded(place) is not None
    own = ["penstock-fronts", "penstock-messages", "penstock-pool", "penstock-planning"]
    assert [one.name for one in beside()][:4] == own
    assert installed.installed_parts() != () and distributions.beside() == beside()


def test_entry_points_are_those_of_pythons_package(tmp_path, monkeypatch):
    about = tmp_path / "it-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: it\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[penstock.some]\none = it:One\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = distributions.entry_points(group="penstock.some")
    assert (found.name, found.value) == ("one", "it:One")
    assert not list(distributions.entry_points(group="penstock.none"))


ARCHIVE = """
import importlib.metadata, sys
from penstock.host.distributions import entry_points
asked = []
importlib.metadata.entry_points = lambda group: asked.append(group) or ()
sys.path = sys.argv[1:2]
assert entry_points(group="penstock.none") == () and asked == [], asked
sys.path.append(sys.argv[2])
assert entry_points(group="penstock.none") == () and asked == ["penstock.none"], asked
"""


def test_an_archive_on_the_path_is_looked_into_by_pythons_package(tmp_path):
    """In a process of its own: packages that other tests load take from Python's finder what it looks with."""
    (tmp_path / "it.zip").touch()
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVE, tmp_path, tmp_path / "it.zip"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

"""Which modules may touch the world outside (`tool.penstock.house.doors` in pyproject.toml), and that no other does.

Who may import whom is in `tool.importlinter`, as layers. This is the other half: a module that is not on the list of
doors imports no clock, socket, subprocess or file, and no door. A new module is pure unless it is put on the list.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from places import PROJECT

AGENT = PROJECT / "agent"
# Where the packages of each distribution lie.
BESIDE = (
    "plugins/dashboard",
    "plugins/fronts",
    "plugins/messages",
    "plugins/planning",
    "plugins/pool",
    "plugins/pyslurm-backend",
    "plugins/rest",
    "plugins/site-view",
)
HOMES = ("agent", "dmr", "lab", "plugins", *BESIDE, "plugins/portals", "plugins/snakemake-executor")
OUTSIDE = frozenset(
    [
        "asyncio",
        "concurrent",
        "ctypes",
        "distributed",
        "fcntl",
        "getpass",
        "http",
        "multiprocessing",
        "os",
        "pathlib",
        "psutil",
        "pwd",
        "resource",
        "select",
        "selectors",
        "shutil",
        "signal",
        "smtplib",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
    ]
)
HARMLESS = frozenset({"pathlib.PurePath", "pathlib.PurePosixPath"})
# Doors that are nothing to who imports them: models and the classes of extensions are values like others, though their
# modules read files and look for what is installed; the compiled kernel counts as numpy does, though it is loaded.
HARMLESS_DOORS = frozenset(
    {"penstock.config", "penstock.core.extensions", "penstock.kernel.futures", "penstock.kernel.library"}
)


def core_and_beside() -> Mapping[str, Path]:
    """The modules of the core, and of the distributions whose parts the agent takes in."""
    found: dict[str, Path] = {}
    for home in ("agent", *BESIDE):
        found |= {name: path for name, path in modules(PROJECT / home).items() if name.startswith("penstock")}
    return found


def modules(home: Path = AGENT) -> Mapping[str, Path]:
    found = {}
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """What a module imports as it runs: modules of the agent whole, others with the name that is taken from them."""
    tree = ast.parse(source)
    unread = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.module if node.module.startswith("penstock") and whole not in known else whole


def touches(what: str, doors: frozenset[str]) -> bool:
    """Whether this import lets the world in: a door, or something of the standard library that reaches out."""
    if what.startswith("penstock"):
        return what in doors - HARMLESS_DOORS
    return what not in HARMLESS and what.partition(".")[0] in OUTSIDE


def listed() -> tuple[str, ...]:
    house = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["penstock"]["house"]
    return tuple(whole(name) for name in house["doors"])


def whole(name: str) -> str:
    """`*.part` stands for that module in every room, in the core and beside it."""
    if name.startswith("*"):
        return f"penstock{name}"
    return name if name.startswith("penstock_") else f"penstock.{name}"


def doors_in(known: Mapping[str, object]) -> frozenset[str]:
    """A name on the list stands for a module, or for a package and all that is in it; `*.part` for all rooms."""
    return frozenset(one for name in listed() for one in known if fnmatch(one, name) or fnmatch(one, f"{name}.*"))


def faults(sources: Mapping[str, str], doors: frozenset[str]) -> list[str]:
    return [
        f"{name} imports {what}: make it pure, or put it on the list of doors in pyproject.toml and say why"
        for name, source in sources.items()
        if name not in doors
        for what in imported(source, sources)
        if touches(what, doors)
    ]


def test_what_is_no_door_touches_nothing_outside():
    known = core_and_beside()
    sources = {name: path.read_text(encoding="utf-8") for name, path in known.items()}
    assert faults(sources, doors_in(known)) == []


def test_what_is_on_the_list_is_there_and_is_a_door():
    known = core_and_beside()
    doors = doors_in(known)
    sources = {name: path.read_text(encoding="utf-8") for name, path in known.items()}
    for name in listed():
        within = [one for one in known if fnmatch(one, name) or fnmatch(one, f"{name}.*")]
        assert within, f"{name} is on the list of doors, and there is no such module"
        reached = [one for one in within for what in imported(sources[one], sources) if touches(what, doors - {one})]
        assert reached, f"{name} is on the list of doors, and touches nothing outside: take it off"


def test_a_fault_is_seen():
    sources = {
        "penstock.pure": "import time\n",
        "penstock.other": "from penstock.door import open_it\nfrom pathlib import PurePath\n",
        "penstock.typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket\n",
        "penstock.door": "import socket\n",
    }
    told = faults(sources, frozenset({"penstock.door"}))
    assert [one.partition(":")[0] for one in told] == [
        "penstock.pure imports time",
        "penstock.other imports penstock.door",
    ]


def test_the_core_names_no_module_of_what_is_installed_beside_it():
    """Not by a string either, which import rules do not see."""
    beside = re.compile(r"\bpenstock_(?:fronts|lab|messages|planning|pool|pyslurm)\b")
    named = {name for name, path in modules().items() if beside.search(path.read_text(encoding="utf-8"))}
    # Ways in for programs of users, which nothing of Penstock imports.
    ways_in = ("messages.channels", "pool.futures", "tools.dask", "tools.joblib", "tools.parsl")
    assert named == {f"penstock.{name}" for name in ways_in}


def test_at_most_six_modules_are_at_the_root():
    root = {path.stem for path in (AGENT / "penstock").glob("*.py")}
    assert len(root) <= 6, f"{sorted(root)}: put the new one where it belongs"


def classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The modules that define a public class of each name."""
    found: dict[str, list[str]] = {}
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    return found


def test_a_public_class_has_a_name_of_its_own():
    # The models of what --json prints are named after what they show.
    ours = [path for path in modules().values() if path.name != "answers.py"]
    beside = [
        path
        for path in sorted((PROJECT / "plugins").rglob("*.py"))
        if path.name not in ("answers.py", "hatch_build.py")
    ]
    paths = [*ours, *beside]
    known = classes({str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8") for path in paths})
    twice = {name: places for name, places in known.items() if len(places) > 1}
    assert twice == {}, "one word, one meaning: rename all but one"


def test_a_name_of_two_classes_is_seen():
    assert classes({"a": "class View: ...", "b": "class View: ...\nclass _View: ..."}) == {"View": ["a", "b"]}


def test_a_module_of_tests_has_a_name_of_its_own():
    """pytest imports them by their names alone, and gives up a whole run where two are alike."""
    found = Counter(path.name for path in (PROJECT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in found.items() if count > 1] == []


def needed(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """The modules that this one cannot be read without: those of all its imports, also in functions and for types."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def circle(needs: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each needs the next, and the last is the first; none where there is no such circle."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def python_needs(sources: Mapping[str, str]) -> dict[str, set[str]]:
    return {name: {one for one in needed(text, sources) if one in sources} - {name} for name, text in sources.items()}


def c_needs(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """A module of C is x.c with x.h."""
    needs: dict[str, set[str]] = {}
    for file, text in sources.items():
        name = file.rpartition(".")[0]
        others = set(re.findall(r'^#include "(\w+)\.h"', text, re.MULTILINE)) - {name}
        needs.setdefault(name, set()).update(others)
    return needs


def told(found: list[str]) -> str:
    return f"{' -> '.join(found)}: move what they all need below them, or hand it over as an argument"


@pytest.mark.parametrize("home", HOMES)
def test_no_modules_go_in_a_circle(home: str):
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules(PROJECT / home).items()}
    found = circle(python_needs(sources))
    assert found == [], told(found)


def test_nor_do_those_of_the_library_in_c():
    sources = {path.name: path.read_text(encoding="utf-8") for path in (PROJECT / "dmr" / "c").glob("*.[ch]")}
    found = circle(c_needs(sources))
    assert found == [], told(found)


def test_a_circle_is_seen():
    hidden = {
        "pen.a": "from pen import b\n",
        "pen.b": "def late():\n    from pen.c import it\n",
        "pen.c": "if TYPE_CHECKING:\n    import pen.a\n",
        "pen.d": "import os\nimport pen.a\n",
    }
    found = circle(python_needs(hidden))
    assert found[0] == found[-1] and set(found) == {"pen.a", "pen.b", "pen.c"}
    written = {"a.c": '#include "a.h"\n#include "b.h"\n', "a.h": "", "b.c": '#include "b.h"\n', "b.h": '#include "a.h"'}
    assert set(circle(c_needs(written))) == {"a", "b"}
    assert circle(c_needs({**written, "b.h": ""})) == []


def test_no_folder_on_the_path_of_a_checkout_passes_for_a_library():
    """`plugins` is on it; Python takes any folder there whose name is a word for a package."""
    libraries = {"click", "dask", "distributed", "dmr", "httpx", "mpi4py", "numpy", "parsl", "pyslurm", "ray", "yaml"}
    for home in ("agent", "plugins", "dmr", "lab"):
        assert not {path.name for path in (PROJECT / home).iterdir() if path.is_dir()} & (libraries - {home})

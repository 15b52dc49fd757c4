"""What is installed beside the core: distributions that bring parts of the agent and commands of their own.

Each says what it brings in a file `penstock_parts/NAME.json`, in the folder in which its packages lie:

    {
        "distribution": "penstock-mysite",
        "part": "mysite.part:QueuePart",
        "commands": {"queue": ["Site", "mysite.commands:queue", "Say how many jobs wait."]},
        "answers": "mysite.commands:ANSWERS"
    }

`distribution` is its name as pip has it, and the rest may be left out. `commands` gives the heading, the place and the
line of help of each; `answers` what they print with --json, by the words after `penstock`. Nothing is imported, and no
entry points are looked for, before one of these is used.

Only the folders of the Python that runs are looked through: those that its `site` module knows, and what their .pth
files name (that is how a checkout is installed). PYTHONPATH and the working directory do not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import site
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.errors import ConfigError
from penstock.values.beside import FRONTS, LABORATORY, MESSAGES, PLANNING, POOL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["CommandPlace", "InstalledDistribution", "beside", "entry_points", "is_installed", "loaded"]

_FOLDER: Final = "penstock_parts"
_CORE: Final = "who owns Penstock itself"
# In this order their parts take their steps; those of others follow by name.
_OWN: Final = (FRONTS, MESSAGES, POOL, PLANNING, LABORATORY)
_PLACE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """A command: under which heading `penstock --help` has it, where it is, and the line that says what it does."""

    heading: str
    place: str
    help: str


@dataclass(frozen=True, slots=True)
class InstalledDistribution:
    """What a distribution brings, by its `file`."""

    name: str
    file: Path
    part: str = ""
    commands: Mapping[str, CommandPlace] = field(default_factory=dict)
    answers: str = ""

    @property
    def own(self) -> bool:
        """Whether it is one of Penstock's own."""
        return self.name in _OWN

    @property
    def version(self) -> str:
        """The installed version; "" where pip knows of none."""
        from importlib.metadata import PackageNotFoundError, version  # slow to load

        try:
            return version(self.name)
        except PackageNotFoundError:
            return ""

    def why_not(self) -> str:
        """Why the agent does not take its part in; "" where it does.

        It runs with the agent's rights, so nobody may be able to write it but root, the agent's user and who owns the
        core, and it has to be made for this very release of the core.
        """
        from importlib.metadata import PackageNotFoundError, requires  # slow to load

        package = self.file.parent.parent / self.part.partition(":")[0].partition(".")[0]
        above = dict.fromkeys((*self.file.parents, *self.file.resolve().parents))
        within = (Path(folder, name) for folder, _folders, names in os.walk(package) for name in ("", *names))
        core = Path(__file__).stat()
        for path in (self.file, *above, package, *within):
            if why := _writable(path, core):
                return why
        try:
            needs = requires(self.name) or []
        except PackageNotFoundError:
            return f"{self.name} is not installed in this Python"
        if not any(
            re.match(rf"penstock(\[[^]]*\])?\s*\(?==\s*{re.escape(__version__)}(?![\w.])", one) for one in needs
        ):
            return f"{self.name} {self.version} does not ask for `penstock=={__version__}`, the release that runs here"
        return ""


@cache
def beside() -> tuple[InstalledDistribution, ...]:
    """All that are installed. Raises ConfigError for a file that says nothing of use."""
    found: dict[str, InstalledDistribution] = {}
    for folder in _folders():
        for file in _files(folder / _FOLDER):
            one = _read(file)
            found.setdefault(one.name, one)
    ranks = {name: rank for rank, name in enumerate(_OWN)}
    return tuple(sorted(found.values(), key=lambda one: (ranks.get(one.name, len(ranks)), one.name)))


def is_installed(name: str) -> bool:
    """Whether the distribution of that name is."""
    return any(name == one.name for one in beside())


def loaded(place: str) -> Any:  # noqa: ANN401 (each place says what it has)
    """What stands at "module:name"."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def entry_points(group: str) -> Iterable[EntryPoint]:
    """As `importlib.metadata` has them, which takes long to load: not where no installed file names the group."""
    finders = [one for one in sys.meta_path if hasattr(one, "find_distributions")]
    if finders == [PathFinder] and not any(_may_name(folder, group.encode()) for folder in dict.fromkeys(sys.path)):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _may_name(folder: str, group: bytes) -> bool:
    """Whether a distribution in this folder of packages may have an entry point of the group."""
    try:
        with os.scandir(folder or ".") as entries:
            found = [Path(entry.path) for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:  # an archive
        return True
    except OSError:
        return False
    for path in found:
        with contextlib.suppress(OSError):
            if group in (path / "entry_points.txt").read_bytes():
                return True
    return str(folder).endswith(".egg")


def _folders() -> Iterator[Path]:
    for name in site.getsitepackages():
        folder = Path(name)
        yield folder
        for file in _files(folder, ".pth"):
            for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
                if line and not line.startswith(("#", "import ", "import\t")) and (folder / line).is_dir():
                    yield folder / line


def _files(folder: Path, suffix: str = ".json") -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.name.endswith(suffix))
    except OSError:
        return []


def _read(file: Path) -> InstalledDistribution:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        one = InstalledDistribution(
            name=told["distribution"],
            file=file,
            part=told.get("part", ""),
            commands={name: CommandPlace(*rest) for name, rest in told.get("commands", {}).items()},
            answers=told.get("answers", ""),
        )
        for place in (one.part, one.answers, *(command.place for command in one.commands.values())):
            if place and not _PLACE.fullmatch(place):
                raise ValueError(f"{place!r} is no `module:name`")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: it does not say which distribution brings what: {error!r}") from error
    return one


def _writable(path: Path, core: os.stat_result) -> str:
    """Who else can write there, in words; "" where nobody can.

    Whoever can write the `core` itself has the agent's rights already: the account that owns a site's software, say.
    """
    try:
        status = path.stat()
    except OSError as error:
        return f"{path}: {error.strerror}"
    if status.st_uid not in (0, os.geteuid(), core.st_uid):
        return f"{path} belongs to user {status.st_uid}: it has to belong to root, to the agent's user or to {_CORE}"
    groups = {0, os.getegid(), *([core.st_gid] if core.st_mode & stat.S_IWGRP else [])}
    shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # nobody removes there what is another's
    group = status.st_mode & stat.S_IWGRP and status.st_gid not in groups
    if (group or status.st_mode & stat.S_IWOTH) and not shared:
        return f"{path} can be written by others than root, the agent's user and {_CORE}: `chmod go-w` it"
    return ""

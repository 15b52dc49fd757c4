"""What hatch cannot read in pyproject.toml: the pins of our own distributions, the commit, and what is compiled."""

from __future__ import annotations

import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# Distributions of plugins/, by the names of the extras that bring them.
BESIDE = ("dashboard", "fronts", "messages", "planning", "pool", "pyslurm", "rest", "site-view")
# Where the agent looks for the commit (host/commit.py), in an sdist and in a wheel.
PLACES = {"sdist": "agent/penstock/commit.txt", "wheel": "penstock/commit.txt"}


class Dependencies(MetadataHookInterface):
    """What is released together speaks one protocol, and asks for each other at one version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the library to what the core needs, and the distributions beside it to what may be installed with it."""
        version = metadata["version"]
        metadata["dependencies"] = [*self.config["dependencies"], f"penstock-dmr=={version}"]
        beside = {name: [f"penstock-{name}=={version}"] for name in BESIDE}
        # pyslurm fits one release of Slurm, so it is not for all.
        every = ["penstock[dashboard,fronts,messages,mpi,planning,plot,pool,rest,site-view]"]
        metadata["optional-dependencies"] = {
            **self.config["extras"],
            **beside,
            "mpi": [f"penstock-dmr[mpi]=={version}"],
            "all": every,
        }


class Built(BuildHookInterface[Any]):
    """A file with the commit, where git knows it, and the compiled kernel, where there is a C compiler."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are packed. An editable install asks git each time for the commit."""
        self._made = tempfile.TemporaryDirectory()
        if self.target_name == "wheel":
            self._compile(version == "editable", build_data)
        commit = self._run("agent/penstock/host/commit.py")["from_checkout"]()
        if version == "editable" or commit is None:
            return  # in an sdist the file is among the others
        written = Path(self._made.name, "commit.txt")
        written.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(written)] = PLACES[self.target_name]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after the files are packed."""
        self._made.cleanup()

    def _compile(self, editable: bool, build_data: dict[str, Any]) -> None:
        kernel = self._run("agent/penstock/kernel/compiling.py")
        folder = Path(self.root, "agent/penstock/kernel") if editable else Path(self._made.name)
        if (why := kernel["compile_into"](folder)) is not None:
            self.app.display_warning(f"Without the compiled kernel, the slower pure Python serves. {why}")
        elif not editable:
            built = kernel["BUILT"]
            build_data["force_include"][str(folder / built)] = f"penstock/kernel/{built}"
            # Of any Python, but of one machine.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data.update(pure_python=False, tag=f"py3-none-{platform}")

    def _run(self, file: str) -> dict[str, Any]:
        """A module by itself: its package needs more than a build has."""
        return runpy.run_path(str(Path(self.root, file)))

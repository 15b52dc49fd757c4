"""What hatch cannot read in pyproject.toml: the pins of our own distributions, and the commit that it is made of."""

from __future__ import annotations

import runpy
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


class Commit(BuildHookInterface[Any]):
    """A file with the commit, where git knows it. An editable install asks git each time."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are packed."""
        asked = Path(self.root, "agent/penstock/host/commit.py")
        commit = runpy.run_path(str(asked))["from_checkout"]()  # its package needs more than a build has
        if version == "editable" or commit is None:
            return  # in an sdist the file is among the others
        self._written = tempfile.NamedTemporaryFile("w", suffix=".txt")  # noqa: SIM115 # needed until it is packed
        self._written.write(f"{commit}\n")
        self._written.flush()
        build_data["force_include"][self._written.name] = PLACES[self.target_name]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after the files are packed."""
        if hasattr(self, "_written"):
            self._written.close()

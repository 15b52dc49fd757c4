"""What hatch cannot read in pyproject.toml: the pin of the agent."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """The laboratory uses the inside of the agent, which may change with every release."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Asks for the agent at this version, and for what its experiments are about; it needs nothing else."""
        metadata["dependencies"] = [f"penstock[planning,pool,rest]=={metadata['version']}"]

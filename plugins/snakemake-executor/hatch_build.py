"""What hatch cannot read in pyproject.toml: the pin of the agent."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """The plug-in uses the inside of the agent, which may change with every release."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the agent at this version to what else it needs."""
        metadata["dependencies"] = [*self.config["dependencies"], f"penstock[pool]=={metadata['version']}"]

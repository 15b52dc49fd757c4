"""What hatch cannot read in pyproject.toml: the pin of the core."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """It uses the inside of the core, which may change with every release."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the core at this version to what else it needs."""
        metadata["dependencies"] = [*self.config["dependencies"], f"penstock=={metadata['version']}"]

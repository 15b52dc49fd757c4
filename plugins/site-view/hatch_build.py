"""What hatch cannot read in pyproject.toml: the pins of our own distributions."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """It uses the inside of the core, and of those `beside` it, which may change with every release."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds them at this version to what else it needs."""
        ours = ["penstock", *self.config.get("beside", [])]
        pins = [f"{name}=={metadata['version']}" for name in ours]
        metadata["dependencies"] = [*self.config["dependencies"], *pins]

"""How a cluster does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from penstock_lab.cluster.daemons import Daemons

__all__ = ["Status", "look"]


@dataclass(frozen=True, slots=True)
class Status:
    """What runs of a cluster. `nodes` has Slurm's word for each ("IDLE"), or "no answer" without a controller."""

    name: str
    folder: Path
    slurm_version: str
    up: bool
    daemons: dict[str, bool]
    nodes: dict[str, str]
    users: dict[str, str]

    @property
    def healthy(self) -> bool:
        """Whether everything that was started runs."""
        return self.up and all(self.daemons.values())

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "folder": str(self.folder), "healthy": self.healthy}


def look(daemons: Daemons) -> Status:
    """Look at processes, and ask the controller for the nodes."""
    state = daemons.state
    said = daemons.node_states()
    return Status(
        name=state.name,
        folder=daemons.layout.root,
        slurm_version=state.slurm_version,
        up=state.up,
        daemons={name: daemons.alive(name) for name in (*daemons.core(), *state.spec.node_names)},
        nodes={name: said.get(name, "no answer") for name in state.spec.node_names},
        users=dict(state.users),
    )

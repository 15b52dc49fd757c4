"""What is recorded of a cluster in its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import UserError
from penstock.host.files import replace
from penstock_lab.cluster.files import Accounting, Ports
from penstock_lab.cluster.layout import Layout
from penstock_lab.cluster.network import Subnet
from penstock_lab.cluster.processes import Process
from penstock_lab.cluster.spec import ClusterSpec

__all__ = ["State", "is_begun", "is_ours", "load", "save"]

_VERSION = 2
_KEYS = {"version", "spec", "slurm_user", "processes"}


@dataclass
class State:
    """One cluster as its `cluster.json` says. `up` is False from the first write until everything answers.

    `subnet` is that of isolated nodes, else None.
    """

    spec: ClusterSpec
    name: str
    owner: int
    slurm_user: str
    slurm_version: str
    host: str
    ports: Ports
    accounting: Accounting
    users: dict[str, str]
    subnet: Subnet | None = None
    up: bool = False
    processes: dict[str, Process] = field(default_factory=dict)


def is_ours(layout: Layout) -> bool:
    """Whether the folder holds a cluster of this or any other release of Penstock, so that it may be removed."""
    try:
        data = json.loads(layout.state_file.read_text())
    except (OSError, ValueError):
        return is_begun(layout)
    return isinstance(data, dict) and data.keys() >= _KEYS


def is_begun(layout: Layout) -> bool:
    """Whether there is nothing yet but a record that was not written to its end."""
    begun = f".{layout.state_file.name}."
    return layout.root.is_dir() and [path.name.startswith(begun) for path in layout.root.iterdir()] == [True]


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot record {type(value).__name__}")


def save(layout: Layout, state: State) -> None:
    """Write the record in one step, so that a crash leaves the old or the new one."""
    text = json.dumps({"version": _VERSION, **asdict(state)}, default=_plain, indent=1)
    replace(layout.state_file, text + "\n", mode=0o644)


def load(layout: Layout) -> State | None:
    """The record, or None where there is no cluster; UserError if the file is none of ours."""
    try:
        data: dict[str, Any] = json.loads(layout.state_file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise UserError(f"{layout.state_file}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{layout.state_file}: not the record of a cluster ({error})") from error
    try:
        if data.pop("version") != _VERSION:
            raise UserError(
                f"{layout.root}: a cluster of another release of Penstock; penstock cluster down --dir {layout.root}"
            )
        spec = data.pop("spec")
        for key in ("folder", "join"):
            spec[key] = None if spec[key] is None else Path(spec[key])
        spec["extra"] = tuple(spec["extra"])
        spec["nodes_have"] = tuple(spec.get("nodes_have", ()))
        spec["beside"] = tuple(map(Path, spec.get("beside", ())))
        ports, accounting, processes = data.pop("ports"), data.pop("accounting"), data.pop("processes")
        subnet = data.pop("subnet", None)
        return State(
            spec=ClusterSpec(**spec),
            ports=Ports(ports["slurmctld"], tuple(ports["nodes"])),
            accounting=Accounting(accounting["port"], Path(accounting["munge_socket"])),
            subnet=None if subnet is None else Subnet(**subnet),
            processes={name: Process(**process) for name, process in processes.items()},
            **data,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{layout.state_file}: not the record of a cluster ({error!r})") from error

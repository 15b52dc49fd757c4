"""The configuration files of a cluster, rendered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock_lab.cluster.layout import Layout
from penstock_lab.cluster.network import Subnet
from penstock_lab.cluster.spec import ClusterSpec

__all__ = ["Accounting", "Ports", "cgroup_conf", "mariadb_sql", "slurm_conf", "slurmdbd_conf"]

LOCALHOST = "127.0.0.1"
_DATABASE = "slurm_acct"
_MEMORY = 64_000
"""MB that each node claims to have: tools ask for some with every job. It is no consumable, and so limits little."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of one cluster; those of the nodes in the order of their names."""

    slurmctld: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accounting:
    """The slurmdbd that a cluster reports to, its own or the one it joined, and the munge that both trust."""

    port: int
    munge_socket: Path


def _scheduler_parameters(spec: ClusterSpec) -> str:
    # Short periods, so that a test waits for Slurm as little as possible; bf_resolution is in seconds.
    short = "bf_interval=1,bf_resolution=1,bf_continue,sched_interval=2,sched_min_interval=20000"
    values = [spec.scheduling or short]
    if spec.expansion:
        values.append("permit_job_expansion")
    return ",".join(values)


def _priority(spec: ClusterSpec) -> list[str]:
    if not (spec.accrue_always or spec.age_counts):
        return ["PriorityWeightAge=1000", "PriorityMaxAge=7-0"]
    return [
        *(["PriorityFlags=ACCRUE_ALWAYS"] if spec.accrue_always else []),
        "PriorityCalcPeriod=1",
        "PriorityMaxAge=0-00:10",
        "PriorityWeightAge=100000",
    ]


def slurm_conf(
    spec: ClusterSpec,
    name: str,
    layout: Layout,
    ports: Ports,
    accounting: Accounting,
    *,
    user: str,
    slurmd_user: str,
    host: str,
    subnet: Subnet | None = None,
) -> str:
    """slurm.conf: every node is a slurmd of its own, which runs as the cluster's owner: on this host, or isolated."""
    here = LOCALHOST if subnet is None else subnet.login
    lines = [
        f"ClusterName={name}",
        f"SlurmctldHost={host}({here})",
        f"SlurmctldPort={ports.slurmctld}",
        f"SlurmUser={user}",
        f"SlurmdUser={slurmd_user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={accounting.munge_socket}",
        f"StateSaveLocation={layout.saved}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.saved}/slurmctld.pid",
        f"SlurmdPidFile={layout.spool}/%n.pid",
        # The logs of slurmctld and slurmd go to standard error, which is a file. That of slurmstepd would be lost.
        f"SlurmdLogFile={layout.logs}/%n.steps.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "MailProg=/bin/true",  # a throw-away job must not send real mail
        "PropagateResourceLimits=NONE",
        # The nodes claim what the file says, not what this machine has.
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        f"SlurmdTimeout={spec.slurmd_timeout}",
        "InactiveLimit=0",
        "KillWait=5",
        "Waittime=0",
        f"MinJobAge={spec.min_job_age}",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={_scheduler_parameters(spec)}",
        f"SelectType=select/{spec.select}",
        *(["SelectTypeParameters=CR_Core"] if spec.select == "cons_tres" else []),
        *(["PrologFlags=Contain"] if spec.contain else []),
        "PriorityType=priority/multifactor",
        *_priority(spec),
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={here}",
        f"AccountingStoragePort={accounting.port}",
        f"AccountingStoragePass={accounting.munge_socket}",
        *(["AccountingStorageEnforce=associations,limits,qos"] if spec.enforce else []),
        *(_tokens(layout) if spec.jwt else []),
    ]
    for index, (node, port) in enumerate(zip(spec.node_names, ports.nodes, strict=True)):
        place = f"NodeHostname={host} NodeAddr={here}" if subnet is None else f"NodeAddr={subnet.node(index)}"
        has = spec.nodes_have[index] if index < len(spec.nodes_have) else ""
        size = f"{has if 'CPUs=' in has else f'CPUs={spec.cpus} {has}'} RealMemory={_MEMORY}".replace("  ", " ")
        lines.append(f"NodeName={node} {place} Port={port} {size} State=UNKNOWN")
    lines += [
        f"PartitionName=batch Nodes={','.join(spec.node_names)} Default=YES MaxTime=UNLIMITED DefaultTime=10 State=UP",
        *spec.extra,
    ]
    return "\n".join(lines) + "\n"


def _tokens(layout: Layout) -> list[str]:
    return ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={layout.jwt_key}"]


def slurmdbd_conf(layout: Layout, port: int, user: str, *, jwt: bool = False) -> str:
    """slurmdbd.conf. The database is reached through its socket, which slurmdbd finds by MYSQL_UNIX_PORT."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "DbdHost=localhost",
        f"DbdPort={port}",
        f"SlurmUser={user}",
        f"PidFile={layout.saved}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        f"StorageLoc={_DATABASE}",
        *(_tokens(layout) if jwt else []),
    ]
    return "\n".join(lines) + "\n"


def mariadb_sql() -> str:
    """The statement with which MariaDB starts: slurmdbd finds its database there.

    It would make one itself, but libmariadb 3.4.10 (seen in sid with Slurm 26.05) takes no answer any more after a
    connection that was refused for want of its database: "Number of columns in result … maximum allowed".
    """
    return f"CREATE DATABASE IF NOT EXISTS {_DATABASE};\n"


def cgroup_conf(version: tuple[int, int]) -> str | None:
    """cgroup.conf, needed from 23.11 on: without it slurmd insists on a cgroup filesystem. Older releases want none."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else None

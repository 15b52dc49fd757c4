"""Bringing a cluster up. It can be repeated, and cleans up after a crash at any point."""

from __future__ import annotations

import os
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from penstock.errors import NotNow, UserError
from penstock_lab.cluster import database, files, network, users
from penstock_lab.cluster.cluster import Cluster
from penstock_lab.cluster.daemons import Daemons
from penstock_lab.cluster.files import Accounting, Ports
from penstock_lab.cluster.layout import Layout, believe, folder_lock, reserved_ports
from penstock_lab.cluster.programs import check_programs, slurm_version, user_programs, version_pair
from penstock_lab.cluster.removal import clean, joined
from penstock_lab.cluster.rootfs import prepare
from penstock_lab.cluster.spec import ClusterSpec, check_folder, default_folder
from penstock_lab.cluster.state import State, is_begun, load, save

__all__ = ["up"]


def up(spec: ClusterSpec | None = None) -> Cluster:
    """Bring a cluster up and wait until every node is idle; a running one is returned as it is (`already_up`).

    UserError before anything is written when it cannot be; PenstockError with the end of a log, and nothing left
    behind, when a daemon does not start.
    """
    spec = spec or ClusterSpec()
    spec.check()
    if spec.isolated:
        network.check_isolation(_host(), spec.node_names)
    if spec.release is None:
        check_programs()
        version = slurm_version()
    else:
        version = prepare(spec.release).slurm_version
    root = check_folder(spec.folder or default_folder())
    base = None if spec.join is None else _base(spec.join, root, version)
    spec = replace(spec, folder=root, join=None if base is None else base.folder)
    _open_way(root)
    layout = Layout(root)
    with folder_lock(root, create=True):
        running = _running(layout)
        if running is not None:
            return running
        if load(layout) is not None or is_begun(layout):
            clean(layout)
            root.mkdir(mode=0o755)
        elif any(root.iterdir()):
            raise UserError(f"--dir {root}: not empty, and no cluster of Penstock; choose another folder")
        try:
            return _build(spec, layout, base, version)
        except BaseException:
            clean(layout)
            raise


def _base(folder: Path, root: Path, version: str) -> Cluster:
    """The cluster to join."""
    believe(folder)
    try:
        base = Cluster.load(folder)
    except UserError as error:
        raise UserError(f"--join {folder}: no cluster there") from error
    if base.folder == root:
        raise UserError(f"--join {folder}: a cluster cannot join itself; give the new one another --dir")
    if base.spec.join is not None:
        raise UserError(f"--join {folder}: it joined {base.spec.join} itself; join that one")
    if base.daemons.state.owner != os.geteuid():
        raise UserError(f"--join {folder}: that cluster belongs to another user")
    if not base.daemons.state.up or not all(base.daemons.alive(name) for name in base.daemons.core()):
        raise UserError(f"--join {folder}: that cluster is not running")
    if version_pair(base.slurm_version) < version_pair(version):
        raise UserError(f"--join {folder}: its accounting, of Slurm {base.slurm_version}, is older than {version}")
    return base


def _open_way(root: Path) -> None:
    """As root other users must get at the sockets, so every folder above has to let them through; the missing are made.

    UserError before that for one that does not.
    """
    if os.geteuid() != 0:
        return
    for parent in reversed(root.parents):
        if parent.exists():
            if not parent.stat().st_mode & 0o001:
                raise UserError(f"--dir {root}: ordinary users cannot pass {parent}; choose a folder they can reach")
            continue
        try:
            parent.mkdir(exist_ok=True)
            parent.chmod(0o755)  # whatever the caller's umask is
        except OSError as error:
            raise UserError(f"--dir {root}: {error.strerror}") from error


def _running(layout: Layout) -> Cluster | None:
    """The cluster if it is up; nodes that died meanwhile are started again. None if it must be built anew."""
    state = load(layout)
    if state is None or not state.up:
        return None
    daemons = Daemons(layout, state)
    if not all(daemons.alive(name) for name in daemons.core()):
        return None
    dead = [name for name in state.spec.node_names if not daemons.alive(name)]
    for name in dead:
        daemons.start(name)
    daemons.await_nodes(dead)
    return Cluster(daemons, already_up=True)


def _host() -> str:
    """This machine's name, as Slurm has it."""
    return socket.gethostname().split(".")[0]


def _free_name(spec: ClusterSpec, base: Cluster | None) -> str:
    taken = set()
    if base is not None:
        taken = {base.name, *joined(base.folder)}
    if spec.name is None:
        names = ("penstock", *(f"penstock{i}" for i in range(2, 1000)))
        return next(name for name in names if name not in taken)
    if spec.name in taken:
        raise UserError(f"--name {spec.name}: the cluster of --join already has one of this name")
    return spec.name


def _build(spec: ClusterSpec, layout: Layout, base: Cluster | None, version: str) -> Cluster:
    own_ports = 1 + spec.nodes + (1 if base is None else 0)
    with reserved_ports(own_ports) as ports:
        root = os.geteuid() == 0
        state = State(
            spec=spec,
            name=_free_name(spec, base),
            owner=os.geteuid(),
            slurm_user=users.SLURM_USER if root else users.identity().name,
            slurm_version=version,
            host=_host(),
            ports=Ports(ports[0], tuple(ports[1 : 1 + spec.nodes])),
            accounting=Accounting(ports[-1], layout.munge_socket) if base is None else base.daemons.state.accounting,
            users=dict(users.PEOPLE) if root else {"operator": users.identity().name},
        )
        layout.root.chmod(0o755)
        save(layout, state)  # from here on the folder is known as ours
        daemons = Daemons(layout, state)
        with users.users_lock():
            # Until a first daemon carries the mark, the end of another cluster would take the users away.
            if root:
                users.ensure_users(layout.homes)
            _folders(layout, state)
            _write_programs(layout, state)
            if spec.isolated:
                state.subnet = network.choose_subnet()
                machine = Path("/etc/hosts").read_text(errors="replace")
                text = network.hosts_file(state.host, state.subnet, spec.node_names, machine)
                _write(layout.hosts, text.encode(), 0o644, users.identity())
            for name in daemons.holders():
                daemons.start(name)
                daemons.await_core(name)
            if spec.release is not None:
                _write_commands(layout, daemons)
            if base is None:
                daemons.start("munged")
            else:
                _claim_name(base.daemons.layout, state.name, layout.root)
                _configure(layout, state)
                _start_slurm(daemons)
        if base is None:
            with ThreadPoolExecutor(1) as pool:
                made = pool.submit(database.create, daemons)
                _configure(layout, state)
                daemons.await_core("munged")
                made.result()
            daemons.start("slurmdbd")
            daemons.await_core("slurmdbd")
            _start_slurm(daemons)
        daemons.await_core("slurmctld")
        daemons.await_nodes(spec.node_names)
    state.up = True
    save(layout, state)
    return Cluster(daemons)


def _claim_name(base: Layout, name: str, root: Path) -> None:
    try:
        (base.joined / name).symlink_to(root)
    except FileExistsError:
        raise NotNow(f"another cluster has just joined {base.root} as {name}; try again") from None


def _start_slurm(daemons: Daemons) -> None:
    database.register(daemons)
    for name in ("slurmctld", *daemons.state.spec.node_names):
        daemons.start(name)


def _folders(layout: Layout, state: State) -> None:
    who, me = users.identity(state.slurm_user), users.identity()
    own = {layout.munge: 0o700, layout.run: 0o755, layout.saved: 0o700}
    if state.spec.join is None:
        own[layout.database] = 0o700
    plain = dict.fromkeys((layout.etc, layout.spool, layout.logs, layout.homes, layout.joined, layout.programs), 0o755)
    if state.spec.isolated:
        plain[layout.network] = 0o755
    if state.spec.release is not None:
        plain |= dict.fromkeys((layout.bin, layout.mount_point), 0o755)
    for path, mode in (own | plain).items():
        path.mkdir(mode=mode)
        path.chmod(mode)  # whatever the caller's umask is
        if path in own and who != me:
            os.chown(path, who.uid, who.gid)
    for login in users.PEOPLE.values() if me.uid == 0 else ():
        person, home = users.identity(login), layout.homes / login
        home.mkdir(mode=0o700)
        home.chmod(0o700)
        os.chown(home, person.uid, person.gid)
    if state.spec.join is None:
        _write(layout.munge / "munge.key", secrets.token_bytes(128), 0o600, who)
        if state.spec.jwt:
            _write(layout.jwt_key, secrets.token_bytes(32), 0o600, who)
        _write(layout.database_init, files.mariadb_sql().encode(), 0o644, me)


def _configure(layout: Layout, state: State) -> None:
    who, me = users.identity(state.slurm_user), users.identity()
    conf = files.slurm_conf(
        state.spec,
        state.name,
        layout,
        state.ports,
        state.accounting,
        user=who.name,
        slurmd_user=me.name,
        host=state.host,
        subnet=state.subnet,
    )
    _write(layout.slurm_conf, conf.encode(), 0o644, me)
    if state.spec.join is None:
        dbd = files.slurmdbd_conf(layout, state.accounting.port, who.name, jwt=state.spec.jwt)
        _write(layout.etc / "slurmdbd.conf", dbd.encode(), 0o600, who)
    cgroup = files.cgroup_conf(version_pair(state.slurm_version))
    if cgroup is not None:
        _write(layout.etc / "cgroup.conf", cgroup.encode(), 0o644, me)
    for file in state.spec.beside:
        _write(layout.etc / file.name, file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644, me)


def _write_commands(layout: Layout, daemons: Daemons) -> None:
    me = users.identity()
    for name, text in daemons.enclosure.commands().items():
        _write(layout.bin / name, text.encode(), 0o755, me)


def _write_programs(layout: Layout, state: State) -> None:
    me = users.identity()
    for name, text in user_programs(layout.slurm_conf, own=state.spec.release is None).items():
        _write(layout.programs / name, text.encode(), 0o755, me)


def _write(path: Path, content: bytes, mode: int, owner: users.Identity) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        if owner.uid != os.geteuid():
            os.fchown(file.fileno(), owner.uid, owner.gid)
        file.write(content)

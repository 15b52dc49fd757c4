"""The accounting database: made empty, then told of the cluster and its users."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

from penstock.cluster.daemons import Daemons, database_options
from penstock.cluster.processes import MARK, tail
from penstock.cluster.programs import PATH
from penstock.cluster.users import identity
from penstock.errors import PenstockError

__all__ = ["ACCOUNT", "create", "forget", "register"]

ACCOUNT = "penstock"


def create(daemons: Daemons) -> None:
    """Make an empty database and start its server; it lies in a folder that only Slurm's user can enter."""
    at, who = daemons.layout, identity(daemons.state.slurm_user)
    log = at.log("mariadb-install-db")
    prefix, cwd, run_as = daemons.become(who)
    program = "mariadb-install-db"
    argv = [*prefix, program if prefix else shutil.which(program, path=PATH) or program, *database_options(at)]
    argv += ["--skip-test-db", "--auth-root-authentication-method=normal"]
    env = {"PATH": PATH, "LC_ALL": "C.UTF-8", MARK: str(at.root)}
    with log.open("ab") as output:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            timeout=60,
            check=False,
            **run_as,
        )
    if done.returncode != 0:
        raise PenstockError(f"mariadb-install-db failed; the end of its log:\n{tail(log)}")
    daemons.start("mariadbd")
    daemons.await_core("mariadbd")


def register(daemons: Daemons) -> None:
    """Tell slurmdbd of the cluster, one account, and the users; must precede the start of slurmctld."""
    name, users = daemons.state.name, daemons.state.users
    _sacctmgr(daemons, "add", "cluster", name)
    _sacctmgr(daemons, "add", "account", ACCOUNT, f"cluster={name}", "Description=Penstock", "Organization=Penstock")
    plain = sorted({login for role, login in users.items() if role != "operator"})
    if plain:
        _sacctmgr(daemons, "add", "user", ",".join(plain), f"account={ACCOUNT}", f"cluster={name}")
    _sacctmgr(daemons, "add", "user", users["operator"], f"account={ACCOUNT}", f"cluster={name}", "AdminLevel=Operator")


def forget(base: Daemons, name: str) -> None:
    """Take a cluster out of the slurmdbd of `base`, which it joined; best effort, for that one may be ending, too."""
    with contextlib.suppress(PenstockError):
        base.command(["sacctmgr", "-i", "delete", "cluster", name])


def _sacctmgr(daemons: Daemons, *words: str) -> None:
    done = daemons.command(["sacctmgr", "-i", "-Q", *words], 20)
    # It ends with 1 and these words where nothing was to be done.
    if done.returncode != 0 and "Nothing new added" not in done.stdout + done.stderr:
        text = (done.stderr + done.stdout).strip() or done.returncode
        raise PenstockError(f"sacctmgr {' '.join(words)} failed: {text}\n{tail(daemons.layout.log('slurmdbd'))}")

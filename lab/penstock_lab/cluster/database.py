"""The accounting database: made empty, told of the cluster and its users, and changed as an administrator would."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time

from penstock.errors import PenstockError
from penstock_lab.cluster.daemons import Daemons, database_options
from penstock_lab.cluster.processes import MARK, tail
from penstock_lab.cluster.programs import PATH
from penstock_lab.cluster.users import identity

__all__ = ["ACCOUNT", "administer", "create", "forget", "register"]

ACCOUNT = "penstock"
_FENCE = "pst-fence"  # a QOS that nobody uses
_PATIENCE = 20.0
# It ends with 1 and one of these where nothing was to be done.
_NOTHING = ("Nothing new added", "Nothing modified", "Nothing deleted")


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
    # Where limits are enforced, as the guide says to set up the service user (docs/install.md): it has no account of
    # those that it serves. A plain user's cluster has no other user to run jobs as.
    account = "root" if daemons.state.spec.enforce and plain else ACCOUNT
    _sacctmgr(daemons, "add", "user", users["operator"], f"account={account}", f"cluster={name}", "AdminLevel=Operator")


def forget(base: Daemons, name: str) -> None:
    """Take a cluster out of the slurmdbd of `base`, which it joined; best effort, for that one may be ending, too."""
    with contextlib.suppress(PenstockError):
        base.command(["sacctmgr", "-i", "delete", "cluster", name])


def administer(daemons: Daemons, *words: str) -> str:
    """Run `sacctmgr -i` with these words and wait until slurmctld knows of it; what it printed.

    slurmdbd passes changes on in their order: that of a QOS which nobody uses is sent behind this one, and shows that
    it has come. PenstockError when sacctmgr refuses, or slurmctld does not hear of it.
    """
    said = _sacctmgr(daemons, *words)
    mark = str(time.monotonic_ns() % 2_000_000_000)
    _sacctmgr(daemons, "add", "qos", _FENCE)
    _sacctmgr(daemons, "modify", "qos", _FENCE, "set", f"priority={mark}")
    deadline = time.monotonic() + _PATIENCE
    while _fence(daemons) != mark:
        if time.monotonic() > deadline:
            raise PenstockError(f"slurmctld has not heard of: sacctmgr {' '.join(words)}")
        time.sleep(0.05)
    return said


def _fence(daemons: Daemons) -> str | None:
    shown = daemons.command(["scontrol", "-o", "show", "assoc_mgr", "flags=qos", f"qos={_FENCE}"]).stdout
    found = re.search(rf"^QOS={_FENCE}\b.* Priority=([0-9]+)", shown, re.MULTILINE)
    return found and found[1]


def _sacctmgr(daemons: Daemons, *words: str) -> str:
    done = daemons.command(["sacctmgr", "-i", "-Q", *words], _PATIENCE)
    if done.returncode != 0 and not any(word in done.stdout + done.stderr for word in _NOTHING):
        text = (done.stderr + done.stdout).strip() or done.returncode
        raise PenstockError(f"sacctmgr {' '.join(words)} failed: {text}\n{tail(daemons.layout.log('slurmdbd'))}")
    return done.stdout

"""A site as an administrator finds it: a fresh Debian 12 with Slurm under systemd, and nothing of Penstock."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from booted import Booted

from outside import need_program
from penstock_lab.cluster.rootfs import cache_folder

# systemd and manual pages are on every Debian; the rest is what a site installs for its Slurm.
_PACKAGES = "systemd,dbus,man-db,munge,mariadb-server,slurm-wlm,slurmdbd,slurm-wlm-mysql-plugin,slurm-wlm-basic-plugins"
_RELEASE = "bookworm"

# $0: the first of six free ports. What an administrator has done before: munge, accounting, four nodes, a user.
_SITE = """
cat >/etc/slurm/slurm.conf <<END
ClusterName=site
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$0
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/%n
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldPidFile=/run/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
SelectType=select/linear
SchedulerParameters=bf_interval=2,permit_job_expansion
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$(($0 + 1))
NodeName=n[1-4] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$(($0 + 2))-$(($0 + 5))] CPUs=1
PartitionName=batch Nodes=n[1-4] Default=YES MaxTime=INFINITE DefaultTime=10
END
cat >/etc/slurm/slurmdbd.conf <<END
DbdHost=localhost
DbdPort=$(($0 + 1))
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd.pid
END
chown slurm: /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/n1 /var/lib/slurm/n2 /var/lib/slurm/n3 /var/lib/slurm/n4
chown -R slurm: /var/lib/slurm
mkdir -p /etc/mysql/mariadb.conf.d
printf '[mysqld]\\nskip-networking\\n' >/etc/mysql/mariadb.conf.d/99-site.cnf
useradd --create-home --shell /bin/bash alice
systemctl start munge mariadb
mariadb -e "CREATE DATABASE slurm_acct_db; GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED VIA unix_socket"
systemctl start slurmdbd
until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.5; done
sacctmgr -i add cluster site >/dev/null
sacctmgr -i add account users >/dev/null
sacctmgr -i add user alice account=users >/dev/null
systemctl start slurmctld
for node in n1 n2 n3 n4; do systemd-run --quiet --unit="slurmd-$node" slurmd -D -N "$node"; done
until [ "$(sinfo -h -t idle -o %D)" = 4 ]; do sleep 0.5; done
"""


def tree() -> Path:
    """The root file system, built once (some minutes, and the network) and kept. Nothing may be written to it."""
    bootstrap = need_program("mmdebstrap", "mmdebstrap")
    cache = cache_folder()
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    place = cache / "test-site"
    with (cache / "test-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / "packages"
        if done.exists() and done.read_text() == _PACKAGES:
            return place / "root"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        words = ["unshare", "--mount", "--propagation", "private", "--", bootstrap, "--variant=apt"]
        words += [
            '--aptopt=Acquire::Check-Valid-Until "false"',
            f"--include={_PACKAGES}",
            _RELEASE,
            str(place / "root"),
        ]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=1500, cwd="/")
        done.write_text(_PACKAGES)
    return place / "root"


def _pip_certificates() -> str:
    """By which this machine believes PyPI; "" where pip needs no help."""
    if named := os.environ.get("PIP_CERT"):
        return named
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = re.search(r"^global\.cert='(.+)'$", told, re.MULTILINE)
    return found[1] if found else ""


class Machine(Booted):
    """Debian, booted; nothing that happens in it stays. It has the network and the host name of this machine."""

    def __init__(self, *shared: Path) -> None:
        super().__init__(*shared, tree=tree())
        if certificates := _pip_certificates():
            root = Path(f"/proc/{self.init}/root")
            shutil.copyfile(certificates, root / "etc/pip.crt")
            (root / "etc/pip.conf").write_text("[global]\ncert = /etc/pip.crt\n")

    def script(self, text: str, *words: str, login: str = "root", limit: float = 240) -> str:
        """What a shell says that runs this at home, and stops at the first command that fails, which must not be.

        `words` are $0, $1, …
        """
        home = "/root" if login == "root" else f"/home/{login}"
        become = ["runuser", "-u", login, "--"] if login != "root" else []
        done = self.run(
            *become, "env", f"--chdir={home}", f"HOME={home}", "bash", "-eu", "-c", text, *words, limit=limit
        )
        assert done.returncode == 0, f"{text}\nends with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start_slurm(self, port: int) -> None:
        """As the site has it. `port`: the first of six that are free."""
        self.script(_SITE, str(port))

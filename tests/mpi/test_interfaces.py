"""MPI programs on a machine whose network interfaces come and go, as those of containers and of clusters do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

# A network with nothing but loopback and six links that are made and taken away, which /sys shows; then the command.
_RESTLESS = """
mount -t sysfs sysfs /sys
ip link set lo up
while :; do
    for k in 1 2 3 4 5 6; do
        ip link add a$k type veth peer name b$k
        ip addr add 10.9.$k.1/24 dev a$k
        ip link set a$k up
        ip link set b$k up
    done
    for k in 1 2 3 4 5 6; do ip link del a$k; done
done &
"$@"
code=$?
kill $!
exit $code
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network")
def test_programs_start_while_interfaces_come_and_go(tmp_path: Path) -> None:
    """With what tests/conftest.py and `Cluster.env` set; without it two runs in three say or end with errors of UCX."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists() or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs mpiexec beside this Python (pip install mpich), iproute2 and util-linux")
    program = [str(mpiexec), "-n", "2", sys.executable, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.barrier()"]
    again = ["sh", "-c", 'for k in 1 2 3 4 5; do "$@" || exit; done', "sh"]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--", "sh", "-c", _RESTLESS, "sh", *again, *program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

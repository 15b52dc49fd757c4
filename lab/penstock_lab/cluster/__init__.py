"""A throw-away real Slurm of several nodes on one machine, for the demo and the tests.

cluster = up(ClusterSpec(nodes=4))
try:
    cluster.run_as("alice", ["sbatch", "--wrap", "hostname"], check=True)
finally:
    cluster.down()
"""

from penstock_lab.cluster.cluster import Cluster
from penstock_lab.cluster.lifecycle import up
from penstock_lab.cluster.removal import down, joined
from penstock_lab.cluster.spec import ClusterSpec, default_folder

__all__ = ["Cluster", "ClusterSpec", "default_folder", "down", "joined", "up"]

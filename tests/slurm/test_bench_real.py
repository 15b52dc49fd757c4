"""penstock bench dmr --part real on a small scale: stand-ins on a real Slurm, under a real agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_lab.papers.dmr import compressed

pytestmark = [pytest.mark.slurm]
NODES = 8


@pytest.mark.long
def test_a_workload_runs_compressed_and_nothing_is_left() -> None:
    before = set(Path("/var/tmp").glob("penstock-bench-*"))
    logs: dict[str, str] = {}
    latencies, (flexible,) = compressed.measure(4, NODES, 120.0, ["flexible"], (2, 1), keep=logs.__setitem__)
    assert latencies.cycle >= 0 and latencies.launch > 0 and 0 < latencies.merge < 30 and 0 < latencies.shrink < 30
    assert len(flexible.real.ran) == len(flexible.simulated[0].ran) == 4, "every job has completed"
    assert flexible.real.curve[-1].nodes == 0 and max(p.nodes for p in flexible.real.curve) <= NODES
    checks = [a for a in flexible.real.actions if a.kind == "none"]
    assert checks and flexible.unheard < len(checks), logs["flexible.log"][-2000:]
    assert len(compressed.rows([flexible], NODES, 120.0)) == 2
    assert set(Path("/var/tmp").glob("penstock-bench-*")) <= before, "the cluster is gone"

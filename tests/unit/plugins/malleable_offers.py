"""What tests of joint policies say of malleable jobs."""

from __future__ import annotations

from penstock.api import Offer
from penstock_lab.testing import make_job, make_snapshot


def offer(job, nodes, minimum=1, maximum=8, factor=2, preferred=None, **more):
    return Offer(job, len(nodes), minimum, maximum, factor, preferred, 1, tuple(nodes), **more)


def scales(serial, size, left=1000.0):
    """What a program by Amdahl's law says of its steps on that size: `left` seconds of them."""
    seconds = serial + (1 - serial) / size
    return {"steps_left": int(left / seconds), "step_seconds": seconds}


def decide_with(policy, offers, *others, down=(), at=0.0):
    """Size and beneficiary by job, on a cluster with these and other jobs."""
    mine = [make_job(o.job, *o.nodes) for o in offers]
    verdicts = policy.decide_all(offers, make_snapshot([*mine, *others], at=at, down=down))
    return {job: (v.size, v.beneficiary) for job, v in verdicts.items()}


def seen_by(policy, *offers):
    """The policy, after it has seen these offers on an empty cluster, one after the other."""
    for each in offers:
        decide_with(policy, [each])
    return policy

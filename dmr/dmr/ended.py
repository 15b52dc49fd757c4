"""`python -m dmr.ended JOB...`: a job script asks the agent how other jobs of its user stand, instead of asking Slurm.

    12 RUNNING
    13 FAILED
    again 30

One line for each job that the agent knows; what it has not seen is left out. The last line says after how many seconds
to ask again: the more ask, the later. It ends with 1, and says why on stderr, where no agent answers; then Slurm is to
be asked. The agent's word is as old as its last look at the queue. Standard library only.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from dmr import wire
from dmr.client import Client

__all__ = ["main"]

_BUSY_AGAIN: Final = 30.0


def main(argv: Sequence[str]) -> int:
    """The command; its exit code."""
    logging.basicConfig(level=logging.ERROR)
    own = os.environ.get("SLURM_JOB_ID", "")
    if not argv or not all(word.isascii() and word.isdigit() for word in (*argv, own)):
        print("usage: python -m dmr.ended JOB... (within a job)", file=sys.stderr)
        return 2
    client = Client.from_environment()
    if client is None:
        print("dmr.ended: DMR_AGENT does not say where an agent is", file=sys.stderr)
        return 1
    try:
        reply = client.request(wire.Ended(job=int(own), epoch=0, jobs=tuple(dict.fromkeys(map(int, argv)))))
    except wire.WireError as error:
        print(f"dmr.ended: {error}", file=sys.stderr)
        return 2
    if isinstance(reply, wire.Failure) and reply.error == "busy":
        reply = wire.Endings(states={}, again_in=_BUSY_AGAIN)
    if not isinstance(reply, wire.Endings):
        why = (
            f"the agent says {reply.error}: {reply.message}" if isinstance(reply, wire.Failure) else "no agent answers"
        )
        print(f"dmr.ended: {why}", file=sys.stderr)
        return 1
    for job, state in reply.states.items():
        print(job, state)
    print(f"again {reply.again_in:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A stranger in the real soak, who asks for what is not theirs: as an ordinary user of the cluster, at all doors."""

from __future__ import annotations

import json
import sys
from typing import Final

from penstock_lab.soak.invariants import Forgery
from penstock_lab.soak.site import BOB, OWNER, Site

__all__ = ["forge"]

# A stranger at the applications' door and at that of commands: what is answered, one JSON list.
_STRANGER: Final = """\
import json, socket, sys
from pathlib import Path
from dmr import credential, wire
from penstock.errors import PenstockError
from penstock.ipc.client import ask
address, munge, path, jobs, run = sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]), int(sys.argv[5])
said = []
host, _, port = address.rpartition(":")
for job in jobs:
    for request in (
        wire.Check(job=job, epoch=0, size=1, minimum=1, maximum=8),
        wire.Accept(job=job, epoch=1),
        wire.Finished(job=job, epoch=1, size=8, nodes=("n1",)),
        wire.Announce(job=job, epoch=0, size=8, in_seconds=1.0),
    ):
        line = wire.encode(wire.signed(request, lambda digest: credential.sign_munge(digest, munge)))
        try:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(line)
                with connection.makefile("rb") as stream:
                    reply = wire.decode_reply(stream.readline())
        except (OSError, ValueError) as e:
            continue
        unseen = isinstance(reply, wire.CheckReply) and "not seen this job" in reply.reason
        said.append([f"a stranger's {request.op} for job {job}", not isinstance(reply, wire.Failure) and not unseen,
                     repr(reply)])
for op, arguments in (("cancel", {"run": run}), ("retry", {"run": run}), ("queue", {}), ("pause", {}),
                      ("explain", {"subject": f"workflow {run}"})):
    try:
        said.append([f"a stranger's {op}", True, repr(ask(path, op, arguments, timeout=10))])
    except PenstockError as e:
        said.append([f"a stranger's {op}", False, repr(e)])
print(json.dumps(said))
"""


def forge(place: Site, address: str, run: int) -> list[Forgery] | str:
    """Requests about jobs that run, and about a workflow: what was answered to each, or why none could be made.
    `address` is where programs find the agent."""
    jobs = place.slurm("squeue", "-h", "-t", "R", "-o", "%i", "-u", place.cluster.users[OWNER]).split()
    numbers = [int(j) for j in jobs if j.isdecimal()][:3]
    words = (sys.executable, "-c", _STRANGER, address, str(place.cluster.munge_socket))
    done = place.command(BOB, *words, str(place.socket), json.dumps(numbers), str(run))
    if done.returncode:
        return done.stderr.strip()[-300:]
    return [Forgery(*said) for said in json.loads(done.stdout)]

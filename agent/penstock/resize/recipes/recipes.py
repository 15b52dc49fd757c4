"""Recipes: what `start`, `join` and `leave` are for programs that people have. Pure.

A recipe is a function of what the file says; whatever the file says itself counts before it. `$PENSTOCK_ELASTIC_HEAD`,
`_PORT`, `_FOLDER` and so on are set by the supervisor on all nodes, `$PENSTOCK_HOST` on a node's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["RECIPES", "Recipe", "RecipeWish"]


@dataclass(frozen=True, slots=True)
class RecipeWish:
    """What a file says that recipes make something of. `own` is the Python that runs the supervisor; grace in s."""

    minimum: int
    maximum: int
    run: str | None = None
    tasks: str | None = None
    pool: str | None = None
    slots: int | None = None
    python: str = "python3"
    options: str = ""
    grace: float | None = None
    own: str = "python3"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`needs` are keys that the file must have, each with what it is; `takes` those that it may have."""

    make: Callable[[RecipeWish], dict[str, object]]
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()


def _farm(wish: RecipeWish) -> dict[str, object]:
    """Lines of a file, each once, on as many nodes as there are (`dmr.elastic.farm`)."""
    grace = 60.0 if wish.grace is None else wish.grace
    module = f"{shlex.quote(wish.own)} -m dmr.elastic.farm"
    slots = f" --slots {wish.slots}" if wish.slots else ""
    folder = '"$PENSTOCK_ELASTIC_FOLDER"/farm'
    return {
        "start": f"exec {module} head {shlex.quote(wish.tasks or '')} {folder}{slots}",
        "join": f"exec {module} worker {folder}{slots} --grace {grace:g}",
        "grace": grace,
    }


# First they take no more tasks (what they have not begun, others steal). Retired at once they would be closed with
# tasks under way, which others would run anew (distributed 2026.8). In the last quarter of the grace, of 15 s at most,
# results move to the others and workers end.
_RETIRE: Final = """
import os, time
from distributed import Client
def running(dask_worker):
    return len(dask_worker.state.executing) + len(dask_worker.state.long_running)
seconds = float(os.environ["PENSTOCK_RESIZE_SECONDS"])
end = time.monotonic() + seconds - min(seconds / 4, 15)
names = os.environ["PENSTOCK_RESIZE_HOSTS"].split(",")
client = Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout=10)
leaving = list(client.retire_workers(names=names, close_workers=False, remove=False))
while leaving and time.monotonic() < end:
    told = client.run(running, workers=leaving, on_error="ignore")  # one that cannot be asked has ended
    if not any(told.values()):
        break
    time.sleep(0.2)
client.retire_workers(names=names, close_workers=True, remove=True)
"""


def _dask(wish: RecipeWish) -> dict[str, object]:
    """A scheduler and the program on the first node, a worker on each; one that leaves ends the tasks that it runs, and
    gives its results to the others."""
    python = shlex.quote(wish.python)
    threads = f"--nthreads {wish.slots}" if wish.slots else ""
    address = 'export DASK_SCHEDULER_ADDRESS="tcp://$PENSTOCK_ELASTIC_HEAD:$PENSTOCK_ELASTIC_PORT"'
    # In /tmp, where a node's own disk is: what spills is of no use to other nodes.
    worker = (
        f'exec {python} -m distributed.cli.dask_worker "$DASK_SCHEDULER_ADDRESS" --name "$PENSTOCK_HOST" '
        f"--no-dashboard --death-timeout 60 --local-directory /tmp {threads} {wish.options}"
    )
    scheduler = f'{python} -m distributed.cli.dask_scheduler --port "$PENSTOCK_ELASTIC_PORT" --no-dashboard'
    return {
        "start": f"{address}\n{scheduler} &\nscheduler=$!\n{wish.run}\ncode=$?\nkill $scheduler\nexit $code",
        "join": f"{address}\n{worker}".rstrip(),
        "ready_line": "Registered to",
        "leave": f"{address}\n{python} -c {shlex.quote(_RETIRE)}",
        "grace": 120.0,
    }


def _pool(wish: RecipeWish) -> dict[str, object]:
    """The program on the first node sends tasks to a pool that is open; each node is a member of it."""
    penstock = f"{shlex.quote(wish.own)} -m penstock pool"
    name = shlex.quote(wish.pool or "")
    # It fails when no member is left: what runs there may end first.
    drain = f'while {penstock} drain --pool {name} "$job" >/dev/null 2>&1; do sleep 1; done'
    leave = f'for job in $(echo "$PENSTOCK_RESIZE_COMPANIONS" | tr , " "); do {drain}; done'
    return {"start": wish.run, "join": f"exec {penstock} join --pool {name}", "leave": leave, "grace": 300.0}


_DRAIN: Final = """
import os, subprocess, sys, time
import ray
end = time.monotonic() + float(os.environ["PENSTOCK_RESIZE_SECONDS"]) - 5
ray.init(log_to_driver=False)
names = {"penstock-" + host for host in os.environ["PENSTOCK_RESIZE_HOSTS"].split(",")}
leaving = {n["NodeID"] for n in ray.nodes() if n["Alive"] and names & n["Resources"].keys()}
drain = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", os.environ["RAY_ADDRESS"]]
drain += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "the nodes are given back"]
for node in leaving:
    seconds = str(max(1, int(end - time.monotonic())))
    subprocess.run([*drain, "--node-id", node, "--deadline-remaining-seconds", seconds])
while time.monotonic() < end and leaving & {n["NodeID"] for n in ray.nodes() if n["Alive"]}:
    time.sleep(0.2)
"""


def _ray(wish: RecipeWish) -> dict[str, object]:
    """Ray's head and the program on the first node, a raylet on each; one that leaves is drained: it takes no more
    tasks, and ends when it has ended those it has. Results that are lost with it, Ray works out again."""
    python = shlex.quote(wish.python)
    ray = f"{python} -m ray.scripts.scripts"
    # A place of its own, as in Ray's own one the clusters of all users of a host meet. Without a token whoever reaches
    # the port may run anything as this user.
    address = (
        'export RAY_ADDRESS="$PENSTOCK_ELASTIC_HEAD:$PENSTOCK_ELASTIC_PORT"\n'
        'export RAY_TMPDIR="/tmp/ray-$PENSTOCK_ELASTIC_JOB"\n'
        "export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0\n"  # it was drained before, where there is time for it
        'export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$(cd "$PENSTOCK_ELASTIC_FOLDER" && pwd)/ray-token"\n'
    )
    # The last one of the job on a host takes away what Ray has left there. Where several nodes of Slurm are one host,
    # those that join at once would give their sockets one name, and one would fail a minute later (2.60).
    own = '--temp-dir "$RAY_TMPDIR/$$"'
    place = (
        'exec 9>"$PENSTOCK_ELASTIC_FOLDER/ray-$(uname -n).lock" && flock -s 9\n'
        'mkdir -p -m 700 "$RAY_TMPDIR"; [ -O "$RAY_TMPDIR" ] || exit 1'
    )
    tidy = 'flock -xn 9 && rm -rf "$RAY_TMPDIR"'
    token = f'(umask 077; {python} -c "import secrets; print(secrets.token_hex(32))" >"$RAY_AUTH_TOKEN_PATH")'
    # `ray stop` would end all that its user has of Ray on the host.
    head = (
        f'{ray} start --head --port "$PENSTOCK_ELASTIC_PORT" --num-cpus 0 --include-dashboard false '
        "--disable-usage-stats --block &"
    )
    healthy = (
        f'until {ray} health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do kill -0 $head || exit 1; sleep 1; done'
    )
    # Where the head has been up for long, asking Ray itself would cost a node another start of Python and Ray.
    listens = 'until (: >"/dev/tcp/$PENSTOCK_ELASTIC_HEAD/$PENSTOCK_ELASTIC_PORT") 2>/dev/null; do sleep 1; done'
    processors = f"--num-cpus {wish.slots}" if wish.slots else ""
    return {
        "start": (
            f"{address}\n{place}\n{token} || exit 1\n{head}\nhead=$!\n{healthy}\n"
            f"{wish.run}\ncode=$?\nkill $head\nwait $head\n{tidy}\nexit $code"
        ),
        "join": (
            f"{address}\n{place}\n{listens}\n"
            f'{ray} start --address "$RAY_ADDRESS" --block --disable-usage-stats {own} '
            f'--resources "{{\\"penstock-$PENSTOCK_HOST\\": 1}}" {processors} {wish.options} &'
            "\nray=$!\ntrap 'kill $ray' TERM\nwait $ray\nwait $ray\ncode=$?\n"
            f"{tidy}\nexit $code"
        ),
        "ready_line": "Ray runtime started",
        "leave": f"{address}\n{python} -c {shlex.quote(_DRAIN)}",
        "grace": 120.0,
    }


def _restart(wish: RecipeWish) -> dict[str, object]:
    """A program with checkpoints of its own over all nodes, which is started again with each size."""
    return {"start": wish.run, "again": wish.run, "settle": 10.0, "grace": 300.0}


def _torchrun(wish: RecipeWish) -> dict[str, object]:
    """The same torchrun on every node; the rendezvous is on the first. The script loads its checkpoint at its start."""
    slots = str(wish.slots or 1)
    python = shlex.quote(wish.python)
    return {
        "join": (
            # An agent that stays the first one tells those that come later no address (torch 2.13), unless each round
            # has a store of its own. And where two have one host name, each would take itself for the rendezvous' host.
            "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n"
            'if [ "$PENSTOCK_HOST" = "$PENSTOCK_ELASTIC_FIRST" ]; then is=true; else is=false; fi\n'
            f"exec {python} -m torch.distributed.run --nnodes={wish.minimum}:{wish.maximum} --nproc-per-node={slots} "
            '--rdzv-backend=c10d --rdzv-endpoint="$PENSTOCK_ELASTIC_HEAD:$PENSTOCK_ELASTIC_PORT" '
            '--rdzv-id="$PENSTOCK_ELASTIC_JOB" --rdzv-conf="is_host=$is,last_call_timeout=2,join_timeout=300" '
            f"--max-restarts=1000 --monitor-interval=1 {wish.options} {wish.run}"
        ),
        "settle": 5.0,
        "grace": 30.0,
        "loans": False,  # each resize costs it half a minute
    }


_RUN: Final = "the line that runs the program"
RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        "farm": Recipe(_farm, {"tasks": "a file of commands, one a line"}, frozenset({"slots"})),
        "dask": Recipe(_dask, {"run": _RUN}, frozenset({"slots", "options"})),
        "pool": Recipe(_pool, {"run": _RUN, "pool": "the name of an open pool"}),
        "ray": Recipe(_ray, {"run": _RUN}, frozenset({"slots", "options"})),
        "restart": Recipe(_restart, {"run": _RUN}),
        "torchrun": Recipe(_torchrun, {"run": "the script and its words"}, frozenset({"slots", "options"})),
    }
)

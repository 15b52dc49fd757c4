"""What malleable programs ask and say: noted, and answered from what is known. It never decides on a resize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dmr import wire
from penstock.api import Job, Offer, Snapshot
from penstock.core.observe import Observer
from penstock.errors import NotPermitted
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.ipc.guards import GuardDesk
from penstock.ipc.limits import RateLimit
from penstock.resize.running.controller import MalleableController
from penstock.resize.running.machine import MalleableJob

__all__ = ["Programs"]

_log = get_logger(__name__)
_GUARDS_LOOK: Final = (
    15.0  # seconds: a look that is older is worth a new one, which is the site's view where there is one
)


class Programs:
    """See `penstock.ipc.handlers.ProgramDesk`. `limit` is of the requests of each job, `of_user` of those of all
    jobs of a user."""

    def __init__(
        self,
        controller: MalleableController,
        observer: Observer,
        clock: Clock,
        serves: Callable[[int], bool],
        want_look: Callable[[], None],
        limit: RateLimit | None = None,
        of_user: RateLimit | None = None,
    ) -> None:
        self._controller = controller
        self._observer = observer
        self._clock = clock
        self._serves = serves
        self._want_look = want_look
        self._limit = limit
        self._of_user = of_user
        self.guards = GuardDesk()

    def knows(self, job: int) -> bool:
        """See `ProgramDesk`."""
        return job in self._controller.jobs

    def reply(self, uid: int, request: wire.Request) -> wire.Reply:
        """The reply to a request that user `uid` has made. Raises `NotPermitted`."""
        if not self._serves(uid):
            raise NotPermitted("this agent serves its own user's jobs only")
        # What follows an offer is not held back: an answer to it must not get lost among checks.
        questions = isinstance(request, wire.Check | wire.Announce | wire.Ended)
        if self._of_user is not None and not self._of_user.allows((uid, questions), self._clock.now()):
            return wire.Failure(error="busy", message="too many requests of this user's jobs")
        snapshot = self._observer.last
        if isinstance(request, wire.Ended):
            return self._ended(uid, request, snapshot)
        job = snapshot.jobs.get(request.job) if snapshot else None
        if job is None:
            known = self._controller.jobs.get(request.job)
            if known is None or known.uid != uid:
                return self._not_seen_yet(request)
        elif job.uid != uid:
            raise NotPermitted(f"job {job.id} is not yours")
        if self._limit is not None and not self._limit.allows((uid, request.job, questions), self._clock.now()):
            return wire.Failure(error="busy", message="too many requests of this job")
        match request:
            case wire.Check():
                return self._check(request, job)
            case wire.Announce():
                if self._controller.announced(request.job, request.size, request.in_seconds):
                    return wire.Done()
                return wire.Failure(error="unknown-job", message="check first: this job is not registered")
            case wire.Accept():
                if self._controller.accepted(request.job, request.epoch, request.time):
                    return wire.Done()
                return wire.Failure(error="stale-epoch", message="this resize is not, or no longer, on offer")
            case wire.Refuse():
                self._controller.refused(request.job, request.epoch, request.why)
                return wire.Done()
            case wire.Finished():
                self._controller.done(request.job, request.epoch, request.timings)
                return wire.Done()
        return wire.Failure(error="bad-request", message="unknown operation")

    def _ended(self, uid: int, request: wire.Ended, snapshot: Snapshot | None) -> wire.Reply:
        now = self._clock.now()
        answer = self.guards.answer(uid, request, snapshot, now)
        if snapshot is None or not 0 <= now - snapshot.taken_at < _GUARDS_LOOK:
            self._want_look()
        return answer

    def _not_seen_yet(self, request: wire.Request) -> wire.Reply:
        """A job that started since the last look: no action now, and a look soon."""
        self._want_look()
        if isinstance(request, wire.Check):
            text = "the agent has not seen this job in the queue yet"
            return wire.CheckReply(action="none", size=request.size, epoch=request.epoch, reason=text)
        return wire.Failure(error="unknown-job", message="this job is not registered")

    def _check(self, request: wire.Check, job: Job | None) -> wire.Reply:
        # "No limit" is a large number: nobody gets more than the cluster has.
        snapshot = self._observer.last
        most = max(request.size, request.per_node * len(snapshot.nodes) if snapshot else 0)
        offer = Offer(
            job=request.job,
            size=request.size,
            minimum=min(request.minimum, most),
            maximum=min(request.maximum, most),
            factor=request.factor,
            preferred=request.preferred,
            per_node=request.per_node,
            nodes=request.nodes,
            method=request.method,
            companion=request.companion,
            requests_nodes=request.requests_nodes,
            leaves_within=request.leaves_within,
            steps_left=request.steps_left,
            step_seconds=request.step_seconds,
        )
        if job is None:
            me: MalleableJob | None = self._controller.jobs.get(request.job)
        elif not job.running:
            me = None
        else:
            me = self._controller.checked(job, offer, request.epoch, request.time, request.starting)
        if me is None:
            return wire.CheckReply(
                action="none", size=request.size, epoch=request.epoch, reason="the job is not running"
            )
        answer = me.reply()
        if answer.action == "none":
            return wire.CheckReply(
                action="none",
                size=request.size,
                epoch=me.epoch,
                reason=wire.clean(me.note),
                node_request=self._node_request(request),
            )
        return wire.CheckReply(
            action=answer.action,
            size=answer.size,
            epoch=me.epoch,
            nodes=answer.nodes,
            per_node=me.offer.per_node,
            companion=answer.companion,
            reason=wire.clean(me.note),
        )

    def _node_request(self, request: wire.Check) -> wire.NodeRequest | None:
        wanted = self._controller.launcher_request(request.job) if request.requests_nodes else None
        if wanted is None:
            return None
        spec = wanted.spec
        try:
            return wire.NodeRequest(
                name=spec.name,
                node_count=spec.nodes,
                time_limit=float(spec.time_limit),
                patience=float(wanted.patience),
                partition=spec.partition or "",
                account=spec.account or "",
                qos=spec.qos or "",
                exclusive=spec.exclusive,
                last=spec.last,
                gres=spec.gres or "",
                constraint=spec.constraint or "",
            )
        except wire.WireError as e:
            _log.warning("a job's launcher cannot be asked for nodes", job=request.job, why=str(e))
            return None

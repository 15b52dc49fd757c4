from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import pytest

from dmr import wire
from dmr.client import Pending
from dmr.limits import Limits
from dmr.passage import Passport
from dmr.session import Coming, News, Progress, Session, node_list
from dmr.transition import Prepared
from dmr.worlds import Changes

PLAIN = Progress()


class Agent:
    """In place of the client: answers by `reply`; what is started is answered once `late` is no more."""

    def __init__(self, reply: Callable[[wire.Request], wire.Reply | None] = lambda request: None) -> None:
        self.reply = reply
        self.sent: list[wire.Request] = []
        self.heard: list[wire.Request] = []  # whose answers were waited for
        self.late = False
        self.away = False

    def request(self, request: wire.Request, *, urgent: bool = False) -> wire.Reply | None:
        self.sent.append(request)
        self.heard.append(request)
        return self.reply(request)

    def start(self, request: wire.Request, *, urgent: bool = False) -> Pending | None:
        if self.away:
            return None
        self.sent.append(request)
        agent = self

        class Started:
            said = request
            reply = agent.reply(request)

            def ready(self) -> bool:
                return not agent.late

        return Started()  # type: ignore[return-value]

    def finish(self, pending: Pending) -> wire.Reply | None:
        self.heard.append(pending.said)  # type: ignore[attr-defined]
        return pending.reply  # type: ignore[attr-defined]

    @property
    def checks(self) -> list[wire.Check]:
        return [r for r in self.sent if isinstance(r, wire.Check)]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name in ("DMR_SIZES", "DMR_INHIBITOR_SECONDS", "DMR_INHIBITOR_STEPS", "DMR_RANKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    return Session()


def joined(session: Session, agent: Agent, names: Iterable[str] = "ab") -> Session:
    session.client = agent  # type: ignore[assignment]
    session.place(list(names))
    return session


def none(request: wire.Request) -> wire.Reply:
    if not isinstance(request, wire.Check):
        return wire.Done()
    return wire.CheckReply(action="none", size=request.size, epoch=0)


def grow(size: int, epoch: int = 1) -> wire.CheckReply:
    return wire.CheckReply(action="expand", size=size, epoch=epoch, nodes=tuple(f"n{i}" for i in range(size)))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"epoch": 3}, "already finished"),
        ({"epoch": 2}, "already finished"),
        ({"size": 16}, "outside"),
        ({"size": 3}, "not reachable"),
        ({"action": "shrink"}, "shrink from 2 to 4"),
        ({"size": 2}, "expand from 2 to 2"),
        ({"action": "migrate"}, "migrate from 2 to 4"),
        ({"action": "migrate", "size": 2}, ""),
        ({"action": "migrate", "size": 2, "here": True}, "runs on those nodes"),
        ({"per_node": 2}, "2 ranks on each node instead of 1"),
    ],
)
def test_answers_are_doubted(session: Session, changes: dict[str, object], wrong: str) -> None:
    """Only a resize that fits what was asked is passed on; another is refused, or ignored when its epoch is old."""
    values = {"action": "expand", "size": 4, "epoch": 4, "per_node": 1} | changes
    places = ["n1", "n0"] if values.pop("here", False) else ["a", "b"]
    reply = wire.CheckReply(**values, nodes=tuple(f"n{i}" for i in range(values["size"] // values["per_node"])))
    agent = Agent(lambda request: reply if request.op == "check" else wire.Done())
    joined(session, agent, places).epoch = 3
    verdict = session.decide(2, Limits(1, 8, 2), PLAIN)
    assert verdict.reply == (None if wrong else reply)
    refusals = [r for r in agent.sent if isinstance(r, wire.Refuse)]
    assert [wrong in r.why for r in refusals] == [True] * (bool(wrong) and reply.epoch > 3)


@pytest.mark.parametrize(
    ("sizes", "asked", "warned"),
    [
        ("2:6", (2, 6, None, 2), False),
        ("2:6:4", (2, 6, 4, 2), False),
        ("2:6:4:3", (2, 6, 2, 3), False),  # from 2, a factor of 3 reaches 6 and, below 4, stays at 2
        ("", (1, 8, 4, 2), False),
        ("2", (1, 8, 4, 2), True),
        ("a:b", (1, 8, 4, 2), True),
        ("6:2", (1, 8, 4, 2), True),
        ("0:2", (1, 8, 4, 2), True),
        ("1:2:3", (1, 8, 4, 2), True),
    ],
)
def test_the_environment_may_set_other_limits(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog, sizes: str, asked: tuple, warned: bool
) -> None:
    """What is wrong there is said once and ignored: it is not the program's mistake."""
    monkeypatch.setenv("DMR_SIZES", sizes)
    agent = Agent()
    joined(session, agent)
    for _ in range(2):
        session.decide(2, Limits(1, 8, 2, 5), PLAIN)
    check = agent.checks[-1]
    assert (check.minimum, check.maximum, check.preferred, check.factor) == asked
    assert [r.getMessage().startswith(f"DMR_SIZES={sizes} is ignored") for r in caplog.records] == [True] * warned


def test_sizes_out_of_reach_are_said_once_and_asked_all_the_same(session: Session, caplog) -> None:
    """The check still tells the agent how the application stands."""
    agent = Agent(none)
    joined(session, agent, "aabb")
    for _ in range(3):
        assert session.decide(4, Limits(3, 5), PLAIN).reply is None
    assert len(agent.checks) == 3 and agent.checks[0].per_node == 2
    assert [r.getMessage() for r in caplog.records] == [
        "no other size from 3 to 5 fills whole nodes of 2 ranks and is reachable from 4; "
        "this application will not be resized at this point"
    ]


@pytest.mark.parametrize(
    ("names", "declared", "per_node", "nodes"),
    [
        ("ab", "", 1, ("a", "b")),
        ("aabb", "", 2, ("a", "b")),
        ("aabb", "2", 2, ("a", "b")),
        ("aabb", "1", 1, ()),
        ("abab", "", 2, ()),
        ("aab", "", 2, ()),
    ],
)
def test_ranks_per_node(
    session: Session, monkeypatch, caplog, names: str, declared: str, per_node: int, nodes: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DMR_RANKS_PER_NODE", declared)
    session = joined(Session(), Agent(), names)
    assert (session.per_node, session.nodes) == (per_node, nodes)
    for _ in range(2):
        session.decide(len(names), Limits(1, 8), PLAIN)
    assert caplog.text.count("the ranks are not") == (not nodes)


@pytest.mark.parametrize(
    ("names", "per_node", "nodes"),
    [
        (["a", "b"], 1, ("a", "b")),
        (["a", "a", "b", "b"], 2, ("a", "b")),
        (["a", "b", "a", "b"], 2, ()),
        (["a", "a"], 1, ()),
        (["a", "a", "b"], 2, ()),
        (["a", "b", "a"], 1, ()),
        (["", ""], 1, ()),
        (["a", ""], 1, ()),
    ],
)
def test_nodes_are_named_only_when_sure(names: list[str], per_node: int, nodes: tuple[str, ...]) -> None:
    assert node_list(names, per_node) == nodes


def test_the_agent_hears_of_the_progress(session: Session) -> None:
    agent = Agent(none)
    joined(session, agent)
    for left in (9, 8):
        session.decide(2, Limits(1, 8), Progress("merge", steps_left=left))
    assert [(c.method, c.steps_left) for c in agent.checks] == [("merge", 9), ("merge", 8)]
    assert agent.checks[0].step_seconds is None
    assert 0 <= agent.checks[1].step_seconds < 5


# -- asked now, answered later -----------------------------------------------------------------------------------------


def test_an_answer_is_taken_by_the_call_after(session: Session) -> None:
    agent = Agent(lambda request: grow(4))
    joined(session, agent)
    first = session.decide(2, Limits(1, 8), PLAIN, later=True)
    assert first.reply is None and first.skip == 0 and len(agent.checks) == 1
    assert session.decide(2, Limits(1, 8), PLAIN, later=True).reply == grow(4)
    assert len(agent.checks) == 1  # who resizes asks no more


def test_no_action_and_the_next_question_goes_out_at_once(session: Session) -> None:
    agent = Agent(none)
    joined(session, agent)
    for asked in range(1, 6):
        assert session.decide(2, Limits(1, 8), PLAIN, later=True).reply is None
        assert len(agent.checks) == asked


def test_a_late_answer_is_not_waited_for_and_not_asked_for_again(session: Session) -> None:
    agent = Agent(lambda request: grow(4))
    joined(session, agent)
    agent.late = True
    for _ in range(50):
        verdict = session.decide(2, Limits(1, 8), PLAIN, later=True)
        assert verdict.reply is None and verdict.skip == 0
    assert len(agent.checks) == 1
    agent.late = False
    assert session.decide(2, Limits(1, 8), PLAIN, later=True).reply == grow(4)


def test_bounds_that_changed_meanwhile_count(session: Session) -> None:
    agent = Agent(lambda request: grow(4) if request.op == "check" else wire.Done())
    joined(session, agent)
    session.decide(2, Limits(1, 8), PLAIN, later=True)
    assert session.decide(2, Limits(1, 3), PLAIN, later=True).reply is None
    assert [r.why for r in agent.sent if isinstance(r, wire.Refuse)] == ["size 4 is outside 1..3"]


def test_a_synchronous_call_asks_anew(session: Session) -> None:
    answers = iter([grow(8, 1), grow(4, 2)])
    agent = Agent(lambda request: next(answers))
    joined(session, agent)
    session.decide(2, Limits(1, 8), PLAIN, later=True)
    assert session.decide(2, Limits(1, 8), PLAIN).reply == grow(4, 2)


def test_with_an_inhibitor_the_answer_is_fresh(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at one call, taken at the next, and only then calls are ignored."""
    monkeypatch.setenv("DMR_INHIBITOR_STEPS", "10")
    agent = Agent(none)
    session = joined(Session(), agent)
    skips = [session.decide(2, Limits(1, 8), PLAIN, later=True).skip for _ in range(4)]
    assert skips == [0, 9, 0, 9]
    assert len(agent.checks) == 2


def test_an_agent_that_is_away_is_asked_when_it_is_back(session: Session) -> None:
    agent = Agent(none)
    joined(session, agent)
    agent.away = True
    for _ in range(3):
        assert session.decide(2, Limits(1, 8), PLAIN, later=True).reply is None
    agent.away = False
    session.decide(2, Limits(1, 8), PLAIN, later=True)
    assert len(agent.checks) == 1


@pytest.mark.parametrize(("left", "said"), [(5, 5), (None, None), (3_000_000_000, 2**31 - 1)])
def test_more_steps_than_the_protocol_can_tell(session: Session, caplog, left: int | None, said: int | None) -> None:
    agent = Agent(none)
    joined(session, agent)
    assert session.decide(2, Limits(1, 8), Progress(steps_left=left)).skip == 0
    assert agent.checks[0].steps_left == said and not caplog.records


# -- after a resize ----------------------------------------------------------------------------------------------------


class Rank0:
    """In place of the communicator of the new size."""

    rank, size = 0, 2


def resized(agent: Agent, session: Session) -> None:
    joined(session, agent)
    session.resized(Passport(7, 3, ("a", "b"), 1, 4, 0.5), Rank0(), 0.25)  # type: ignore[arg-type]


def test_the_program_goes_on_before_the_agent_has_answered_that_the_resize_is_done(session: Session) -> None:
    agent = Agent(none)
    resized(agent, session)
    (done,) = agent.sent
    assert isinstance(done, wire.Finished) and (done.epoch, done.size) == (3, 2)
    assert done.timings == {"spawn": 0.5, "move": 0.25}
    assert not agent.heard, "it waits for nothing"
    session.decide(2, Limits(1, 8), PLAIN)
    assert agent.heard[0] is done and isinstance(agent.heard[1], wire.Check), "the next check comes after it"
    session.decide(2, Limits(1, 8), PLAIN)
    assert agent.heard.count(done) == 1


def test_a_program_that_ends_after_a_resize_has_told_of_it(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("dmr.session.atexit.register", at_exit.append)
    agent = Agent(none)
    resized(agent, session)
    for call in at_exit:
        call()
    assert agent.heard == agent.sent and len(agent.sent) == 1


def test_an_agent_that_is_away_after_a_resize_is_no_matter(session: Session) -> None:
    agent = Agent(none)
    agent.away = True
    resized(agent, session)
    agent.away = False
    session.decide(2, Limits(1, 8), PLAIN)
    assert [type(r) for r in agent.sent] == [wire.Check] and agent.sent[0].epoch == 3


# -- announcements -----------------------------------------------------------------------------------------------------


def test_an_announcement_is_sent_in_the_background(session: Session) -> None:
    agent = Agent(none)
    joined(session, agent)
    agent.late = True
    session.announce(8, 60.0)
    session.announce(4, 90.0)
    session.announce(2, 99.0)

    def announced() -> list[tuple[int, float, int]]:
        return [(a.size, a.in_seconds, a.job) for a in agent.sent if isinstance(a, wire.Announce)]

    assert announced() == [(8, 60.0, 7)]  # the others wait, so that none overtakes another
    agent.late = False
    session.decide(2, Limits(1, 8), PLAIN)
    assert announced() == [(8, 60.0, 7), (4, 90.0, 7), (2, 99.0, 7)]


def test_what_cannot_be_announced_is_said_and_harms_nobody(session: Session, caplog) -> None:
    """An error on rank 0 alone would leave the others waiting for it."""
    agent = Agent(none)
    joined(session, agent).job = 2**31
    for _ in range(2):
        session.announce(8, 60.0)
    assert not agent.sent
    assert [r.getMessage().split(": ")[:2] for r in caplog.records] == [["nothing can be announced", "job"]]


def test_without_an_agent_nothing_is_announced(session: Session, monkeypatch, caplog) -> None:
    monkeypatch.delenv("DMR_AGENT", raising=False)
    pytest.importorskip("mpi4py")
    session.announce(8, 60.0)
    assert not caplog.records and session.client is None


def test_an_agent_that_cannot_be_asked_is_told_of_once(session: Session, monkeypatch, caplog) -> None:
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("DMR_AGENT", "nowhere")
    monkeypatch.setattr("dmr.quirks.obstacle", lambda version, environ: None)
    for _ in range(3):
        session.announce(8, 60.0)
        assert session.connect() is False
    assert len(caplog.records) == 1 and "DMR_AGENT='nowhere' is not host:port" in caplog.text


def test_the_environment_is_read_with_care(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setenv("DMR_INHIBITOR_SECONDS", "soon")
    monkeypatch.setenv("DMR_INHIBITOR_STEPS", "-3")
    with caplog.at_level(logging.WARNING, "dmr"):
        session = Session()
        assert not caplog.records  # ranks other than 0 keep quiet
        session.inhibitor.enter(0.0)
    assert "DMR_INHIBITOR_SECONDS is not a number of seconds" in caplog.text
    assert "DMR_INHIBITOR_STEPS is not a number of calls" in caplog.text
    assert session.inhibitor.leave(1.0) == 0


def test_an_inhibitor_for_ever_is_none(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As in C: what is meant by more than thirty years is not known, and no count of calls can hold 1e305 seconds."""
    monkeypatch.setenv("DMR_INHIBITOR_SECONDS", "1e305")
    inhibitor = Session().inhibitor
    for now in (0.0, 1e-6):
        inhibitor.enter(now)
        assert inhibitor.leave(now) == 0
    assert "DMR_INHIBITOR_SECONDS is not a number of seconds" in caplog.text


class Starting:
    """In place of what the launcher is doing."""

    def __init__(self) -> None:
        self.worlds: list[list[str]] = []
        self.problem, self.done, self.seconds, self.withdrawn = "", False, 1.5, 0

    def withdraw(self) -> None:
        self.withdrawn += 1


def coming(session: Session, offer: wire.CheckReply) -> Starting:
    start = Starting()
    session.expect(Coming(offer, Prepared("replace", Changes((), (), ()), {}), start))  # type: ignore[arg-type]
    return start


def test_while_new_processes_start_the_agent_is_asked_whether_the_offer_stands(session: Session) -> None:
    offer = grow(4)
    agent = Agent(lambda request: offer)
    start = coming(joined(session, agent), offer)
    assert session.follow(2, Limits(1, 8), PLAIN) == session.follow(2, Limits(1, 8), PLAIN) == News()
    assert [(c.starting, c.size) for c in agent.checks] == [(1, 2)], "once a second is enough"
    start.worlds, start.done = [["w1", "port"]], True
    assert session.follow(2, Limits(1, 8), PLAIN) == News(go=True, worlds=(("w1", "port"),), seconds=1.5)


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        (wire.CheckReply(action="none", size=2, epoch=1, reason="off"), "taken it back: off"),
        (grow(4, epoch=2), "taken it back"),
        (grow(3), "taken it back"),
        (wire.Failure(error="busy"), ""),
        (None, ""),
    ],
)
def test_what_the_agent_takes_back_is_given_up(session: Session, answer: wire.Reply | None, over: str) -> None:
    """What it does not say changes nothing."""
    coming(joined(session, Agent(lambda request: answer)), grow(4))
    session.follow(2, Limits(1, 8), PLAIN)
    news = session.follow(2, Limits(1, 8), PLAIN)
    assert over in news.over and bool(news.over) is news.told is bool(over)


def test_what_is_not_wanted_any_more_or_fails_is_given_up(session: Session) -> None:
    start = coming(joined(session, Agent()), grow(4))
    assert "does not want 4" in session.follow(2, Limits(1, 3), PLAIN).over
    start.problem, start.done = "they ended", True
    news = session.follow(2, Limits(1, 8), PLAIN)
    assert (news.over, news.wish, news.told) == ("they ended", False, False)


def test_a_program_that_ends_gives_up_what_is_coming_once(session: Session) -> None:
    agent = Agent(none)
    start = coming(joined(session, agent), grow(4))
    session.leave_off()
    session.leave_off()
    assert start.withdrawn == 1
    assert [type(request) for request in agent.sent] == [wire.Refuse]


@pytest.mark.parametrize(("seconds", "ahead"), [(None, True), (9.0, True), (11.0, False)])
def test_where_steps_are_long_new_processes_are_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float | None, ahead: bool
) -> None:
    monkeypatch.delenv("DMR_START_AHEAD", raising=False)
    session.inhibitor.step_seconds = seconds
    assert session.starts_ahead() is ahead
    monkeypatch.setenv("DMR_START_AHEAD", "0")
    assert not session.starts_ahead()

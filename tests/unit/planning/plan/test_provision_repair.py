"""Which slots of a reserved plan are exchanged: stages as they stand in, changes out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.future.bits import BitProfile
from penstock_planning.plan.repair import Drop, Free, SlotChange, StageNow, StageProgress, repair

WAITING, RUNNING, DONE, FAILED = StageProgress.WAITING, StageProgress.RUNNING, StageProgress.DONE, StageProgress.FAILED


def stage(name, standing, slot=None, after=(), duration=600.0, **more):
    return StageNow(name, 2, duration, tuple(after), standing, slot, **more)


class free:
    """Slots begin at these instants only, with room for one stage each, or for `room`, and what is given back."""

    def __init__(self, *starts, room=1):
        self.left = sorted(starts * room)

    def find(self, nodes, duration, after):
        return next((Free(s, (f"n{s}.{len(self.left)}",)) for s in self.left if s >= after), None)

    def take(self, hole, duration):
        if hole.start in self.left:
            self.left.remove(hole.start)

    def give(self, slot, duration):
        self.left = sorted([*self.left, slot.start])


def changes(stages, now=0.0, starts=(0, 2000, 4000), **more):
    found = repair(stages, now, free(*starts), **more)
    return [(c.stage, c.to.start) if isinstance(c, SlotChange) else c.stage for c in found]


def test_nothing_is_done_while_all_goes_as_planned():
    plan = [stage("a", RUNNING, (0, 660), ends=600), stage("b", WAITING, (700, 1360), ["a"])]
    assert changes(plan, now=100.0) == []
    assert changes([stage("a", WAITING, (0, 660))], now=20.0) == [], "Slurm may take a moment to start it"


def test_a_slot_in_which_the_stage_would_not_end_is_exchanged():
    late = [stage("a", RUNNING, (0, 660), ends=800), stage("b", WAITING, (700, 1360), ["a"])]
    (move,) = repair(late, 500.0, free(0, 900, 2000))
    assert move == SlotChange("b", Free(900, ("n900.3",)), "what it comes after ends too late for its slot")
    assert changes([stage("a", WAITING, (0, 660))], now=200.0) == [("a", 2000)]


def test_a_stage_behind_one_whose_slot_is_of_no_use_moves_at_a_later_pass():
    lost = [stage("a", WAITING, None), stage("b", WAITING, (700, 1360), ["a"])]
    assert changes(lost, now=100.0, starts=(2000, 2600)) == [("a", 2000)]
    moved = [stage("a", WAITING, (2000, 2660)), stage("b", WAITING, (700, 1360), ["a"])]
    assert changes(moved, now=110.0, starts=(2000, 2600, 4000)) == [("b", 2600)]


def test_a_whole_plan_moves_up_behind_what_ends_early():
    plan = [
        stage("a", WAITING, (3000, 3660)),
        stage("b", WAITING, (3700, 4360), ["a"]),
        stage("c", WAITING, (4400, 5060), ["b"]),
    ]
    assert changes(plan, now=10.0, starts=(600, 1200, 2000, 4000)) == [("a", 600), ("b", 1200), ("c", 2000)]
    assert changes(plan, now=10.0, starts=(2970, 3670, 4370)) == [], "it would gain too little"
    beside = [stage("a", WAITING, (9000, 9660)), stage("b", WAITING, (9000, 9660))]
    assert changes(beside) == [("a", 0), ("b", 2000)], "neither gets what the other has"
    many = [stage(f"s{i}", WAITING, (9000, 9660)) for i in range(30)]
    assert len(repair(many, 0.0, free(100, room=30))) == 30, "a plan moves as a whole where it ends earlier then"
    many.append(stage("bought", WAITING, (9000, 9660), penalty=5.0))
    assert len(repair(many, 0.0, free(100, room=30))) == 20, "the others at the next pass"


def test_without_a_free_slot_it_keeps_what_it_has():
    assert changes([stage("a", WAITING, None)], now=5000.0) == []


def test_an_earlier_slot_is_taken_if_it_costs_nothing_or_less_than_it_is_worth():
    early = [stage("a", DONE), stage("b", WAITING, (3000, 3660), ["a"])]
    assert changes(early, now=1900.0) == [("b", 2000)]
    assert changes(early, now=1900.0, starts=(2950,)) == [], "it gains too little"
    dear = [stage("a", DONE), stage("b", WAITING, (3000, 3660), ["a"], penalty=10.0)]
    assert changes(dear, now=1900.0) == []
    assert changes(dear, now=1900.0, second=0.02) == [("b", 2000)], "1000 s are worth 20"
    assert changes(early, now=1900.0, starts=(2000, 2200), notice=300.0) == [("b", 2200)]
    running = [stage("a", RUNNING, ends=2500), stage("b", WAITING, (3000, 3660), ["a"])]
    assert changes(running, now=1900.0) == []
    assert changes(running, now=1900.0, starts=(2000, 2600)) == [("b", 2600)], "behind the latest end of the other"


class Profile:
    """Four nodes, on which every slot is where it says."""

    def __init__(self):
        self.profile = BitProfile(0b1111, 0.0)

    def find(self, nodes, duration, after):
        found = self.profile.earliest(nodes, duration, after, 0b1111)
        return Free(found[0], tuple(f"n{bit}" for bit in range(4) if found[1] >> bit & 1))

    def take(self, hole, duration):
        self.profile.block(self.mask(hole), hole.start, hole.start + duration)

    def give(self, slot, duration):
        assert self.profile.common(slot.start, slot.start + duration, self.mask(slot)) == 0, "only what is taken"
        self.profile.open(self.mask(slot), slot.start, slot.start + duration)

    def mask(self, slot):
        return sum(1 << int(name[1:]) for name in slot.nodes)


@given(st.data())
def test_a_plan_that_moves_is_a_plan_and_ends_no_later(data):
    """No two slots share a node, not for a moment, and in the end no stage begins before those have ended that it
    comes after."""
    holes, stages = Profile(), []
    for i in range(data.draw(st.integers(1, 7))):
        length = data.draw(st.sampled_from([600.0, 1500.0]))
        names = [s.name for s in stages]
        after = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
        ready = max((s.slot[1] for s in stages if s.name in after), default=0.0)
        nodes, gap = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3)) * 700.0
        slot = holes.find(nodes, length, ready + gap)
        holes.take(slot, length)
        penalty = data.draw(st.sampled_from([0.0, 0.0, 0.0, 5.0]))
        at = (slot.start, slot.start + length)
        stages.append(StageNow(f"s{i}", nodes, length, tuple(after), WAITING, at, 0.0, penalty, slot.nodes))

    last, now = max(s.slot[1] for s in stages), {s.name: s for s in stages}
    found = repair(stages, 0.0, holes)
    for change in found:
        stage = now[change.stage]
        now[change.stage] = replace(stage, slot=(change.to.start, change.to.start + stage.duration), on=change.to.nodes)
        assert not change.moves or not stage.penalty
        for one in now.values():
            for other in now.values() if change.moves else ():
                apart = one.slot[1] <= other.slot[0] or other.slot[1] <= one.slot[0] or not {*one.on} & {*other.on}
                assert one is other or apart
    for one in now.values():
        assert all(now[parent].slot[1] <= one.slot[0] for parent in one.after)
        assert holes.profile.common(*one.slot, holes.mask(Free(0, one.on))) == 0, "the others see where it is"
    assert max(s.slot[1] for s in now.values()) <= last


def test_a_plan_is_made_anew_where_its_slots_are_in_each_others_way():
    """b is to go where a is, and the other way round: only then c, which takes long, can begin earlier. Of z, which has
    ended and is forgotten, nothing depends, whatever is said of its end."""
    z = StageNow("z", 1, 99_000.0, (), DONE, None, ends=99_000.0)
    a = StageNow("a", 2, 3000.0, (), WAITING, (300, 3300), on=("n0", "n1"))
    b = StageNow("b", 4, 600.0, (), WAITING, (3300, 3900), on=("n0", "n1", "n2", "n3"))
    c = StageNow("c", 2, 6000.0, ("b",), WAITING, (3900, 9900), on=("n0", "n1"))
    holes = Profile()
    for one in (a, b, c):
        holes.take(Free(one.slot[0], one.on), one.duration)
    found = repair([z, a, b, c], 0.0, holes)
    assert [(x.stage, x.to.start, x.why) for x in found] == [
        ("a", 9900, "it makes room for others first"),
        ("b", 0, "it can begin earlier"),
        ("c", 600, "it can begin earlier"),
        ("a", 600, "so the plan can end earlier"),
    ]


def test_what_comes_after_a_failed_stage_is_dropped():
    plan = [
        stage("a", FAILED),
        stage("b", WAITING, (700, 1360), ["a"]),
        stage("c", WAITING, (1400, 2060), ["b"]),
        stage("d", WAITING, (700, 1360)),
    ]
    first, second = repair(plan, 500.0, free())
    assert first == Drop("b", "stage a, which it comes after, has failed") and second.stage == "c"


@given(st.data())
def test_no_stage_is_put_before_one_that_it_comes_after(data):
    now = 1000.0
    names, stages = [], []
    for i in range(data.draw(st.integers(1, 6))):
        after = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
        parents = [s for s in stages if s.name in after]
        possible = [WAITING] if any(p.standing is not DONE for p in parents) else list(StageProgress)
        standing = data.draw(st.sampled_from(possible))
        begin = data.draw(st.sampled_from([None, 0.0, 990.0, 1500.0, 9000.0]))
        slot = None if begin is None else (begin, begin + 660)
        names.append(f"s{i}")
        stages.append(stage(names[-1], standing, slot, after, ends=now + data.draw(st.floats(0, 5000))))
    found = repair(stages, now, free(1200, 3000, 8000, 20000, room=2))
    moves = {c.stage: c.to.start for c in found if isinstance(c, SlotChange)}
    assert all(list(moves.values()).count(start) <= 2 for start in moves.values())
    by_name = {s.name: s for s in stages}
    for name, start in moves.items():
        mine = by_name[name]
        assert mine.standing is WAITING and start >= now
        for parent in (by_name[p] for p in mine.after):
            if parent.standing is RUNNING:
                assert start >= parent.ends
            begins = moves.get(parent.name, parent.slot[0] if parent.slot else None)
            if parent.standing is WAITING and begins is not None:
                assert start >= begins + parent.duration
    dropped = {c.stage for c in found if isinstance(c, Drop)}
    failed = {s.name for s in stages if s.standing is FAILED}
    for name in dropped:
        assert set(by_name[name].after) & (dropped | failed)


@pytest.mark.parametrize("standing", [RUNNING, DONE, FAILED])
def test_what_has_begun_keeps_its_slot(standing):
    assert changes([stage("a", standing, None, ends=1.0)], now=5000.0, starts=(6000,)) == []

"""The lines of the audit trail: any change of them is found, whatever it is; repeated refusals take bounded room."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.audit.aggregate import Repeats
from penstock.audit.chain import START, Anchor, Chain, ChainHead, digest, entry_of, line_of, torn
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome

AT = 1_700_000_000.0


def record(n=0, verb="pause", **changes):
    values = {"code": "", "door": Door.UNIX, "uid": 1000 + n, "user": f"user{n}", "text": f"number {n}"}
    return Record(AT + n, RecordKind.REQUEST, verb, RecordOutcome.DONE, **{**values, **changes})


def lines(count, after=START):
    """So many lines, the first of which begins a file."""
    found = []
    for n in range(count):
        of = replace(record(n), verb="begin", code="first", kind=RecordKind.FILE) if after == START else record(n)
        line, after = line_of(of, after)
        found.append(line)
    return found


def verdict(*files, anchors=()):
    chain = Chain(anchors)
    for place, data in enumerate(files, start=1):
        chain.file(f"file{place}", data.splitlines(keepends=True), last=place == len(files))
    return chain.verdict()


def texts(found):
    return [f.text for f in found]


WHOLE = b"".join(lines(6))


def test_a_chain_is_whole_and_says_what_it_is():
    found = verdict(WHOLE)
    assert (found.records, found.first.head.seq, found.last.head.seq) == (6, 1, 6)
    assert found.findings == found.notes == ()


def test_a_record_comes_back_as_it_was_written():
    asked = record(3, details={"jobs": "4,5", "nodes": 2}, owner=77, job=4, subject="workflow 3", request="ab", count=9)
    assert entry_of(line_of(asked, START)[0]).record() == asked


def test_no_record_makes_more_than_a_line_and_none_is_too_long():
    nasty = record(
        0, text="\n\r\x00\udc80" + "𝔘" * 5000, user="x" * 999, details={str(n): "y" * 999 for n in range(99)}
    )
    line, _head = line_of(nasty, START)
    assert line.count(b"\n") == 1 and line.isascii() and len(line) < 64 * 1024
    assert entry_of(line).record().text.startswith("\n\r\x00")


@settings(max_examples=400)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
@example(len(WHOLE) - 1, 1)
@example(len(WHOLE) - 2, ord("}") ^ ord("]"))
@example(0, 1)
def test_any_edit_of_one_byte_is_found(place, mask):
    edited = bytearray(WHOLE)
    edited[place] ^= mask
    assert verdict(bytes(edited)).findings


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=3))
def test_any_byte_that_comes_in_is_found(place, more):
    assert verdict(WHOLE[:place] + more + WHOLE[place:]).findings


@given(st.data())
def test_lines_that_are_gone_repeated_or_moved_are_found(data):
    there = lines(8)
    edited = list(there)
    match data.draw(st.sampled_from(["remove", "repeat", "move", "insert"])):
        case "remove":  # the end is for anchors to tell
            del edited[data.draw(st.integers(0, 6))]
        case "repeat":
            one = data.draw(st.integers(0, 7))
            edited.insert(data.draw(st.integers(one, 8)), there[one])
        case "move":
            one = edited.pop(data.draw(st.integers(0, 7)))
            edited.insert(data.draw(st.integers(0, 7)), one)
        case "insert":
            place = data.draw(st.integers(0, 8))
            edited.insert(place, data.draw(st.binary(max_size=20).filter(lambda b: b"\n" not in b)) + b"\n")
    if edited != there:
        assert verdict(b"".join(edited)).findings


def test_what_is_wrong_is_said_with_file_and_line():
    there = lines(6)
    changed = [*there[:2], there[2].replace(b"user2", b"user9"), *there[3:]]
    assert str(verdict(b"".join(changed)).findings[0]) == "file1:3: it is not what was written: its hash is another"
    assert len(verdict(b"".join(changed)).findings) == 1
    assert texts(verdict(b"".join(there[:2] + there[4:])).findings) == ["records 3 to 4 are missing before record 5"]
    (found,) = verdict(b"".join([*there, there[2]])).findings
    assert "record 3 comes after record 6" in found.text and found.line == 7


def test_a_line_that_is_written_anew_with_all_after_it_is_found_by_an_anchor_only():
    forged = lines(3)
    after = entry_of(forged[-1]).head
    for n in range(3, 6):
        line, after = line_of(record(n, user="nobody"), after)
        forged.append(line)
    real = Anchor(entry_of(WHOLE.splitlines(keepends=True)[4]).head, "the journal")
    assert not verdict(b"".join(forged)).findings
    (found,) = verdict(b"".join(forged), anchors=[real]).findings
    assert "record 5 is another than the journal has" in found.text
    assert verdict(WHOLE, anchors=[real]).anchored == 1


def test_a_line_that_was_replaced_by_one_with_a_hash_of_its_own_is_found():
    there = lines(6)
    there[3] = line_of(record(3, user="nobody"), entry_of(there[2]).head)[0]
    (found,) = verdict(b"".join(there)).findings
    assert (found.line, "record 5 does not follow the record 4" in found.text) == (5, True)


def test_an_end_that_was_cut_off_is_found_by_an_anchor():
    there = lines(6)
    anchors = [Anchor(entry_of(line).head, "the state file") for line in there]
    (found,) = verdict(b"".join(there[:4]), anchors=anchors).findings
    assert found.text == "the chain ends with record 4, but the state file has record 6: the end was cut off"
    assert verdict(b"", anchors=anchors).findings
    assert not verdict(b"".join(there), anchors=anchors).findings


def begun(seq_head, code="rotated"):
    return line_of(Record(AT, RecordKind.FILE, "begin", RecordOutcome.DONE, code, text=f"it is {code}"), seq_head)


def test_several_files_are_one_chain_and_old_ones_may_be_gone():
    first, (second, head) = lines(3), begun(entry_of(lines(3)[-1]).head)
    third = line_of(record(9), head)[0]
    assert not verdict(b"".join(first), second + third).findings
    kept = verdict(second + third, anchors=[Anchor(entry_of(first[1]).head, "the journal")])
    assert not kept.findings and kept.older == 1
    assert "the chain begins here with record 4" in kept.notes[0].text
    gone = verdict(b"".join(first[:2]), second + third)
    assert texts(gone.findings) == ["record 3 is missing before record 4"]


@pytest.mark.parametrize("code", ["removed", "cut", "damaged", "changed"])
def test_a_file_that_begins_because_another_was_taken_away_says_so_until_it_is_gone(code):
    second, head = begun(entry_of(lines(3)[-1]).head, code)
    assert texts(verdict(second + line_of(record(9), head)[0]).findings) == [f"it is {code}"]


def test_a_file_cannot_begin_in_the_middle():
    assert "does not begin a file" in verdict(b"".join(lines(6)[2:])).findings[0].text


# -- torn lines --------------------------------------------------------------------------------------------------------


def explained(aside, head):
    details = {"bytes": len(aside), "sha256": digest(aside)}
    return line_of(Record(AT, RecordKind.FILE, "torn", RecordOutcome.DONE, "torn", details=details), head)[0]


@given(st.integers(0, 10_000), st.integers(0, 50))
def test_a_torn_end_is_no_tampering(cut, zeros):
    there = lines(4)
    head = entry_of(there[2]).head
    part = there[3][: cut % len(there[3])]
    left = b"".join(there[:3]) + part + b"\0" * (zeros if part else 0)
    found = verdict(left)
    if part == there[3][:-1] and zeros:
        assert found.findings, "all of a line and then something else is no torn line"
        return
    assert not found.findings
    assert bool(found.notes) == bool(part)
    if part and part != there[3][:-1]:
        aside = part + b"\0" * zeros + b"\n"
        healed = verdict(b"".join(there[:3]) + aside + explained(aside, head))
        assert not healed.findings and "torn" in healed.notes[0].text


def test_what_was_changed_is_not_taken_for_torn_whatever_a_record_says_of_it():
    there = lines(4)
    head = entry_of(there[2]).head
    edited = there[3].replace(b"user3", b"user4")
    assert not torn(edited.removesuffix(b"\n"), head)
    assert verdict(b"".join(there[:3]) + edited + explained(edited, head)).findings


def test_torn_bytes_may_not_change_or_go_afterwards():
    there = lines(4)
    head, aside = entry_of(there[2]).head, there[3][:70] + b"\n"
    tail = explained(aside, head)
    assert not verdict(b"".join(there[:3]) + aside + tail).findings
    assert verdict(b"".join(there[:3]) + aside[:60] + b"\n" + tail).findings
    assert verdict(b"".join(there[:3]) + tail).findings


@pytest.mark.parametrize("text", ["", "5", "x:" + "0" * 64, "5:" + "0" * 63, "5:" + "G" * 64, "-1:" + "0" * 64])
def test_a_head_is_number_and_hash(text):
    with pytest.raises(ValueError, match="NUMBER:HASH"):
        ChainHead.parse(text)
    assert str(ChainHead.parse("5:" + "0" * 64)) == "5:" + "0" * 64


# -- repeated refusals -------------------------------------------------------------------------------------------------


def refusal(at, uid=1000, verb="cancel", **changes):
    return Record(
        AT + at, RecordKind.REQUEST, verb, RecordOutcome.REFUSED, "not-permitted", Door.UNIX, uid, text="no", **changes
    )


def test_the_first_few_are_written_and_the_others_counted():
    repeats = Repeats(first=3, interval=60)
    written = [r for n in range(50) for r in repeats.take(refusal(n, job=n))]
    assert [r.at - AT for r in written] == [0, 1, 2]
    (total,) = repeats.take(refusal(100, uid=7))[:1]
    assert (total.count, total.since, total.at, total.uid, total.job) == (47, AT + 3, AT + 49, 1000, None)
    assert json.loads(total.encode())["count"] == 47


def test_different_ones_are_counted_apart():
    repeats = Repeats(first=1, interval=60)
    for uid in (1, 2):
        for verb in ("cancel", "retry"):
            assert len(repeats.take(refusal(0, uid, verb))) == 1
            assert repeats.take(refusal(1, uid, verb)) == []
    assert sorted((r.uid, r.verb, r.count) for r in repeats.rest()) == [
        (1, "cancel", 1), (1, "retry", 1), (2, "cancel", 1), (2, "retry", 1)
    ]  # fmt: skip
    assert repeats.rest() == []


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=300))
def test_none_is_lost_and_the_room_is_bounded(asked):
    """Every refusal is in exactly one record, however many users there are and however the clock goes."""
    repeats = Repeats(first=2, interval=30, most=10)
    written, at = [], 0
    for step, uid in asked:
        at += step - 200  # clocks are set back, too
        written += repeats.take(refusal(at, uid))
        assert len(repeats) <= 11
    assert sum(r.count for r in [*written, *repeats.rest()]) == len(asked)


def test_beyond_so_many_users_they_are_counted_together():
    repeats = Repeats(first=2, interval=60, most=5)
    written = [r for uid in range(1000) for r in repeats.take(refusal(0, uid))]
    assert len(written) == 5
    (others,) = [r for r in repeats.rest() if r.verb == "others"]
    assert (others.count, others.uid, others.owner) == (995, None, None)

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import wire

counts = st.integers(1, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
node_lists = st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), max_size=9, unique=True).map(
    tuple
)
seconds = st.floats(0, 1e12, allow_nan=False)
texts = st.text(max_size=600).map(wire.clean)
common = {
    "job": counts,
    "epoch": epochs,
    "id": st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    "time": seconds,
    "auth": st.from_regex(r"[ -~]{0,80}", fullmatch=True),
}


progress = {
    "method": st.sampled_from(wire.METHODS),
    "companion": st.booleans(),
    "steps_left": st.none() | st.integers(0, 2**31 - 1),
    "step_seconds": st.none() | seconds,
    "requests_nodes": st.booleans(),
}
words = st.from_regex(r"([a-z][a-z0-9_]{0,20})?", fullmatch=True)
node_requests = st.builds(
    wire.NodeRequest,
    name=st.builds("penstock-{}-{}".format, st.integers(1, 10**9), st.from_regex(r"[a-z0-9]{1,32}", fullmatch=True)),
    node_count=counts,
    time_limit=seconds,
    patience=seconds,
    partition=words,
    account=words,
    qos=words,
    exclusive=st.booleans(),
)


@st.composite
def checks(draw: st.DrawFn) -> wire.Check:
    low, middle, high = sorted(draw(st.lists(counts, min_size=3, max_size=3)))
    rest = draw(st.fixed_dictionaries({**common, "size": counts, "factor": counts, "per_node": counts, **progress}))
    return wire.Check(
        minimum=low, maximum=high, preferred=draw(st.sampled_from([None, middle])), nodes=draw(node_lists), **rest
    )


timings = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True), seconds, max_size=5)
requests = st.one_of(
    checks(),
    st.builds(wire.Accept, **common),
    st.builds(wire.Announce, **common, size=counts, in_seconds=seconds),
    st.builds(wire.Refuse, **common, why=texts),
    st.builds(wire.Finished, **common, size=counts, nodes=node_lists, timings=timings),
    st.builds(wire.Ended, **common, jobs=st.lists(counts, min_size=1, max_size=20).map(tuple)),
)


@st.composite
def resizes(draw: st.DrawFn) -> wire.CheckReply:
    nodes, per_node = draw(node_lists.filter(bool)), draw(st.integers(1, 99))
    action = draw(st.sampled_from(["expand", "shrink"]))
    return wire.CheckReply(
        action=action,
        size=len(nodes) * per_node,
        epoch=draw(epochs),
        nodes=nodes,
        per_node=per_node,
        reason=draw(texts),
    )


replies = st.one_of(
    resizes(),
    st.builds(
        wire.CheckReply,
        action=st.just("none"),
        size=counts,
        epoch=epochs,
        reason=texts,
        node_request=st.none() | node_requests,
    ),
    st.just(wire.Done()),
    st.builds(wire.Failure, error=st.sampled_from(wire.ERRORS), message=texts),
)


@given(requests)
def test_requests_survive_the_wire(request: wire.Request) -> None:
    line = wire.encode(request)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    received = wire.decode_request(line)
    assert received.request == request
    assert type(received.request) is type(request)
    assert received.digest == wire.digest(request)


@given(replies)
def test_replies_survive_the_wire(reply: wire.Reply) -> None:
    assert wire.decode_reply(wire.encode(reply)) == reply


@given(st.binary(max_size=300))
def test_garbage_is_a_wire_error(line: bytes) -> None:
    for decode in (wire.decode_request, wire.decode_reply):
        with pytest.raises(wire.WireError):
            decode(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.one_of(requests, replies), st.data(), json_values)
def test_any_field_replaced_by_anything_is_valid_or_a_wire_error(
    message: wire.Request | wire.Reply, data: st.DataObject, value: object
) -> None:
    body = json.loads(wire.encode(message))
    name = data.draw(st.sampled_from(sorted(body)))
    body[name] = value
    line = json.dumps(body).encode()
    decode = wire.decode_request if isinstance(message, wire.Request) else wire.decode_reply
    try:
        decode(line)
    except wire.WireError as error:
        assert error.field in {*body, "line", "action", "minimum", "preferred", "nodes", "error", "message"}


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000,
        b'{"v":' + b"9" * 6000 + b"}",
        b'{"v":1,"op":"check","time":NaN}',
        b'{"v":1,"op":"accept","job":1,"epoch":0,"id":"0123456789abcdef","auth":"","time":1e999}',
        b"[1]",
        b'"v"',
        b"\xff\xfe",
        b"{}" + b" " * wire.MAX_LINE,
    ],
)
def test_nasty_lines(line: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_request(line)


def sample(**changes: object) -> dict[str, object]:
    request = wire.Check(job=12, epoch=3, size=4, minimum=2, maximum=8, nodes=("n1", "n2", "n3", "n4"))
    return json.loads(wire.encode(request)) | changes


def decode(body: dict[str, object]) -> wire.Received:
    return wire.decode_request(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2),
        ("v", True),
        ("op", "reboot"),
        ("op", ["check"]),
        ("job", "12"),
        ("job", True),
        ("job", 0),
        ("job", 12.0),
        ("epoch", -1),
        ("id", "0" * 15),
        ("id", "0" * 15 + "\n"),
        ("id", "G" * 16),
        ("time", "now"),
        ("time", -1),
        ("time", 10**400),
        ("auth", "a\nb"),
        ("auth", "ü"),
        ("auth", None),
        ("size", None),
        ("minimum", 9),
        ("preferred", 9),
        ("factor", 0),
        ("nodes", "n1"),
        ("nodes", ["n1", "n1"]),
        ("nodes", ["n1,n2"]),
        ("nodes", ["-n1"]),
        ("nodes", ["n[1-2]"]),
        ("nodes", ["n1\n"]),
        ("nodes", ["n1", 2]),
        ("nodes", [["n1"]]),
        ("nodes", None),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(wire.WireError) as caught:
        decode(sample(**{field: value}))
    assert caught.value.field == field
    body = sample()
    del body[field]
    with pytest.raises(wire.WireError) as caught:
        decode(body)
    assert caught.value.field == field


def test_unknown_keys_are_ignored_but_covered_by_the_digest() -> None:
    plain, extended = decode(sample(id="0" * 16, time=5)), decode(sample(id="0" * 16, time=5, gpu={"a": [1]}))
    assert plain.request == extended.request
    assert plain.digest != extended.digest


def test_the_digest_is_that_of_the_canonical_json() -> None:
    body = sample(auth="whatever")
    bare = {k: v for k, v in body.items() if k != "auth"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    assert decode(body).digest == hashlib.sha256(text.encode()).hexdigest()


def test_signed_changes_only_the_credential() -> None:
    request = wire.Accept(job=1, epoch=1)
    signed = wire.signed(request, lambda digest: "key:" + digest)
    assert signed.auth == "key:" + wire.digest(request) == "key:" + wire.digest(signed)
    assert (signed.id, signed.time) == (request.id, request.time)


def test_constructors_are_as_strict_as_the_decoder() -> None:
    with pytest.raises(wire.WireError, match="nodes"):
        wire.CheckReply(action="expand", size=4, epoch=1, nodes=("n1", "n2"))
    with pytest.raises(wire.WireError, match="why"):
        wire.Refuse(job=1, epoch=1, why="two\nlines")
    with pytest.raises(wire.WireError, match="error"):
        wire.Failure(error="nope")
    with pytest.raises(wire.WireError, match="line"):
        wire.encode(wire.Check(job=1, epoch=0, size=1, minimum=1, maximum=1, nodes=tuple(map(str, range(10_000)))))


@given(st.text())
def test_clean_fits_every_text_field(text: str) -> None:
    assert len(wire.Refuse(job=1, epoch=1, why=wire.clean(text)).why) <= wire.MAX_TEXT


def test_no_third_party_and_no_mpi() -> None:
    code = (
        "import sys, dmr, dmr.wire, dmr.plan, dmr.quirks, dmr.credential, dmr.client, dmr.launch;"
        "sys.exit(bool({'mpi4py','numpy','penstock'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

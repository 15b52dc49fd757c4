"""GRES by the grammar of Slurm's manual pages: of nodes (slurm.conf(5)) and of requests (sbatch(1))."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.values.gres import Gres, asked_gres, count_of, counts, node_gres

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,11}", fullmatch=True).filter(lambda word: word != "no_consume")
TYPES = st.one_of(st.just(""), NAMES.filter(lambda word: count_of(word) is None))
NUMBERS = st.integers(1, 10**6)
# (1024)^1 to (1024)^5; a suffix in small letters in requests alone.
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
SOCKETS = st.sampled_from(["", "(S:0)", "(S:0-1)", "(S:0,2-3)"])


@st.composite
def items(draw, *, of_a_node):
    name, kind, number, unit = draw(NAMES), draw(TYPES), draw(NUMBERS), draw(st.sampled_from(list(UNITS)))
    count = number * UNITS[unit]
    if of_a_node:
        kept = draw(st.booleans())
        text = ":".join(filter(None, (name, kind, "" if kept else "no_consume", f"{number}{unit}"))) + draw(SOCKETS)
        return text, Gres(name, kind, count, kept)
    mark = draw(st.sampled_from(["", "gres:", "gres/"]))
    if draw(st.booleans()):
        return mark + ":".join(filter(None, (name, kind))), Gres(name, kind, 1)
    written = unit.lower() if draw(st.booleans()) else unit
    sign = draw(st.sampled_from(":="))
    return f"{mark}{name}{':' if kind else ''}{kind}{sign}{number}{written}", Gres(name, kind, count)


@given(st.lists(items(of_a_node=True), max_size=5))
def test_what_nodes_have(made):
    assert node_gres(",".join(text for text, _ in made)) == [found for _, found in made]


@given(st.lists(items(of_a_node=False), max_size=5))
def test_what_is_asked_for(made):
    assert asked_gres(",".join(text for text, _ in made)) == [found for _, found in made]


@given(st.lists(items(of_a_node=True), max_size=5), st.text(alphabet=":,()=+ gpu0K", max_size=12))
def test_of_a_node_nothing_is_an_error_and_what_is_read_is_left(made, odd):
    good = [found for _, found in made]
    assert node_gres(",".join(text for text, _ in made) + "," + odd)[: len(made)] == good


@given(st.text(max_size=40))
def test_of_a_request_all_else_is_refused(text):
    try:
        found = asked_gres(text)
    except ValueError:
        return
    assert all(item.number > 0 and item.name and "," not in item.name + item.type for item in found)


@pytest.mark.parametrize("text", ["gpu:", ":2", "gpu:a:b:1", "gpu:a100:no_consume:2", "gpu=x", "gpu==2", "gpu:a=b=1"])
def test_what_is_no_request(text):
    with pytest.raises(ValueError):
        asked_gres(text)


def test_counts():
    assert counts(node_gres("gpu:a100:2(S:0,1),nvme:1,gpu:b200:1")) == {
        "gpu": 3, "gpu:a100": 2, "gpu:b200": 1, "nvme": 1,
    }  # fmt: skip
    assert counts(asked_gres("gpu:a100:2,nvme,gpu:0")) == {"gpu": 2, "gpu:a100": 2, "nvme": 1}
    assert node_gres("") == node_gres("(null)") == []
    assert (count_of("1k"), count_of("2KB"), count_of("2KiB"), count_of("1x")) == (1024, 2000, 2048, None)


def test_the_nodes_of_real_clusters():
    text = "gpu:rtx:4(S:0),VramPerGpu:no_consume:48G,bandwidth:lustre:no_consume:4G"
    assert counts(node_gres(text)) == {
        "gpu": 4, "gpu:rtx": 4, "VramPerGpu": 48 * 2**30, "bandwidth": 2**32, "bandwidth:lustre": 2**32,
    }  # fmt: skip

"""What is understood of sbatch's --dependency, and that nothing of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm.dependencies import beside, jobs_named, needed, renamed, singleton


@pytest.mark.parametrize(
    ("text", "named", "before", "rest"),
    [
        ("afterok:12", (12,), (12,), ""),
        ("afterok:12:13,afterok:14", (12, 13, 14), (12, 13, 14), ""),
        ("AfterOK:12", (12,), (12,), ""),
        ("afterok:12,afterany:9,singleton", (12, 9), (12,), "afterany:9,singleton"),
        ("afternotok:12", (12,), (), "afternotok:12"),
        ("after:12+5", (12,), (), "after:12+5"),
        ("aftercorr:12", (12,), (), "aftercorr:12"),
        ("12", (12,), (), "afterany:12"),
        ("afterok:12?afterok:13", (12, 13), (), "afterok:12?afterok:13"),
        ("afterok:12_3", (12,), (), "afterok:12_3"),
        ("afterok:12_[1,3]:5", (12, 5), (5,), "afterok:12_[1,3]"),
        ("afterok:align:5", (5,), (5,), "afterok:align"),
        ("singleton", (), (), "singleton"),
        ("", (), (), ""),
        (",", (), (), ""),
    ],
)
def test_what_a_dependency_says(text, named, before, rest):
    assert (jobs_named(text), needed(text), beside(text, needed(text))) == (named, before, rest)


def test_only_what_a_stage_comes_after_is_taken_out():
    assert beside("afterok:12:13,afterany:9", (13,)) == "afterok:12,afterany:9"
    assert beside("afterok:12,afterany:12", (12,)) == "afterany:12"


def test_jobs_of_the_same_name():
    assert singleton("afterok:1,singleton") and singleton("Singleton")
    assert not singleton("afterok:singleton")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("afterok:align", "afterok:7"),
        ("afterok:align:12,after:call+5", "afterok:7:99,after:8+5"),
        ("afterok:12_[1,3]?aftercorr:12_*", "afterok:99_[1,3]?aftercorr:99_*"),
        ("afterok:other,singleton", "afterok:other,singleton"),
        ("12", "99"),
        ("align", "align"),  # no kind: not for us to guess
    ],
)
def test_jobs_by_other_names(text, wanted):
    assert renamed(text, {"align": 7, "call": 8, "12": 99}.get) == wanted


@given(st.text(alphabet="afterok:_[],?+0123456789 x", max_size=40))
def test_whatever_is_written_stays_as_it_is_where_nothing_is_known(text):
    assert renamed(text, lambda _word: None) == text
    assert set(needed(text)) <= set(jobs_named(text))
    if not needed(text) and "?" in text:
        assert beside(text, ()) == text

"""What the dashboard makes of a morning: workflows that go on and that have ended, who waits and until when, on a wide
screen and on a narrow one. The agent is the real one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest

from browser import CHECKS, Browser, browser
from dashboard_day import Day
from penstock_dashboard.server import Dashboard

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    """A browser for all these tests."""
    with browser() as it:
        yield it


@pytest.fixture(scope="module")
def day(tmp_path_factory) -> Iterator[Day]:
    """A morning, and a server of its page."""
    it = Day(tmp_path_factory.mktemp("day") / "state")
    server = Dashboard(("127.0.0.1", 0), it.feed.latest)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    it.url = server.url
    yield it
    server.shutdown()
    server.server_close()
    it.down()


def shown(tab, day, width=1280):
    tab.size(width, 900)
    tab.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    tab.open(day.url)
    tab.until("document.querySelectorAll('#decided tr').length > 0")
    tab.js(CHECKS)
    return json.loads(day.feed.latest().body)


def unfold(tab):
    tab.js("document.querySelectorAll('#workflows details').forEach((one) => (one.open = true))")
    tab.until("[...document.querySelectorAll('#workflows details')].every((one) => one.querySelector('.timeline'))")


def test_what_has_ended_is_folded_and_opens_by_keyboard_and_stays_so(tab, day):
    shown(tab, day)
    heads = tab.js("[...document.querySelectorAll('#workflows h3')].map((h) => h.innerText.replace(/\\s+/g, ' '))")
    assert [head.split()[0] for head in heads] == ["survey", "mosaic", "lenses", "calibrate"], (
        "what goes on comes first"
    )
    assert re.search(r"completed w1 .* took \d+ min, ended \d\d:\d\d$", heads[3])
    assert tab.js("document.querySelectorAll('#workflows details[open]').length") == 0
    assert "fetch" not in tab.js("document.querySelector('#workflows').textContent"), "nor does it count for the scale"
    tab.js("document.querySelectorAll('#workflows summary')[1].focus()")
    tab.key("Enter", 13)
    tab.until("document.querySelector('#workflows').innerText.includes('fetch')")
    before = tab.js("document.querySelector('#live-text').innerText")
    day.later(1)
    tab.until(f"document.querySelector('#live-text').innerText !== {json.dumps(before)}")
    assert tab.js("document.querySelector('#workflows').innerText").count("fetch") == 1
    assert tab.js("document.activeElement.tagName") == "SUMMARY"


def test_success_is_not_red_and_what_is_over_has_no_line_for_now(tab, day):
    shown(tab, day)
    unfold(tab)
    red = (
        "(node) => [...node.querySelectorAll('*')].filter((n) => n.childElementCount === 0 && n.checkVisibility())"
        ".map((n) => getComputedStyle(n).color.match(/\\d+/g).map(Number))"
        ".filter(([r, g, b]) => r > 1.6 * g && r > 1.6 * b).length"
    )
    of = "[...document.querySelectorAll('#workflows > *')].map({})"
    survey, mosaic, lenses, calibrate = tab.js(of.format(red))
    assert (survey, mosaic, calibrate) == (0, 0, 0)
    assert lenses > 0, "what has failed is"
    lines = tab.js(of.format("(node) => node.querySelectorAll('.timeline .now').length"))
    assert lines == [2, 4, 0, 0]
    # And not by its colour alone.
    assert "url" in tab.js("getComputedStyle(document.querySelector('.run.failed')).fill")
    assert tab.js("document.querySelector('#workflows').innerText").count("failed") >= 2


def test_all_workflows_are_drawn_to_one_scale_and_both_ends_of_an_axis_differ(tab, day):
    data = shown(tab, day)
    unfold(tab)
    drawn = tab.js(
        "[...document.querySelectorAll('#workflows > *')].map((one) =>"
        " [...one.querySelectorAll('tbody tr')].map((row) => row.querySelector('.run')?.getAttribute('width') ?? '0%'))"
    )
    by_name = {w["name"]: w for w in data["workflows"]}
    scales = []
    for name, widths in zip(("survey", "mosaic", "lenses", "calibrate"), drawn, strict=True):
        for stage, width in zip(by_name[name]["stages"], widths, strict=True):
            if stage["end"] is not None and stage["end"] > stage["start"]:
                scales.append(float(width.rstrip("%")) / (stage["end"] - stage["start"]))
    assert len(scales) >= 4
    assert max(scales) == pytest.approx(min(scales), rel=1e-6)
    ends = tab.js(
        "[...document.querySelectorAll('#workflows thead .ends')].map((e) => [...e.querySelectorAll(':scope > span')]"
        ".map((s) => s.innerText))"
    )
    assert len(ends) == 4 and all(len(set(pair)) == 2 for pair in ends), ends
    assert ends[0] == ends[1], "those that go on have one axis"
    told = "import('/format.js').then((m) => { m.itIs(%s); return m.ends(%s, %s); })"
    for from_, to in ((0, 1), (0, 59), (30, 90), (0, 86400), (3000, 3000 + 7 * 86400)):
        first, last = tab.js(told % (from_, from_, to))
        assert first != last, (from_, to, first)


def test_of_one_job_chart_queue_and_stages_say_one_instant_and_the_likely_one_beside_it(tab, day):
    shown(tab, day)
    label = tab.until("checks.bars().find((bar) => bar.item.label === 'survey / scan')?.ariaLabel")
    found = re.search(
        r"starts by (\d\d:\d\d):\d\d by everybody's time limits, in .* · "
        r"likely at (\d\d:\d\d):\d\d \(9 in 10: (\d\d:\d\d):\d\d to (\d\d:\d\d):\d\d\)",
        label,
    )
    assert found, label
    start, likely, low, high = found.groups()
    assert low <= likely <= high <= start
    line = "[...document.querySelectorAll('#queue-table tbody tr')].find((r) => r.innerText.includes('scan')).innerText"
    row = tab.js(line).split("\t")
    assert row[6].startswith(start) and row[7].startswith(likely) and row[8] == f"{low} – {high}", row
    assert "right 9 times in 10" in tab.js("document.querySelector('#queue-said').innerText")
    stage = tab.js(
        "[...document.querySelectorAll('.stages tbody tr')].find((r) => r.innerText.includes('scan')).innerText"
    )
    assert f"by {start}" in stage and f"likely {likely}" in stage and f"9 in 10: {low} to {high}" in stage
    assert tab.js("document.querySelectorAll('#chart .planned .band-dot').length") >= 2
    # A job behind others of its workflow is in the queue, too, without a start.
    waits = tab.js("document.querySelector('#queue-table').innerText")
    assert "jobs before it" in waits


@pytest.mark.parametrize("width", [420, 360])
def test_on_a_narrow_screen_tables_are_cards_and_nothing_is_cut(tab, day, width):
    shown(tab, day, width)
    unfold(tab)
    tab.js("document.querySelector('#cluster details').open = true")
    assert tab.js("document.documentElement.scrollWidth") <= width
    cut = (
        "[...document.querySelectorAll('main td, main th, main p, main h3, main li')].filter((n) => n.checkVisibility()"
        " && !n.closest('.hidden, thead') && (n.scrollWidth > n.clientWidth + 1"
        " || n.getBoundingClientRect().right > innerWidth)).map((n) => n.innerText.slice(0, 40))"
    )
    assert tab.js(cut) == []
    stage = tab.js("document.querySelector('.stages tbody tr').innerText")
    assert re.search(
        r"Job\s", tab.js("getComputedStyle(document.querySelector('td[data-name=Job]'), '::before').content")
    )
    assert "scan" in stage and "by " in stage
    assert tab.js("document.querySelector('.stages .timeline').getBoundingClientRect().width") > width / 2
    # It is still a table to a screen reader.
    roles = {(n["role"], n["name"]) for n in tab.tree()}
    assert {("rowheader", "scan"), ("columnheader", "Waited"), ("rowheader", "workflow 4/scan")} <= roles
    assert tab.js("checks.poorContrast()") == []

"""The dashboard in a real browser: live, in the light and in the dark, by keyboard, for a screen reader, and safe."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser import CHECKS, Browser, browser
from dashboard_scene import MINUTE, NASTY, SLOTS, Scene
from penstock_dashboard.feed import Feed
from penstock_dashboard.server import Dashboard

pytestmark = pytest.mark.timeout(300)
COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()", "dashboard"]
NOTICE = "document.querySelector('#notice').innerText"
CHOSEN = "document.querySelector('#chosen').innerText"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    """A browser for all these tests."""
    with browser() as it:
        yield it


class Site:
    """A dashboard of a scene."""

    def __init__(self, text=""):
        self.scene = Scene(time.time(), text)
        self.feed = Feed(self.scene, slots=SLOTS)
        self.feed.look()
        self.server = Dashboard(("127.0.0.1", 0), self.feed.latest)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def change(self, minutes=0.0):
        self.scene.now += minutes * MINUTE
        self.feed.look()

    def down(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def shown(tab, text="", width=1280):
    it = Site(text)
    try:
        tab.size(width, 900)
        tab.media(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
        tab.open(it.server.url)
        tab.until("document.querySelectorAll('#decided tr').length > 0")
        tab.js(CHECKS)
        yield it
    finally:
        tab.open("about:blank")
        it.down()


@pytest.fixture
def page(tab):
    with shown(tab) as it:
        yield it


def labels(tab):
    """What the bars of the picture are called, for a screen reader."""
    return tab.js("checks.bars().map((bar) => bar.ariaLabel)")


def test_the_page_shows_jobs_stages_sizes_and_reasons(tab, page):
    bars = labels(tab)
    for wanted in (
        r"Job 4101 · carol · 3 nodes: n1 – n3 · running since (.* )?\d\d:\d\d",  # with the day, soon after midnight
        r"Job 4107 · mosaic / project · alice · 4 nodes: n4 – n7 · running since",
        r"Job 4114 · carol · 6 nodes: .* · starts by .* by everybody's time limits, in \d+ min",
        r"Free slot · \d+ nodes?: .* · from .*, without end · 32 SU a node-hour$",
        r"Free slot · \d+ nodes?: .* · from .*, until .* · 32 SU a node-hour, [\d.]+ SU in all$",
        r"Reservation course · erin · 2 nodes: n13, n14 · from .*, until",
    ):
        assert any(re.match(wanted, bar) for bar in bars), (wanted, bars)
    text = tab.text()
    for said in (
        *("12 of 16", "Live · Slurm seen at", "mosaic", "auto: asa_after", "not submitted yet"),
        *("Job 4110", "4 nodes", "2 to 8 allowed", "ended"),
        *("job 4107 can start on the 6 nodes that it gives back", "its wait is predicted to be 12 min"),
    ):
        assert said in text, said
    assert tab.js("document.title") == "Penstock · granite"
    assert tab.js("location.search") == "", "the key does not stay in the address"


def test_it_is_live(tab, page):
    assert "not submitted yet" in tab.text()
    page.scene.finish()
    page.scene.decide("release", "workflow 7/publish", "merge has begun")
    page.change(minutes=1)
    tab.until("document.querySelector('#decided tr').innerText.includes('merge has begun')")
    tab.until("document.querySelector('.stages tbody tr').innerText.includes('done')")


def test_an_agent_that_is_gone_is_said_and_what_was_known_stays(tab, page):
    page.scene.silent = True
    page.change()
    tab.until(f"{NOTICE}.includes('no agent answers')")
    assert "as of" in tab.js(NOTICE)
    assert tab.js("document.querySelector('#live').dataset.state") == "lost"
    assert len(labels(tab)) > 5
    page.scene.silent = False
    page.scene.problems = ["slurm: it does not answer"]
    page.change()
    tab.until(f"{NOTICE} === 'On hold: slurm: it does not answer'")
    page.scene.problems = []
    page.change()
    tab.until(f"{NOTICE} === ''")
    tab.until("document.querySelector('#live').dataset.state === 'ok'")


def test_a_dashboard_that_was_started_again_is_said(tab, page):
    page.server.session = "another one"
    tab.until(f"{NOTICE}.includes('out of date')")


def test_names_that_are_code_are_shown_as_text(tab):
    with shown(tab, NASTY) as page:
        assert NASTY in tab.text()
        assert any(NASTY in label for label in labels(tab))
        page.scene.decide("hold", NASTY, NASTY)
        page.change(minutes=0.1)
        tab.until("document.querySelectorAll('#decided tr').length === 7")
        assert tab.js("window.hurt === undefined")
        assert tab.js("document.querySelectorAll('main img, main script, body > script').length") == 0
        # And if some code were wrong, the policy would still stop it.
        assert tab.js("checks.innerHtmlIs()") == "TypeError"


def test_nothing_is_asked_of_any_other_host_and_nothing_is_complained_of(tab, page):
    before = tab.js("performance.getEntriesByName(new URL('data.json', location).href).length")
    tab.until(f"performance.getEntriesByName(new URL('data.json', location).href).length > {before}")
    assert {urlsplit(u).hostname for u in tab.requests()} == {"127.0.0.1"}
    assert tab.complaints() == []
    assert tab.js("document.cookie") == "", "the cookie is not for scripts"


def test_light_and_dark_are_two_pictures_of_one_page(tab, page, tmp_path):
    pictures = {}
    for scheme in ("light", "dark"):
        tab.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        tab.until(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        pictures[scheme] = tab.picture()
        (tmp_path / f"{scheme}.png").write_bytes(pictures[scheme])
        ground = tab.js("getComputedStyle(document.body).backgroundColor")
        level = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
        assert (level > 200) == (scheme == "light"), ground
    assert all(len(p) > 30_000 for p in pictures.values()), "there is something on it"
    assert pictures["light"] != pictures["dark"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(tab, page, scheme):
    tab.media(prefers_color_scheme=scheme)
    page.scene.problems = ["a problem"]
    page.change()
    tab.until(f"{NOTICE} !== ''")
    assert tab.js("checks.poorContrast()") == []


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_nothing_is_wider_than_the_window(tab, width):
    with shown(tab, width=width):
        assert tab.js("document.documentElement.scrollWidth") <= width


def test_the_keyboard_reaches_everything_and_shows_where_it_is(tab, page):
    seen = []
    for _ in range(30):
        tab.key("Tab", 9)
        where, visible = tab.js("checks.focus()")
        if where == "BODY" or (seen and where == seen[0]):
            break
        assert visible, f"{where} has the focus and does not show it"
        seen.append(where)
    # Where a bar has been chosen, what was decided about it can be asked for.
    assert " ".join(seen) == "skip window partition show-planned show-slots chart why SUMMARY SUMMARY filter"


def test_arrows_go_from_bar_to_bar_and_say_what_each_is(tab, page):
    tab.js("document.querySelector('#show-slots').focus()")
    tab.key("Tab", 9)
    first = tab.until(f"{CHOSEN}.startsWith('Job') && {CHOSEN}")
    tab.key("ArrowRight", 39)
    second = tab.js(CHOSEN)
    assert second.startswith("Job")
    tab.key("End", 35)
    assert tab.js(CHOSEN).startswith("Free slot"), "what is free comes after what there is"
    tab.key("ArrowRight", 39)
    tab.key("Home", 36)
    assert tab.js(CHOSEN) == first != second
    # What is chosen stays so while the picture is drawn anew.
    active = "document.getElementById(document.querySelector('#chart').getAttribute('aria-activedescendant'))"
    tab.js("window.before = document.querySelector('#chart svg')")
    page.change(minutes=0.05)
    tab.until("document.querySelector('#chart svg') !== window.before")
    assert tab.js(f"{active}.ariaSelected") == "true"
    assert tab.js(f"{active}.ariaLabel").split(" (")[0] == first.split(" (")[0]
    tab.key("Escape", 27)
    assert tab.js(CHOSEN) == "Select a bar to see what it is."


def test_all_times_of_a_decision_are_local(tab):
    """The agent writes its sentences in UTC."""
    tab.zone("Asia/Kathmandu")  # UTC+5:45
    try:
        with shown(tab) as it:
            due = it.scene.now + 90
            utc = time.strftime("%H:%M:%SZ", time.gmtime(due))
            it.scene.decide("nothing", "workflow 7/late", f"due at {utc}, calm until 2031-05-06 12:30Z, not 99:99:99Z")
            it.change()
            rows = "[...document.querySelectorAll('#decided tr')]"
            said = tab.until(f"{rows}.find((row) => row.cells[1].innerText === 'workflow 7/late')?.cells[3].innerText")
            here = time.strftime("%H:%M", time.gmtime(due + 5.75 * 3600))
            assert re.fullmatch(rf"due at .*\b{here}.*, calm until 6 May 18:15, not 99:99:99Z", said), (said, here)
            assert utc not in said
    finally:
        tab.zone()


def test_from_a_bar_to_what_was_decided_about_it(tab, page):
    click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    tab.js(f"checks.bars().find((bar) => bar.item.job === 4110).{click}")
    tab.js("document.querySelector('#why').click()")
    assert tab.js("document.querySelectorAll('#decided tr').length") == 3
    assert tab.js("document.activeElement.id") == "decisions-title"
    tab.js("checks.set('filter', 'PREDICTED', 'input')")
    assert tab.js("document.querySelector('#decided').innerText").count("workflow 7/merge") == 1
    assert "1 of the latest 6" in tab.text()


def test_what_is_shown_can_be_chosen(tab, page):
    def kinds():
        return set(tab.js("checks.bars().map((bar) => bar.item.kind)"))

    assert kinds() == {"running", "planned", "slot", "reserved"}
    tab.js("document.querySelector('#show-slots').click()")
    tab.js("document.querySelector('#show-planned').click()")
    assert kinds() == {"running", "reserved"}
    tab.js("checks.set('partition', 'short', 'change')")
    assert tab.js("document.querySelectorAll('#chart text.node').length") == 4
    tab.js("checks.set('window', '600', 'change')")
    assert kinds() == {"running"}


def test_a_large_cluster_is_shown_part_by_part(tab, page):
    page.scene.grow(300)
    page.change()
    tab.until("document.querySelector('#rows-text').innerText === 'nodes 1 to 96 of 300'")
    tab.js("document.querySelector('#rows-after').click()")
    assert tab.js("document.querySelector('#rows-text').innerText") == "nodes 97 to 192 of 300"
    tab.js("document.querySelector('#rows-after').click()")
    tab.js("document.querySelector('#rows-after').click()")
    assert tab.js("document.querySelector('#rows-text').innerText") == "nodes 289 to 300 of 300"
    assert tab.js("document.querySelector('#rows-after').disabled")
    assert tab.js("document.querySelectorAll('#chart text.node').length") == 12


def test_a_screen_reader_is_told_what_everything_is(tab, page):
    tree = tab.tree()
    names = {(n["role"], n["name"]) for n in tree}
    for wanted in (
        *(("heading", name) for name in ("Nodes over time", "Queue", "Workflows", "Malleable jobs", "Decisions")),
        *(("combobox", "Time shown"), ("combobox", "Partition"), ("searchbox", "Filter")),
        *(("checkbox", "waiting, starts by then"), ("checkbox", "free slot")),
        *(("columnheader", "Waited"), ("rowheader", "merge"), ("rowheader", "job 4110")),
        *(("main", ""), ("region", "Malleable jobs")),
    ):
        assert wanted in names, wanted
    (chart,) = [n for n in tree if n["role"] == "listbox"]
    assert "tables below" in chart["name"]
    assert all(n["name"] for n in tree if n["role"] == "option")
    pictures = [n["name"] for n in tree if n["role"] in ("image", "img")]
    assert any(re.search(r"Job 4110: 2 nodes from .*, 4 nodes from .*, 8 nodes from", name) for name in pictures)
    acting = ("button", "combobox", "checkbox", "searchbox", "link", "listbox", "textbox")
    assert [n for n in tree if n["role"] in acting and not n["name"].strip()] == []
    assert tab.js("checks.doubledIds()") == []
    assert tab.js("document.documentElement.lang") == "en"
    assert tab.js("checks.headingsInOrder()")
    # Only what a reader must not miss is read out by itself.
    assert tab.js("checks.readOutByThemselves()") == ["notice"]


def test_the_picture_is_there_as_a_table(tab, page):
    tab.js("document.querySelector('#cluster summary').click()")
    text = tab.until("document.querySelector('#bars').innerText")
    rows = [line.split("\t") for line in text.splitlines()]
    assert ["4101", "running", "carol", "3", "n1 – n3"] in [row[:5] for row in rows]
    assert ["4107 mosaic / project", "running, of a workflow"] in [row[:2] for row in rows]
    assert any(row[:2] == ["4113 mosaic / merge", "expected to start"] for row in rows)
    assert any(row[:2] == ["slot", "free"] and row[-1].startswith("32 SU a node-hour") for row in rows)


def test_the_command_against_an_agent(tab, agent):
    """As a user sees it: the command prints the address, the page shows a workflow that runs, and the agent may go."""
    command = subprocess.Popen(COMMAND, env=agent.environment, stdout=subprocess.PIPE, text=True)
    try:
        printed = [command.stdout.readline() for _ in range(5)]
        url = printed[1].strip()
        port = urlsplit(url).port
        assert f"ssh -N -L {port}:127.0.0.1:{port}" in printed[3]
        file = agent.folder / "shown.yaml"
        file.write_text(
            "name: shown\nstages:\n"
            "  - {name: first, nodes: 2, time: 10m, expect: 5m, run: sleep 300}\n"
            "  - {name: second, nodes: 1, time: 10m, expect: 1m, run: sleep 1}\n"
        )
        done = agent.run("submit", str(file), "--strategy", "perstage")
        assert done.returncode == 0, done.stderr
        tab.open(url)
        tab.js(CHECKS)
        tab.until("document.querySelector('.stages tbody tr')?.innerText.includes('running')")
        tab.until("checks.bars().some((bar) => bar.classList.contains('flow') && bar.item.label === 'shown / first')")
        submitted = "[...document.querySelectorAll('#decided tr')].find((row) => row.cells[2].innerText === 'submit')"
        assert tab.until(f"{submitted}?.cells[3].innerText"), "its reasons"
        assert tab.js(f"{submitted}.cells[1].innerText").startswith("workflow ")
        agent.stop()
        tab.until(f"{NOTICE}.includes('no agent answers')")
        agent.start()
        tab.until(f"{NOTICE} === ''")
        assert agent.run("cancel", "shown").returncode == 0
        tab.until("document.querySelector('.tag.cancelled') !== null")
        assert tab.complaints() == []
    finally:
        command.terminate()
        assert command.wait(60) == 0
        command.stdout.close()


def test_the_command_refuses_what_others_could_reach(agent):
    done = agent.run("dashboard", "--listen", "0.0.0.0:8787")
    assert done.returncode == 2
    assert "ssh -N -L 8787:127.0.0.1:8787" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_without_an_agent(tab, tmp_path: Path):
    nowhere = tmp_path / "none"
    environment = {**os.environ, "PENSTOCK_AGENT__STATE_DIR": str(nowhere)}
    words = [*COMMAND, "--listen", "localhost:0"]
    command = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        command.stdout.readline()
        tab.open(command.stdout.readline().strip())
        tab.until(f"{NOTICE}.includes('penstock agent')")
        assert "Nothing has been decided yet" in tab.text()
        assert "No workflows." in tab.text()
        command.terminate()
        tab.until(f"{NOTICE}.includes('does not answer')")
    finally:
        command.terminate()
        command.wait(60)
        command.stdout.close()
    assert not nowhere.exists(), "looking leaves nothing behind"

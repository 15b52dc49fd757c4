"""The documentation as a site: it is built without a warning, every link in it leads somewhere, nothing is loaded from
elsewhere, and what is generated is whole. Built from a copy, so that the tests leave no file behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from doc_pages import DOCS

from penstock import api, errors
from penstock.cli import cli
from penstock.cli.catalogue import METRICS, PREFIX
from penstock.config import keys_by_section
from penstock.core.installed import extension_points

# Half a minute where nothing else runs; on a machine that is busy it takes what it takes.
pytestmark = pytest.mark.timeout(1200)
PATIENCE = 900.0
NEEDED = ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "latex2mathml")


def need_sphinx() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        reason = f"no {', '.join(missing)} here (pip install -e '.[docs]')"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def sphinx(builder: str, source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, "-d", str(out / "doctrees")]
    return subprocess.run(
        [*command, str(source), str(out / builder)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    need_sphinx()
    folder = tmp_path_factory.mktemp("source") / "docs"
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("generated", "__pycache__"))
    shutil.copy(DOCS.parent / "CONTRIBUTING.md", folder.parent)  # which is a page, too
    (folder / "soak-later.md").write_text("# A page to come\n")
    return folder


@pytest.fixture(scope="module")
def built(source, tmp_path_factory) -> Path:
    """The folder with the site and the man pages."""
    out = tmp_path_factory.mktemp("built")
    for builder in ("html", "man"):
        done = sphinx(builder, source, out)
        assert (done.returncode, done.stderr) == (0, ""), f"{builder}: {done.stderr}"
    return out


class Page(HTMLParser):
    """What a page refers to and what can be referred to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.math = 0
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe") and "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and "href" in found:
            self.loads.append(found["href"])
        self.math += tag == "math"


@pytest.fixture(scope="module")
def pages(built) -> dict[Path, Page]:
    return {path: Page(path) for path in (built / "html").rglob("*.html") if "_static" not in path.parts}


def test_every_page_of_the_folder_is_in_the_site(built):
    for page in DOCS.rglob("*.md"):
        if "generated" not in page.parts:
            assert (built / "html" / page.relative_to(DOCS).with_suffix(".html")).exists(), page


def test_a_page_that_a_pattern_of_the_index_matches_is_in_its_list(pages, built):
    assert (built / "html" / "soak-later.html") in pages
    assert "soak-later.html" in pages[built / "html" / "index.html"].links


def test_links_within_the_site_lead_somewhere(pages, built):
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path.name}: {link}: no such page")
            elif parts.fragment and target in pages and parts.fragment not in pages[target].ids:
                wrong.append(f"{path.name}: {link}: no such place")
    assert wrong == []
    assert len(pages) > 50


def test_nothing_is_loaded_from_elsewhere(pages):
    assert [(path.name, one) for path, page in pages.items() for one in page.loads if urlsplit(one).netloc] == []


def test_equations_are_mathml(pages, built):
    method = pages[built / "html" / "method.html"]
    assert method.math > 10
    assert not any("merror" in page.text or "MathJax" in page.text for page in pages.values())


def test_the_anchors_that_doctor_prints_are_in_the_site(pages, built):
    assert {"extern-step", "state-folder", "features"} <= pages[built / "html" / "doctor.html"].ids


# -- what is generated -------------------------------------------------------------------------------------------------


def generated(source: Path, name: str) -> str:
    return (source / "reference" / "generated" / f"{name}.md").read_text(encoding="utf-8")


def test_the_reference_has_every_key_metric_and_error(built, source):
    configuration, metrics = generated(source, "configuration"), generated(source, "metrics")
    for section, keys in keys_by_section().items():
        for key in keys:
            assert f"| `{section}.{key}` |" in configuration
    for line in ("| `agent.interval` | duration | `1m` |", "| `dmr.cooldown` | duration | `30s` |"):
        assert line in configuration
    assert all(f"`{PREFIX}{name}`" in metrics for name in METRICS)
    codes = generated(source, "exit-codes")
    assert all(name in codes for name in errors.__all__ if name != "EXIT_CODES")
    assert all(f"\n| {code} | {meaning} |" in codes for code, meaning in errors.EXIT_CODES.items())
    assert "| `ConfigError`: The configuration is wrong" in codes


def test_the_reference_has_every_word_of_the_api(built, source):
    pages = generated(source, "words") + generated(source, "plug-ins")
    assert [name for name in api.__all__ if f" penstock.api.{name}" not in pages] == []


def test_the_reference_has_every_extension_point(built, source):
    page = generated(source, "plug-ins")
    for point in extension_points():
        assert f"Entry point `{point.group}`, chosen by {point.chosen or point.key}." in page


def commands(context: click.Context, command: click.Command):
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            yield from commands(click.Context(below, info_name=name, parent=context), below)


def test_every_command_and_option_is_in_the_reference_and_in_a_man_page(built, source):
    for context, command in commands(click.Context(cli, info_name="penstock"), cli):
        words = context.command_path.split(" ")
        name = "-".join(words[:2])
        page = generated(source, f"commands/{name}")
        manual = (built / "man" / "man1" / f"{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for option in parameter.opts:
                    assert option in page, f"{context.command_path} {option}"
                    assert option in manual, f"{name}.1: {option}"


def test_man_can_read_the_manual(built):
    program = shutil.which("man")
    if program is None:
        pytest.skip("no man here")
    page = built / "man" / "man1" / "penstock-submit.1"
    done = subprocess.run(
        [program, "--warnings", "-l", str(page)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--strategy NAME" in done.stdout


# -- what must fail ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path) -> Path:
    """A site of two pages with the same settings, without the generated pages."""
    need_sphinx()
    for part in ("_ext", "_static"):
        shutil.copytree(DOCS / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (DOCS / "conf.py").read_text(encoding="utf-8")
    shorter = settings.replace(', "penstock_docs"]', "]").replace('html_math_renderer = "mathml"', "")
    assert len(shorter) < len(settings) - 40
    (tmp_path / "conf.py").write_text(shorter)
    (tmp_path / "index.md").write_text("# Index\n\n```{toctree}\nuser\n```\n\n[there](user.md#a-heading)\n")
    (tmp_path / "user.md").write_text("# User\n\n## A heading\n")
    return tmp_path


def test_a_site_without_mistakes_is_built(small):
    done = sphinx("dummy", small, small / "out")
    assert (done.returncode, done.stderr) == (0, "")


def test_dead_links_and_a_page_in_no_list_are_errors(small):
    (small / "user.md").write_text("# User\n\n[no place](index.md#no-such-heading), [no page](missing.md)\n")
    (small / "other.md").write_text("# A page in no list\n")
    done = sphinx("dummy", small, small / "out")
    assert done.returncode != 0
    for said in ("no-such-heading", "missing.md", "other.md: WARNING: document isn't included in any toctree"):
        assert said in done.stderr
    assert "a-heading" in done.stderr  # which is no more

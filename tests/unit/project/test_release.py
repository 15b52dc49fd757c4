"""What scripts/release.sh does to the source; that it builds is tried by building."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from outside import need_program
from places import PROJECT

VERSION = Path("agent/penstock/__init__.py")
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n- A.\n\n## [0.1.0] - 2026-01-01\n\n### Added\n- B.\n"
WHO = {f"GIT_{role}_{what}": "a@b.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with the files that are changed, and one commit."""
    for name in ("scripts/release.sh", "scripts/own-folder.sh", str(VERSION)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(tmp_path, *words)
    return tmp_path


def git(source: Path, *words: str) -> str:
    done = subprocess.run(
        [need_program("git", "git"), *words],
        cwd=source,
        env=os.environ | WHO,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = source / "scripts" / "release.sh"
    return subprocess.run([script, *words], env=os.environ | WHO, capture_output=True, text=True, timeout=60)


def version(source: Path) -> str:
    return re.findall(r'(?m)^__version__ = "(.*)"$', (source / VERSION).read_text())[0]


def test_a_release_is_cut_and_the_next_one_begun(source):
    done = release(source, "--cut", "0.2.0")
    assert done.returncode == 0, done.stderr
    assert "git push origin HEAD v0.2.0" in done.stdout
    assert version(source) == "0.2.0"
    today = git(source, "log", "-1", "--date=format-local:%Y-%m-%d", "--format=%cd").strip()
    text = (source / "CHANGELOG.md").read_text()
    assert re.sub(r"\d{4}-\d\d-\d\d", today, text) == re.sub(
        r"\d{4}-\d\d-\d\d", today, CHANGELOG.replace("## [Unreleased]", f"## [0.2.0] - {today}", 1)
    )
    assert git(source, "status", "--porcelain") == ""
    assert git(source, "rev-parse", "v0.2.0^{commit}") == git(source, "rev-parse", "HEAD")
    assert git(source, "log", "-1", "--format=%s") == "Release 0.2.0\n"

    done = release(source, "--open", "0.3.0.dev0")
    assert done.returncode == 0, done.stderr
    assert version(source) == "0.3.0.dev0"
    assert (source / "CHANGELOG.md").read_text() == text.replace("## [0.2.0]", "## [Unreleased]\n\n## [0.2.0]")
    assert git(source, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cut", "0.2.0.dev1"), "is no version to release"),
        (("--cut", "v0.2.0"), "is no version to release"),
        (("--cut", '0.2.0"; x'), "is no version to release"),
        (("--open", "0.3.0"), "is no version to work on"),
        (("--cut",), "usage:"),
        (("--other",), "usage:"),
    ],
)
def test_what_makes_no_sense_changes_nothing(source, words, reason):
    done = release(source, *words)
    assert done.returncode != 0 and reason in done.stderr
    assert git(source, "status", "--porcelain") == "" and git(source, "tag") == ""


def test_only_what_is_committed_is_released_and_only_once(source):
    (source / "new").touch()
    done = release(source, "--cut", "0.2.0")
    assert done.returncode == 1 and "not committed" in done.stderr
    assert version(source) != "0.2.0"
    (source / "new").unlink()
    git(source, "tag", "v0.2.0")
    done = release(source, "--cut", "0.2.0")
    assert done.returncode == 1 and "there is a tag v0.2.0 already" in done.stderr
    git(source, "tag", "-d", "v0.2.0")
    assert release(source, "--cut", "0.2.0").returncode == 0
    done = release(source, "--cut", "0.2.1")
    assert done.returncode == 1 and "does not begin with a section [Unreleased]" in done.stderr
    assert version(source) == "0.2.0"


def test_a_release_is_not_built_among_other_files(source):
    (source / "dist").mkdir()
    (source / "dist" / "old.whl").touch()
    done = release(source)
    assert done.returncode == 1 and "dist is not empty" in done.stderr

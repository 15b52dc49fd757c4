"""What CONTRIBUTING.md tells a newcomer is so: files, folders, verbs of make, and hooks that call what CI calls."""

from __future__ import annotations

import re

import pytest
import yaml
from doc_pages import anchors, links

from places import PROJECT

PAGE = (PROJECT / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))


def test_the_tests_and_files_that_it_names_are_there():
    words = [word for one in CODE for word in one.split()]
    named = [word for word in words if re.match(r"(tests|agent|dmr|lab|docs|deploy|scripts|systemd|plugins)\b/?", word)]
    assert len(named) > 30
    for name in named:
        assert list(PROJECT.glob(name)), name
    for link in links(PAGE):
        name, _, heading = link.partition("#")
        assert (PROJECT / name).exists(), link
        if heading:
            assert heading in anchors((PROJECT / name).read_text(encoding="utf-8")), link


def test_each_folder_stands_once_in_the_table_of_tests():
    rows = re.findall(r"(?m)^\| (`.*?) \| .* \|$", PAGE)
    every = [one for row in rows for one in re.findall(r"`([^`]+)`", row)]
    named = [one for one in every if not one.startswith(("make ", "scripts/test"))]  # those are of the other table
    assert "docs" in named and "dmr/c" in named
    assert sorted(named) == sorted(set(named))


def test_what_takes_long_is_left_out_of_the_tests_of_pages_and_parts_have_their_page():
    assert '`tests/unit/project/test_docs*.py -m "not long"`' in PAGE
    assert "(docs/parts.md)" in PAGE and "(contributing.md)" in (PROJECT / "docs" / "index.md").read_text()


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("agent/penstock", "agent"),
        ("lab/penstock_lab", "lab"),
        ("plugins/planning/penstock_planning", "planning"),
        ("plugins/pool/penstock_pool", "pool"),
    ],
)
def test_tests_stand_in_folders_that_mirror_the_code(code, tests):
    parts = {folder.parent.name for folder in (PROJECT / code).glob("*/__init__.py")}
    home = PROJECT / "tests" / "unit" / tests
    tested = {file.relative_to(home).parts[0] for file in home.glob("*/**/test_*.py")}
    assert tested <= parts, "a folder of tests without a folder of code"
    # Words that all others use; commands, which the tests of the command line try; names for programs.
    assert parts - tested <= {"api", "cli", "commands", "console", "messages", "pool"}, "no tests"
    loose = {file.name for file in (PROJECT / "tests" / "unit").glob("test_*.py")}
    assert not loose, "above all folders"


def test_the_verbs_of_make_are_there_and_call_scripts_that_are():
    makefile = (PROJECT / "Makefile").read_text()
    verbs = set(re.findall(r"(?m)^([a-z]+):", makefile))
    assert {one.split()[1] for one in CODE if one.startswith("make ")} <= verbs
    for script in re.findall(r"(?m)^\t((?:scripts|deploy)/\S+)", makefile):
        assert (PROJECT / script).stat().st_mode & 0o111, script


def test_the_hooks_are_of_this_project_and_call_its_check():
    (repo,) = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    kinds = set(re.findall(r"(?m)^(\w+)\(\) \{", (PROJECT / "scripts" / "check.sh").read_text())) - {"fix"}
    assert repo["repo"] == "local"
    assert {hook["entry"] for hook in repo["hooks"]} == {f"scripts/check.sh {kind}" for kind in kinds}

"""What CONTRIBUTING.md tells a newcomer is so: files, folders, verbs of make, and hooks that call what CI calls."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))


def test_the_tests_and_files_that_it_names_are_there():
    words = [word for one in CODE for word in one.split()]
    named = [word for word in words if re.match(r"(tests|agent|dmr|lab|docs|deploy|scripts|systemd|plugins)\b/?", word)]
    assert len(named) > 60
    for name in named:
        assert list(PROJECT.glob(name)), name
    for link in re.findall(r"\]\(([\w/.-]+)", PAGE):
        assert (PROJECT / link).exists(), link


def test_every_folder_of_the_agent_has_a_row():
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    for folder in (PROJECT / "agent" / "penstock").iterdir():
        if (folder / "__init__.py").exists() and folder.name not in {"api", "host", "values"}:  # seen by all the others
            assert re.search(rf"[`/]{folder.name}`", rows), folder.name


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

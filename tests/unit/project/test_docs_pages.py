"""The documentation as it lies in the repository: links lead somewhere, examples are right, commands exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from doc_pages import (
    HERE_DOCUMENT,
    PAGES,
    PROJECT,
    Block,
    anchors,
    blocks,
    commands_in,
    links,
    objection,
    outside_blocks,
)

from penstock.config import load
from penstock.core.installed import extension_points
from penstock.resize.recipes.model import read_elastic
from penstock.sbatch.directives import read_directives
from penstock.workflow.files.formats import load_workflow
from penstock_planning.broker.resources import read_resources
from penstock_planning.broker.site import read_site
from penstock_planning.broker.tasks import read_bags
from penstock_planning.plan.queuefile import parse_queue
from penstock_planning.sites.file import read_sites
from penstock_pool.taskfile import read_tasks

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = ("sh", "bash", "console")
OTHERS = frozenset({"groups", "scrape_configs", "services"})
"""Top keys of YAML files that are read by other programs: Prometheus, Compose."""


def of(*languages):
    chosen = [block for block in BLOCKS if block.language in languages]
    assert chosen, languages
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.where)


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_between_pages_and_to_files_lead_somewhere(page):
    for link in links(outside_blocks(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{link}: no such heading"


def test_a_link_that_leads_nowhere_is_seen():
    assert links("see [a](b.md#c) and ![d](e.png), not `[f](g)` or [h](https://i)") == ["b.md#c", "e.png"]
    assert anchors("# One user's agent\n## `a_b`: [c](d), e\n") == {"one-users-agent", "a_b-c-e"}


# -- examples ----------------------------------------------------------------------------------------------------------


def test_every_block_says_its_language():
    assert [block.where for block in BLOCKS if not block.language] == []


@of("yaml")
def test_yaml_is_taken_by_what_reads_it(block, tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(block.text)
    found = yaml.safe_load(block.text)
    keys = set(found)
    if isinstance(found, list) or keys & OTHERS:
        return
    if "elastic" in keys:
        read_elastic(block.text, "file.yaml", "python3")
    elif "stages" in keys:
        load_workflow(path)
    elif "sites" in keys:
        read_sites(path)
    elif "resources" in keys:
        read_resources(path)
    elif keys & {"requirements", "tasks"}:
        without = re.sub(r"(?m)^profile: .*\n", "", block.text)  # measured on a machine of the reader's
        path.write_text(without)
        read_bags(path)
    elif keys & {"features", "partitions"}:
        read_site(path)
    else:
        load(path, {})


@of("json")
def test_json_is_taken_by_what_reads_it(block, tmp_path):
    found = json.loads(block.text)
    if "procs" in found:
        parse_queue(block.text)
    elif "command" in found:
        path = tmp_path / "tasks.jsonl"
        path.write_text(block.text + "\n")
        read_tasks(path, str(tmp_path))


@of("toml")
def test_toml_names_entry_points_that_are_looked_for(block):
    groups = tomllib.loads(block.text).get("project", {}).get("entry-points", {})
    assert set(groups) <= {point.group for point in extension_points()}


@of("python")
def test_python_compiles_and_what_it_imports_is_there(block):
    text = block.text
    if re.search(r"^( *)return$", text, re.MULTILINE):  # a piece of a function
        text = "def piece():\n" + "\n".join("    " + line for line in text.splitlines())
    tree = ast.parse(text, block.where)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module.startswith("penstock.tools."):
            assert {alias.name for alias in statement.names} <= offered(statement.module)
        elif isinstance(statement, ast.ImportFrom) and statement.module.startswith(("penstock", "dmr")):
            names = ", ".join(alias.name for alias in statement.names)
            exec(f"from {statement.module} import {names}", {})


def offered(module: str) -> set[str]:
    """What a module names as its own, unimported: the tool that it is for need not be here."""
    (names,) = [
        statement.value
        for statement in ast.parse((PROJECT / "agent" / (module.replace(".", "/") + ".py")).read_text()).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    ]
    return set(ast.literal_eval(names))


@of("python")
def test_what_python_takes_from_dmr_is_there(block):
    import dmr

    used = {
        n.attr
        for n in ast.walk(ast.parse("if 1:\n" + "\n".join(" " + line for line in block.text.splitlines())))
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "dmr"
    }
    assert used <= set(dmr.__all__)


# -- commands ----------------------------------------------------------------------------------------------------------


@of(*SHELL)
def test_commands_exist_with_the_options_and_arguments_they_are_given(block):
    wrong = {" ".join(words): said for words in commands_in(block) if (said := objection(words))}
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_commands_in_running_text_exist(page):
    text = re.sub(r"\s+", " ", outside_blocks(page))
    wrong = {}
    for line in re.findall(r"`(penstock [^`]+)`", text):
        shown = re.split(r"[|…\[;#]|\.\.\.", line)[0]
        if said := objection(shlex.split(shown if shown.count('"') % 2 == 0 else shown.replace('"', "")), whole=False):
            wrong[line] = said
    assert wrong == {}


@of(*SHELL)
def test_files_that_a_block_writes_are_right(block, tmp_path):
    for name, _, text in HERE_DOCUMENT.findall(block.text):
        path = tmp_path / Path(name).name
        path.write_text(text)
        assert load_workflow(path).stages


@of(*SHELL)
def test_penstock_lines_of_scripts_are_read(block):
    script = [line for line in block.text.splitlines() if line.startswith("#")]
    if any(line.startswith("#PENSTOCK") for line in script):
        assert read_directives(script, block.where)


def test_wrong_commands_are_seen():
    def said(line, **more):
        return objection(line.split(), **more)

    assert said("penstock submit a.yaml --strategy auto") is None
    assert "no command" in said("penstock frobnicate")
    assert "no command" in said("penstock pool frobnicate")
    assert "No such option" in said("penstock submit a.yaml --fast")
    assert "is not one of" in said("penstock submit a.yaml --strategy fastest")
    assert "requires an argument" in said("penstock submit a.yaml --strategy")
    assert "lacks" in said("penstock submit")
    assert said("penstock submit", whole=False) is None
    assert "takes no" in said("penstock status a b c")


def test_commands_are_found_wherever_they_stand():
    text = """eval "$(penstock env)"  # penstock all
sudo -u x A=b penstock doctor --json; penstock top | less
systemctl status penstock && ./penstock-like x
cat > a.yaml <<'END'
penstock: 1
END
penstock logs \\
    'w 1'
"""
    found = [["penstock", "env"], ["penstock", "doctor", "--json"], ["penstock", "top"], ["penstock", "logs", "w 1"]]
    assert list(commands_in(Block("", "sh", text))) == found
    assert list(commands_in(Block("", "console", "$ penstock top\npenstock pool"))) == [["penstock", "top"]]
    assert HERE_DOCUMENT.findall(text) == [("a.yaml", "END", "penstock: 1\n")]

"""The workflow files that pages show are taken without a word."""

from __future__ import annotations

import re

import pytest
from doc_pages import PAGES

from penstock.errors import UserError
from penstock.workflow.files.formats import load_workflow

_FILE = re.compile(r"^name: [^\n]+\n(?:[ \w#].*\n|\n)*?stages:\n(?:  .*\n)+", re.MULTILINE)
FILES = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(_FILE.findall(page.read_text()))
]


def test_there_are_some():
    assert {"README.md-0", "quickstart.md-0", "workflows.md-0"} <= {each.id for each in FILES}


@pytest.mark.parametrize("text", FILES)
def test_a_workflow_file_of_a_page_draws_no_notice(text, tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    try:
        notices = load_workflow(file).notices
    except UserError as error:  # a script of the page's reader
        assert "script" in str(error)
        notices = () if "\nshell: " in text else ("shell",)
    assert not notices

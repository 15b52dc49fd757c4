"""Sphinx's configuration; `scripts/docs.sh` builds the site."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from penstock_docs import man_pages as generated_man_pages

project = "Penstock"
copyright = "the Penstock authors"
author = "the Penstock authors"
release = version = installed("penstock")

extensions = ["myst_parser", "sphinx_copybutton", "penstock_docs"]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

html_theme = "furo"
html_title = f"Penstock {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
pygments_style = "default"

man_pages = generated_man_pages()
man_make_section_directory = True

"""Equations as MathML, made when the site is built: pages load nothing from elsewhere and need no JavaScript for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

__all__ = ["setup"]


def _inline(writer: Any, node: nodes.math) -> None:  # noqa: ANN401
    from docutils.nodes import SkipNode

    writer.body.append(convert(node.astext()))
    raise SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:  # noqa: ANN401
    from docutils.nodes import SkipNode

    writer.body.append(f'<div class="math-block">{convert(node.astext(), display="block")}</div>\n')
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Makes this the way in which HTML shows equations."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))

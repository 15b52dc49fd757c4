"""Makes the pictures of docs/dashboard.md: `scripts/pictures.sh`. The page is the product's, and so is the agent behind
it, over the simulated Slurm in virtual time: each run makes the same."""

from __future__ import annotations

import io
import logging
import sys
import tempfile
import threading
from pathlib import Path

import structlog
from PIL import Image

from browser import Browser, browser
from dashboard_day import Day
from penstock_dashboard.server import Dashboard

PICTURES = (
    ("dashboard-light.png", 1280, "light", "#decisions"),
    ("dashboard-dark.png", 1280, "dark", "#decisions"),
    ("dashboard-narrow.png", 420, "light", "#workflows-title"),
)
"""File, width, colours, and before what the picture ends (some pixels below its begin)."""
_MORE = 300


def _picture(tab: Browser, url: str, width: int, scheme: str, end: str) -> bytes:
    tab.size(width, 900)
    tab.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    tab.open(url)
    tab.until("document.querySelectorAll('#decided tr').length > 0")
    tab.until("document.querySelector('#chart svg') !== null")
    return tab.picture(height=tab.js(f"document.querySelector('{end}').getBoundingClientRect().top + scrollY") + _MORE)


def _small(picture: bytes) -> bytes:
    """The same in a third of the bytes: a page has few colours."""
    out = io.BytesIO()
    few = (
        Image.open(io.BytesIO(picture))
        .convert("RGB")
        .quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


def main(folder: Path) -> None:
    """Write them into a folder."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as state, browser() as tab:
        day = Day(Path(state) / "state")
        server = Dashboard(("127.0.0.1", 0), day.feed.latest)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        for name, width, scheme, end in PICTURES:
            (folder / name).write_bytes(_small(_picture(tab, server.url, width, scheme, end)))
            print(folder / name)
        server.shutdown()
        server.server_close()
        day.down()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

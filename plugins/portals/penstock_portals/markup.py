"""The page of expected waits as HTML. Pure; whatever it is given is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from penstock_portals.words import limit_text, wait_text

__all__ = [
    "STYLE_HASH",
    "change_text",
    "document",
    "form_html",
    "hours_html",
    "own_html",
    "reliable_text",
    "table_html",
]

_STYLE = """
body{font:1rem/1.5 system-ui,sans-serif;margin:1rem auto;max-width:60rem;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}
caption{text-align:left;font-weight:bold;padding:.25rem 0}
th,td{border:1px solid #767676;padding:.3rem .6rem;text-align:left}
th{background:#f2f2f2}
label{display:inline-block;margin:0 1rem .5rem 0}
input,select,button{font:inherit}
.answer{border-left:.3rem solid #0b5394;padding:.3rem .8rem}
.wrong{border-left:.3rem solid #a61b1b;padding:.3rem .8rem}
""".strip()
STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def change_text(change: Mapping[str, Any]) -> str:
    """What to change, and what is expected then."""
    if change["change"] == "partition":
        what = f"in partition {change['partition']}"
    else:
        what = f"with a time limit of {limit_text(change['time_limit'])}"
    return f"{what}: {wait_text(change['p50'], change['p95'])}"


def form_html(given: Mapping[str, str], partitions: Sequence[Mapping[str, Any]]) -> str:
    """Asks for a job."""
    chosen = given.get("partition")
    options = "".join(
        f'<option value="{escape(p["name"])}"{" selected" if p["name"] == chosen else ""}>{escape(p["name"])}</option>'
        for p in partitions
    )
    nodes, limit = escape(given.get("nodes", "1")), escape(given.get("time", "1h"))
    return (
        '<form method="get"><h2>Your job</h2>'
        f'<label>Partition <select name="partition">{options}</select></label>'
        f'<label>Nodes <input name="nodes" value="{nodes}" inputmode="numeric" size="6"></label>'
        f'<label>Time limit <input name="time" value="{limit}" size="10"></label>'
        "<button>Show</button></form>"
    )


def own_html(found: Mapping[str, Any]) -> str:
    """What is expected of the job that was asked for."""
    if "error" in found:
        return f'<p class="wrong" role="alert">{escape(found["error"])}</p>'
    many = "1 node" if found["nodes"] == 1 else f"{found['nodes']} nodes"
    what = f"{many} for {limit_text(found['time_limit'])} in {found['partition']}"
    text = f"<p><strong>{escape(what)}: {escape(wait_text(found['p50'], found['p95']))}</strong>, submitted now.</p>"
    sooner = "".join(f"<li>{escape(change_text(one))}</li>" for one in found["sooner"])
    if sooner:
        text += f"<p>Sooner:</p><ul>{sooner}</ul>"
    return f'<section class="answer" aria-label="Expected wait of your job">{text}</section>'


def table_html(name: str, sizes: Sequence[int], limits: Sequence[float], found: Sequence[Mapping[str, Any]]) -> str:
    """The waits of one partition: `found` row by row, a row for each size."""
    head = "".join(f'<th scope="col">{escape(limit_text(limit))}</th>' for limit in limits)
    rows = []
    for number, size in enumerate(sizes):
        cells = found[number * len(limits) : (number + 1) * len(limits)]
        told = "".join(f"<td>{escape(_cell(cell))}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{size}</th>{told}</tr>')
    return (
        f"<table><caption>Partition {escape(name)}: expected wait by nodes and time limit</caption>"
        f'<thead><tr><th scope="col">Nodes</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _cell(found: Mapping[str, Any]) -> str:
    return "cannot run" if "error" in found else wait_text(found["p50"], found["p95"])


def hours_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """The waits by hour of the day."""
    known = [row for row in rows if row["p50"] is not None]
    title = "<h2>By time of day</h2>"
    if not known:
        jobs = sum(row["jobs"] for row in rows)
        return f"{title}<p>Not known yet: {jobs} jobs were seen to queue and to start, which is too few.</p>"
    body = "".join(
        f'<tr><th scope="row">{row["hour"]:02d}:00</th><td>{row["jobs"]}</td>'
        f"<td>{escape(wait_text(row['p50'], row['p95']))}</td></tr>"
        for row in known
    )
    return (
        f"{title}<table><caption>Jobs of all partitions and sizes, by the hour in which they were submitted</caption>"
        '<thead><tr><th scope="col">Hour</th><th scope="col">Jobs seen</th><th scope="col">Wait</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def reliable_text(found: Mapping[str, Any]) -> str:
    """How often what was said has held."""
    share: float | None = found["coverage_95"]
    if share is None:
        return "How often such predictions hold is not known yet."
    jobs, percent = found["bounded"], 100 * share
    return f"Of {jobs} jobs so far {percent:.0f} % started within what was said as “up to”, as 95 % should."


def document(body: str) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Expected waits</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main><h1>Expected waits</h1>\n{body}\n</main></body></html>\n"
    )

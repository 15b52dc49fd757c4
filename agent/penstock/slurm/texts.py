"""What users wrote about their jobs, from `squeue --json`: the one form in which no text can pass for something else.

Slurm changes its JSON with every release (data versions 0.0.38 of 22.05 to 0.0.45 of 26.05), but what is read here is
written alike by all of them, by the `+complex` forms as well: an integer and four strings. So there is one reader, and
each version's fixture is held against it. Anything else than that is not believed.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from penstock.api import JobTexts
from penstock.slurm.parse import ParseError

__all__ = ["texts_from_json"]

_FIELDS = {"name": "name", "comment": "comment", "workdir": "current_working_directory", "command": "command"}


def texts_from_json(text: str, ids: Collection[int]) -> dict[int, JobTexts]:
    """The texts of the given jobs. Lines before and after the document, as wrappers print them, are skipped."""
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
        jobs = document["jobs"]
        found = {}
        for job in jobs:
            number = job["job_id"]
            if number not in ids:
                continue
            values = {ours: job.get(theirs) or "" for ours, theirs in _FIELDS.items()}
            if type(number) is not int or not all(isinstance(value, str) for value in values.values()):
                raise ParseError("a job whose texts are no texts", str(values))
            found[number] = JobTexts(number, **values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ParseError):
            raise
        raise ParseError(
            f"not the JSON of a queue ({type(error).__name__}: {error})", text[start : start + 80]
        ) from error
    return found

"""Runs one Python function for `functions`: `python -m penstock_pool.call FILE`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import cloudpickle

from penstock.host.files import replace

__all__: list[str] = []


def main() -> None:
    """Leave (whether it returned, what it returned or raised, where it was raised) in FILE.result; end with 1 if it
    raised."""
    file = Path(sys.argv[1])
    try:
        function, arguments, named = cloudpickle.loads(file.read_bytes())
        told, code = cloudpickle.dumps((True, function(*arguments, **named), "")), 0
    except BaseException as e:  # what ends a program, too: it is the call's end, and told as Python's executors tell it
        traceback.print_exc()
        where = traceback.format_exc()
        try:
            told, code = cloudpickle.dumps((False, e, where)), 1
        except Exception:
            told, code = cloudpickle.dumps((False, RuntimeError(f"{type(e).__name__}: {e}"), where)), 1
    # Two attempts may run at once where a member only seemed to be lost: whole files only.
    replace(file.with_suffix(".result"), told, mode=None, durable=False)
    sys.exit(code)


if __name__ == "__main__":
    main()

"""CPython's own tests of executors, where they apply, pass with a pool's (`cpython_cases.py` says which do not)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from test_pool_live import Live

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def where(place: Path) -> str:
    """The folder in which Python's package `test` has them; "" where this Python has them itself. Debian keeps them in
    a package of their own, which is unpacked here and not installed."""
    if find_spec("test.test_concurrent_futures"):
        return ""
    version = "{}.{}".format(*sys.version_info)
    package = f"libpython{version}-testsuite"
    if shutil.which("apt-get") is None:
        return missing(f"this Python has none of CPython's tests, and there is no apt-get for {package}")
    for update in (False, True):  # a machine may know no packages yet
        if update:
            subprocess.run(["apt-get", "-qq", "update"], check=False, timeout=300)
        words = ["apt-get", "-qq", "download", package]
        got = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=300, check=False)
        if got.returncode == 0:
            (archive,) = place.glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, place / "tests"], check=True)
            return str(place / "tests/usr/lib" / f"python{version}")
    return missing(f"{package} cannot be had: {got.stderr.strip()[-300:]}")


def missing(why: str) -> str:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def test_cpythons_own_tests_of_executors(tmp_path: Path):
    place = tmp_path / "cpython"
    place.mkdir()
    folder = where(place)
    live = Live(tmp_path)
    try:
        live.start()
        live.join(4)
        program = [sys.executable, str(Path(__file__).with_name("cpython_cases.py")), folder]
        done = subprocess.run(
            program, cwd=live.work, env=live.environment, capture_output=True, text=True, timeout=1700, check=False
        )
    finally:
        live.down()
    assert done.returncode == 0, done.stderr[-5000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert not said["wrong"], "\n".join(said["wrong"].values())
    assert said["passed"] >= 30

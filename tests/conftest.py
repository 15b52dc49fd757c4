"""For the tests in all folders: which real Slurms this machine has, and how a session is ended."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from penstock.errors import PenstockError, UserError
from penstock_lab.cluster.programs import check_programs
from penstock_lab.cluster.rootfs import prepare


def pytest_configure() -> None:
    # How long an example takes says more about the machine than about the code.
    settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("penstock")
    # Told to end, the tests first take down what they started. A shell that starts them in the background may have set
    # SIGINT to be ignored, which every process that a test interrupts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Without buffers, `print` writes each of its words by itself: the lines of the ranks of one program would mix.
    os.environ.pop("PYTHONUNBUFFERED", None)
    # Clusters of other tests make interfaces and take them away; see `Cluster.env`.
    os.environ["UCX_NET_DEVICES"] = "lo"


_UNSTABLE = "'sid'"


@cache
def missing(release: str | None) -> str | None:
    """Why there is no Slurm of this Debian release (None: of the machine itself) to run here."""
    try:
        if release is None:
            check_programs()
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            raise UserError("only root can act as several users of a real Slurm")
        if release is not None:
            # scripts/test.sh tried to build it a moment ago.
            if release in os.environ.get("PENSTOCK_TEST_UNBUILT", "").split():
                raise UserError("its file system could not be built")
            prepare(release)
    except PenstockError as error:
        return f"NO SLURM OF {release or 'this machine'}: {error}"
    return None


def need(release: str | None) -> None:
    """Skip the test where that Slurm is missing; fail it in CI."""
    if (reason := missing(release)) is None:
        return
    # Debian's unstable release is broken now and then, which is no fault of ours.
    if os.environ.get("CI") == "true" and release != "sid":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def need_slurm() -> Callable[[str | None], None]:
    """`need_slurm("trixie")` for a fixture that brings up the Slurm of that Debian release."""
    return need


@pytest.hookimpl(tryfirst=True)  # before markers are asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One other release is enough for every run, and of many like cases a few; the rest comes with
    `scripts/test.sh --all`."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        params = getattr(item, "callspec", None)
        if item.get_closest_marker("release") and params is not None and _UNSTABLE in str(params.params.values()):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("release") and item.get_closest_marker("long_elsewhere"):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in cases.values():
        few = min(next(alike[0].iter_markers("few")).args[0], len(alike))
        drawn = {i * len(alike) // few for i in range(few)}
        for place, item in enumerate(alike):
            if place not in drawn:
                item.add_marker(pytest.mark.long)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slurm") and not item.get_closest_marker("release"):
        need(None)

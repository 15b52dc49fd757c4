"""CPython's own tests of executors, for a pool's: run as a program by `test_pool_cpython.py`, in a process of its own.

    python cpython_cases.py FOLDER    FOLDER: what is below lib/python3.X of a package of CPython's tests, "" for none

Its last line is a JSON object: how many cases passed, and what was said of those that did not.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import unittest
from types import ModuleType
from typing import Any, Final

import cloudpickle

from penstock.errors import PenstockError
from penstock_pool.futures import PoolExecutor

CLASSES: Final = (
    "ProcessPoolExecutorTest",  # with all of ExecutorTest
    "ExecutorShutdownTest",
    "WaitTests",
    "AsCompletedTests",
    "ExecutorDeadlockTest",
)

_WORKERS: Final = "about the number of workers, which is the pool's: what its members have room for"
_OWN_PROGRAM: Final = "a program that names an executor of concurrent.futures; in own words in test_pool_futures.py"
_SAYS_MORE: Final = "the error itself is raised, where Python says that its pool broke"
LEFT_OUT: Final = {
    "test_max_workers_negative": _WORKERS,
    "test_max_workers_too_large": _WORKERS,
    "test_saturation": _WORKERS,
    "test_idle_process_reuse_one": _WORKERS,
    "test_idle_process_reuse_multiple": _WORKERS,
    "test_max_tasks_per_child": "each call has a process of its own",
    "test_max_tasks_per_child_defaults_to_spawn_context": "each call has a process of its own",
    "test_max_tasks_early_shutdown": "each call has a process of its own",
    "test_ressources_gced_in_workers": "each call has a process of its own, and another parent than multiprocessing's",
    "test_process_fork_from_a_newly_created_thread": "about multiprocessing",
    "test_python_finalization_error": "about threads that Python's executor starts while Python ends",
    "test_killed_child": "reaches into Python's; a process that dies breaks its own call alone (test_pool_futures.py)",
    "test_interpreter_shutdown": _OWN_PROGRAM,
    "test_submit_after_interpreter_shutdown": _OWN_PROGRAM,
    "test_hang_gh83386": _OWN_PROGRAM,
    "test_cancel_futures": "wants calls that run to go on; here they are ended, as the page says",
    "test_traceback": "wants source of what was sent by value; in own words in test_pool_futures.py",
    "test_error_at_task_pickle": "said by `submit`, and not by the future",
    "test_shutdown_deadlock_pickle": "said by `submit`, and not by the future",
    "test_error_at_task_unpickle": _SAYS_MORE,
    "test_error_during_result_unpickle_in_result_handler": _SAYS_MORE,
    "test_exit_during_result_unpickle_in_result_handler": _SAYS_MORE,
    "test_exit_at_task_unpickle": _SAYS_MORE,
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "about multiprocessing",
    "test_force_shutdown_workers": "about Python's processes",
    "test_force_shutdown_workers_invalid_op": "about Python's processes",
    "test_terminate_workers": "about Python's processes",
    "test_kill_workers": "about Python's processes",
}
"""Cases that do not apply, and why; not each release of CPython has each of them."""


def modules(folder: str) -> list[ModuleType]:
    """CPython's modules with these tests: one, or a package of them since 3.12."""
    if folder:
        import test

        test.__path__.append(f"{folder}/test")
    first = importlib.import_module("test.test_concurrent_futures")
    below = [one.name for one in pkgutil.iter_modules(getattr(first, "__path__", ()))]
    return [first, *(importlib.import_module(f"{first.__name__}.{one}") for one in below)]


class Pooled(PoolExecutor):
    """Made as Python's are."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(task={"cores": 0.5})


def cases(them: list[ModuleType]) -> unittest.TestSuite:
    """All of them, those that do not apply among the skipped."""
    known = {name: value for one in them for name, value in vars(one).items()}
    for one in them:
        cloudpickle.register_pickle_by_value(one)  # a member does not have it
        if hasattr(one, "BrokenProcessPool"):
            one.BrokenProcessPool = PenstockError  # what is raised for a call whose process died
    suite = unittest.TestSuite()
    for name in CLASSES:
        more = {"executor_type": Pooled, "get_context": lambda self: None}
        for case in unittest.defaultTestLoader.getTestCaseNames(known[name]):
            if why := LEFT_OUT.get(case):
                more[case] = unittest.skip(why)(getattr(known[name], case))
        bases = (known[name], known["ExecutorMixin"], known["BaseTestCase"])
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(type(f"Pooled{name}", bases, more)))
    return suite


def main() -> None:
    """Run them."""
    done = unittest.TextTestRunner(verbosity=2).run(cases(modules(sys.argv[1])))
    wrong = {str(case): said for case, said in [*done.failures, *done.errors]}
    print()  # cases say their times without an end of the line
    print(json.dumps({"passed": done.testsRun - len(wrong) - len(done.skipped), "wrong": wrong}))


if __name__ == "__main__":
    main()

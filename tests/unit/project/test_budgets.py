"""How large things may be (`tool.penstock.budgets` in pyproject.toml): rooms, modules, functions.

What was larger when this began is listed there with its size. The list may only get shorter, and its sizes smaller.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from places import PROJECT

# The folders in them are the rooms; what stands in none of those is a room of its own.
HOUSES = (
    "agent/penstock",
    "dmr/dmr",
    "lab/penstock_lab",
    "plugins/planning/penstock_planning",
    "plugins/pool/penstock_pool",
    "plugins",
)
ROOM, MODULE, LINES, PARAMETERS = 11_000, 450, 80, 8
TOLERANCE = 1.05
Size = tuple[int, int]  # lines and parameters

DIVIDE = "divide it by what it does (docs/architecture.md says where things belong)"
STEPS = "split it by its steps, or make one value of parameters that always go together"
SHRUNK = "take it off the list in pyproject.toml"


def budgets() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["penstock"]["budgets"]
    return found


def sources() -> dict[str, str]:
    files = [path for house in HOUSES for path in sorted((PROJECT / house).rglob("*.py"))]
    return {str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8") for path in files}


def room_of(file: str) -> str:
    house = next(one for one in HOUSES if file.startswith(f"{one}/"))
    inside = Path(file).relative_to(house).parts
    return f"{house}/{inside[0]}" if len(inside) > 1 else house


def rooms(modules: Mapping[str, int]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for file, lines in modules.items():
        sizes[room_of(file)] += lines
    return sizes


def functions(source: str) -> Iterator[tuple[str, Size]]:
    """Each function with its lines, from `def` on, and its parameters without `self` and `cls`."""

    def within(node: ast.AST, name: str) -> Iterator[tuple[str, Size]]:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                whole = f"{name}.{inner.name}".lstrip(".")
                if not any(ast.unparse(one).endswith("overload") for one in inner.decorator_list):
                    yield whole, (length(inner), len(parameters(inner)))
                yield from within(inner, whole)
            elif isinstance(inner, ast.ClassDef):
                yield from within(inner, f"{name}.{inner.name}".lstrip("."))
            else:
                yield from within(inner, name)

    return within(ast.parse(source), "")


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    has = function.args
    every = [*has.posonlyargs, *has.args, has.vararg, *has.kwonlyargs, has.kwarg]
    return [one.arg for one in every if one is not None and one.arg not in ("self", "cls")]


def large_functions(files: Mapping[str, str]) -> dict[str, Size]:
    """Those above one of the bounds, by `file:name`; of several with one name the largest numbers."""
    found: dict[str, Size] = {}
    for file, source in files.items():
        for name, (lines, count) in functions(source):
            if lines > LINES or count > PARAMETERS:
                old = found.get(f"{file}:{name}", (0, 0))
                found[f"{file}:{name}"] = max(lines, old[0]), max(count, old[1])
    return found


def room_faults(sizes: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    faults = []
    for name, lines in sizes.items():
        if name not in allowed:
            faults.append(f"{name} has {lines} lines and no budget: give it one in pyproject.toml, or put it elsewhere")
        elif lines > allowed[name] * TOLERANCE:
            faults.append(
                f"{name} has {lines} lines and a budget of {allowed[name]} (+5 %): make room in it first. Where a new "
                "feature needs more, raise the budget in pyproject.toml, and say in the commit by how much and for what"
            )
    return faults + [f"{name} has a budget, and is not there: {SHRUNK}" for name in allowed if name not in sizes]


def bound_faults(sizes: Mapping[str, int], bound: int, listed: Mapping[str, int], cure: str) -> list[str]:
    """What is above the bound and not listed, has grown since it was, or is listed without need."""
    faults = []
    for name, size in sizes.items():
        if size > listed.get(name, bound):
            most = listed.get(name, bound)
            faults.append(f"{name} has {size} lines, and may have {most}: {cure}. It is not to be listed anew")
    return faults + [
        f"{name} has no more than {bound} lines, or is gone: {SHRUNK}" for name in listed if sizes.get(name, 0) <= bound
    ]


def function_faults(sizes: Mapping[str, Size], listed: Mapping[str, list[int]]) -> list[str]:
    """For a listed function both numbers are, where they are above the bounds, those that it may have."""
    faults = []
    for name, (lines, count) in sizes.items():
        most = listed.get(name, [LINES, PARAMETERS])
        if lines > max(most[0], LINES) or count > max(most[1], PARAMETERS):
            faults.append(
                f"{name} has {lines} lines and {count} parameters, and may have {max(most[0], LINES)} and "
                f"{max(most[1], PARAMETERS)}: {STEPS}. It is not to be listed anew"
            )
    return faults + [
        f"{name} has no more than {LINES} lines and {PARAMETERS} parameters, or is gone: {SHRUNK}"
        for name in listed
        if name not in sizes
    ]


def show(faults: list[str]) -> None:
    assert not faults, "\n".join(["", *faults])


def lengths() -> dict[str, int]:
    return {file: text.count("\n") for file, text in sources().items()}


def test_rooms_keep_to_their_budgets():
    show(room_faults(rooms(lengths()), budgets()["rooms"]))


def test_no_room_is_too_large():
    show(bound_faults(rooms(lengths()), ROOM, {}, "make two of it"))


def test_the_core_keeps_to_its_budget():
    core = sum(lines for name, lines in rooms(lengths()).items() if name.startswith("agent/penstock"))
    show(room_faults({"core": core}, {"core": budgets()["core"]}))


def test_no_module_is_too_long():
    show(bound_faults(lengths(), MODULE, budgets()["modules"], DIVIDE))


def test_no_function_is_too_long_or_has_too_many_parameters():
    show(function_faults(large_functions(sources()), budgets()["functions"]))


def test_what_is_too_large_is_seen():
    assert rooms({"agent/penstock/cli/a.py": 3, "agent/penstock/cli/x/b.py": 4, "agent/penstock/app.py": 5}) == {
        "agent/penstock/cli": 7,
        "agent/penstock": 5,
    }
    told = room_faults({"kept": 105, "grown": 106, "new": 1}, {"kept": 100, "grown": 100, "gone": 1})
    assert [one.split()[0] for one in told] == ["grown", "new", "gone"]
    told = bound_faults({"a": 10, "b": 11, "c": 12, "d": 14, "e": 9}, 10, {"c": 12, "d": 13, "e": 12}, "")
    assert [one.split()[0] for one in told] == ["b", "d", "e"]


def test_a_function_is_measured_with_what_is_in_it():
    source = """\
class A:
    @overload
    def f(self): ...
    def f(self, a, /, *b, c=1, **d):
        def g(e):
            pass
"""
    assert list(functions(source)) == [("A.f", (3, 4)), ("A.f.g", (2, 1))]
    many = ", ".join(f"p{i}" for i in range(9))
    sizes = large_functions({"m.py": f"def f({many}): ...\ndef g(a):\n" + "    a()\n" * 80 + "def h(): ...\n"})
    assert sizes == {"m.py:f": (1, 9), "m.py:g": (81, 1)}
    assert function_faults(sizes, {"m.py:f": [1, 9], "m.py:g": [81, 1]}) == []
    told = function_faults(sizes, {"m.py:g": [80, 12], "m.py:h": [90, 1]})
    assert [one.split()[0] for one in told] == ["m.py:f", "m.py:g", "m.py:h"]

"""Nothing changes Slurm but the executor: who may even hold what can change it."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock
import penstock_dashboard
import penstock_fronts
import penstock_messages
import penstock_planning
import penstock_pool
import penstock_site_view

ROOT = Path(penstock.__file__).parent
_PACKAGES = (
    penstock_dashboard,
    penstock_fronts,
    penstock_messages,
    penstock_planning,
    penstock_pool,
    penstock_site_view,
)
_BESIDE = [Path(package.__file__).parent for package in _PACKAGES]
# The simulated and the real Slurm themselves, and the laboratory, which plays the users of clusters of its own.
_OUTSIDE = ("slurm",)
# What puts the program together makes the back end; the executor is given its changing half.
_MAKERS = {
    "app",
    "admin.commands.off_alone",
    "admin.doctor.slurm_reader",
    "admin.one_pass",
    "console.acting",
    "console.backends",
    "console.stand_in",
    "penstock_planning.commands.market",
}
_HOLDERS = {"app", "console.acting", "core.executor"}
# All that can be done to Slurm is written here, and only the executor carries it out.
_WRITERS = {"core.acts"}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name.split(".")[0] not in _OUTSIDE:
            yield name, ast.parse(path.read_text(encoding="utf-8"))
    for root in _BESIDE:
        for path in sorted(root.rglob("*.py")):
            name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree, what):
    return any(
        alias.name == what for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    )


def test_only_what_puts_the_program_together_holds_a_back_end():
    assert {name for name, tree in modules() if imported(tree, "Backend")} <= _HOLDERS | {"core.backends"}
    assert {name for name, tree in modules() if imported(tree, "make_backend")} <= _MAKERS
    assert {name for name, tree in modules() if imported(tree, "Changer")} == _WRITERS


def test_nobody_but_the_executor_and_its_makers_keep_what_changes_slurm():
    kept = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                annotations = " ".join(ast.unparse(each.annotation) for each in node.args.args if each.annotation)
                kept |= {name} if "Changer" in annotations or "Backend" in annotations else set()
    assert kept == _HOLDERS

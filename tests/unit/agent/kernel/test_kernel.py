"""The compiled kernel is built where there is a compiler, loaded where it fits, and its absence is told."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from penstock.kernel import compiling, library


def test_without_a_compiler_the_reference_serves_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no C compiler" in compiling.compile_into(tmp_path)
    monkeypatch.setenv("CC", "false")
    assert "ended with 1" in compiling.compile_into(tmp_path)
    assert not list(tmp_path.iterdir())
    assert library._load(tmp_path / compiling.BUILT) == (
        None,
        "Penstock was installed without it: there was no C compiler",
    )
    (tmp_path / compiling.BUILT).write_bytes(b"not a library")
    kernel, why = library._load(tmp_path / compiling.BUILT)
    assert kernel is None and "cannot be loaded" in why
    monkeypatch.setattr(library, "_ABI", 0)
    kernel, why = library._load(compiling._HERE / compiling.BUILT)
    assert kernel is None and "is of another release" in why


def test_the_environment_chooses_the_reference():
    asked = "from penstock.kernel import library; print(library.KERNEL, library.WHY_NOT)"
    done = subprocess.run(
        [sys.executable, "-c", asked], env={"PENSTOCK_KERNEL": "python"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None PENSTOCK_KERNEL=python is in the environment\n"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_sources_compile_without_a_warning(tmp_path):
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
    assert compiling.compile_into(tmp_path, *strict) is None

"""libdmr as it is installed: a program finds it by pkg-config and by CMake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmr_c_build import SOURCES, built
from outside import need_program
from penstock import __version__

MPICC = Path(sys.executable).parent / "mpicc"
PROGRAM = """
#include <dmr.h>
#include <stdio.h>
int main(void)
{
    int64_t start, stop;
    dmr_block_bounds(10, 3, 1, &start, &stop);
    printf("%s %d %d\\n", DMR_VERSION, (int)start, (int)stop);
    return 0;
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.18)
project(probe C)
find_package(dmr {version} REQUIRED)
add_executable(probe probe.c)
target_link_libraries(probe dmr::dmr)
"""


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **more})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("libdmr")
    out = built("all", "")
    done = run(
        "make", "-C", str(SOURCES), "install", f"OUT={out}", f"MPICC={MPICC}", f"PREFIX={place}", "CFLAGS=-O1 -g"
    )
    assert done.returncode == 0, done.stderr
    (place / "probe.c").write_text(PROGRAM)
    return place


def said(program: Path) -> list[str]:
    done = run(str(program), LD_LIBRARY_PATH=str(program.parent / "lib"))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_program_finds_it_by_pkg_config(installed: Path) -> None:
    need_program("pkg-config", "pkg-config")
    found = run("pkg-config", "--cflags", "--libs", "dmr", PKG_CONFIG_PATH=str(installed / "lib/pkgconfig"))
    assert found.returncode == 0, found.stderr
    done = run(str(MPICC), "-o", str(installed / "probe"), str(installed / "probe.c"), *found.stdout.split())
    assert done.returncode == 0, done.stderr
    assert said(installed / "probe") == [__version__.partition(".dev")[0], "4", "7"]


def test_a_program_finds_it_by_cmake(installed: Path) -> None:
    need_program("cmake", "cmake")
    (installed / "CMakeLists.txt").write_text(LISTS.format(version="0.2"))
    words = ["-S", str(installed), "-B", str(installed / "b"), f"-DMPI_C_COMPILER={MPICC}"]
    done = run("cmake", *words, f"-DCMAKE_PREFIX_PATH={installed}")
    assert done.returncode == 0, done.stderr
    done = run("cmake", "--build", str(installed / "b"))
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(installed / "b/probe", installed / "probe-cmake")
    assert said(installed / "probe-cmake") == [__version__.partition(".dev")[0], "4", "7"]
    (installed / "CMakeLists.txt").write_text(LISTS.format(version="0.3"))
    done = run("cmake", *words, f"-DCMAKE_PREFIX_PATH={installed}")
    assert done.returncode != 0 and "dmrConfig.cmake, version: 0.2.0" in done.stderr


def test_it_is_packed_below_another_root(tmp_path: Path) -> None:
    out = built("all", "")
    words = [f"OUT={out}", f"MPICC={MPICC}", "PREFIX=/usr", f"DESTDIR={tmp_path}", "CFLAGS=-O1 -g"]
    done = run("make", "-C", str(SOURCES), "install", *words)
    assert done.returncode == 0, done.stderr
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    cmake = {f"usr/lib/cmake/dmr/{name}" for name in ("dmrConfig.cmake", "dmrConfigVersion.cmake")}
    assert found == {
        "usr/include/dmr.h",
        "usr/include/dmr.f90",
        "usr/lib/libdmr.so",
        "usr/lib/pkgconfig/dmr.pc",
        *cmake,
    }

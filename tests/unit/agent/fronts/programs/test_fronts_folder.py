"""The folder of front programs on PATH: what it prints, what runs behind it, and that nothing calls itself for ever."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.errors import PenstockError
from penstock.fronts.commands.shim import shim
from penstock.fronts.programs import folder as folders
from penstock.fronts.programs.folder import MODULES, OLDEST, front_folder, interpreter
from penstock.fronts.programs.path import GUARD, MARKER, PROGRAMS, Refused, beheaded, find, guarded

SAYS = '#!/bin/sh\necho "$0" "$@"; echo "$PATH"; exit 3\n'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder, and programs that say how they are called behind what is on PATH."""
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_SHIM_PATIENCE", "0")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    real = tmp_path / "real"
    real.mkdir()
    for program in PROGRAMS:
        script(real / program, SAYS)
    monkeypatch.setenv("PATH", f"{real}:/usr/bin:/bin")
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def made(*words: str) -> str:
    done = CliRunner().invoke(shim, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.rstrip("\n")


def sh(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **more}
    )


def test_the_real_program_runs_and_path_is_as_it_was(own):
    done = sh(f"{made()}\nsbatch -x 'a b' ''; echo $?")
    assert done.stdout == f"{own}/real/sbatch -x a b \n{own}/real:/usr/bin:/bin\n3\n"
    assert done.stderr == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_of_them(own, program):
    assert sh(f"{made()}\n{program} y").stdout.startswith(f"{own}/real/{program} y\n")


def test_twice_is_once_and_off_undoes_it(own):
    code, before = made(), os.environ["PATH"]
    assert sh(f'{code}\n{code}\necho "$PATH"').stdout == f"{made('--path')}:{before}\n"
    assert sh(f'{code}\n{code}\nunset PATH\n{code}\necho "$PATH"').stdout == f"{made('--path')}\n"


def test_off_takes_all_of_them_out(own, monkeypatch):
    folder, before = made("--path"), os.environ["PATH"]
    older = own / "older"
    shutil.copytree(folder, older)
    monkeypatch.setenv("PATH", f"{folder}:{before}:{older}")
    assert sh(f'{made("--off")}\necho "$PATH"').stdout == f"{before}\n"


def test_nested_ones_are_all_passed_by(own):
    folder, older = Path(made("--path")), own / "older"
    shutil.copytree(folder, older)
    done = sh("sbatch", PATH=f"{older}:{folder}:{older}:{own}/real:/bin")
    assert done.stdout == f"{own}/real/sbatch\n{own}/real:/bin\n"


def test_without_a_real_one_it_says_so(own):
    done = sh("/usr/bin/env sbatch", PATH=f"{made('--path')}:/bin:/nowhere")
    if not Path("/bin/sbatch").exists():
        assert (done.returncode, done.stdout) == (127, "")
        assert done.stderr.startswith("penstock: there is no sbatch behind the front program in ")


def test_the_environment_is_handed_on_as_it_was(own):
    script(
        own / "real" / "squeue",
        "#!/usr/bin/python3 -IS\nimport sys\nsys.stdout.buffer.write(open('/proc/self/environ', 'rb').read())\n",
    )
    folder = made("--path")
    given = {"PATH": f"{folder}:{own}/real", "BASH_FUNC_module%%": "() { :; }", "A": "\udcff", "_": f"{folder}/squeue"}
    done = subprocess.run([f"{folder}/squeue"], env=given, capture_output=True, check=True, timeout=60)
    found = {word.partition(b"=")[0]: word.partition(b"=")[2] for word in done.stdout.strip().split(b"\0") if word}
    guard = found.pop(GUARD.encode())
    assert guard.endswith(f":{own}/real/squeue".encode())
    assert found.pop(b"_") == f"{own}/real/squeue".encode()
    assert found == {b"PATH": f"{own}/real".encode(), b"BASH_FUNC_module%%": b"() { :; }", b"A": b"\xff"}


def test_one_of_somebody_else_is_refused(own, monkeypatch):
    folder = made("--path")
    other = script(own / "theirs" / MARKER, "").parent
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 7)
    if os.getuid() == 0:
        os.chown(other, 12345, 12345)
        monkeypatch.undo()
        done = sh("sbatch", PATH=f"{folder}:{other}:{own}/real")
        assert (done.returncode, done.stdout) == (4, "")
        assert "of another user (id 12345)" in done.stderr
        return
    with pytest.raises(Refused, match="of another user"):
        beheaded(f"/bin:{other}")


def test_one_that_others_can_write_to_is_refused(own):
    folder = Path(made("--path"))
    folder.chmod(0o775)
    done = sh("sbatch", PATH=f"{folder}:{own}/real")
    assert (done.returncode, done.stdout) == (4, "")
    assert "others can write to it" in done.stderr
    assert made("--path") == str(folder), "it is made anew"
    assert sh("sbatch", PATH=f"{folder}:{own}/real").returncode == 3


def test_a_damaged_one_is_written_anew(own):
    folder = Path(made("--path"))
    (folder / "squeue").unlink()
    assert made("--path") == str(folder)
    assert sh("squeue", PATH=f"{folder}:{own}/real").returncode == 3
    assert {path.name for path in folder.parent.iterdir()} == {folder.name}


def test_its_name_changes_with_what_is_in_it(own, monkeypatch):
    first = made("--path")
    monkeypatch.setattr(folders, "_PROGRAM", folders._PROGRAM + "# newer\n")
    second = made("--path")
    assert first != second and Path(first).exists(), "shells that use the old one go on"


def test_what_they_load_is_what_is_copied(own):
    folder = made("--path")
    loads = (
        "import sys; sys.path.insert(0, sys.argv[1]); import penstock.fronts.programs.front\n"
        "print(*sorted(sys.modules))"
    )
    words = [interpreter(), "-IS", "-c", loads, f"{folder}/.lib"]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    ours = {name for name in loaded if name.partition(".")[0] == "penstock"}
    assert ours <= {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in (f"penstock/{module}" for module in MODULES)
    }
    assert not {"subprocess", "dataclasses", "typing", "pathlib", "click"} & set(loaded), "slow to load"


def test_an_older_python_can_read_them():
    for module in MODULES:
        ast.parse((Path(folders.__file__).parents[2] / module).read_text(), feature_version=OLDEST)


# -- programs that call us -------------------------------------------------------------------------------------------


def test_a_naive_front_program_does_not_call_itself_for_ever(own):
    penstock = f"{sys.executable} -m penstock"
    naive = script(own / "naive" / "sbatch", f'#!/bin/sh\nexec {penstock} sbatch "$@"\n')
    done = sh("sbatch --version", PATH=f"{naive.parent}:{own}/real:/usr/bin:/bin")
    assert done.stdout.startswith(f"{own}/real/sbatch --version\n"), done.stderr


def test_a_naive_one_behind_ours(own):
    naive = script(own / "naive" / "sbatch", f'#!/bin/sh\nexec {made("--path")}/sbatch "$@"\n')
    done = sh("sbatch --version", PATH=f"{naive.parent}:{own}/real:/usr/bin:/bin")
    assert done.stdout.startswith(f"{own}/real/sbatch --version\n"), done.stderr


def test_with_nothing_behind_it_that_is_an_error(own):
    naive = script(own / "naive" / "sbatch", f'#!/bin/sh\nexec {sys.executable} -m penstock sbatch "$@"\n')
    done = sh("sbatch --version", PATH=f"{naive.parent}:/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "sbatch is not on PATH" in done.stderr


def test_what_has_called_us_is_known_by_its_process(tmp_path):
    one, two = script(tmp_path / "a" / "sbatch", SAYS), script(tmp_path / "b" / "sbatch", SAYS)
    path = {"PATH": f"{one.parent}:{two.parent}"}
    assert find("sbatch", path) == str(one)
    told = {**path, **guarded(str(one), path)}
    assert find("sbatch", told) == str(two)
    assert find("sbatch", {**told, **guarded(str(two), told)}) is None
    of_another = told[GUARD].split(".")[0] + ".1:" + str(one)
    assert find("sbatch", {**path, GUARD: of_another}) == str(one), "as in a job"
    for nonsense in ("", ":", "1", "x.y:z", "99999999.1:" + str(one)):
        assert find("sbatch", {**path, GUARD: nonsense}) == str(one)


def test_slurms_own_programs_are_given_no_guard(tmp_path):
    assert GUARD not in guarded("/bin/sh", {GUARD: "1.1:/x"})


def test_penstock_itself_runs_slurms_own(own):
    line = "import os; from penstock.cli import main; main(); print(os.environ['PATH'])"
    env = {**os.environ, "PATH": f"{made('--path')}:{os.environ['PATH']}"}
    words = [sys.executable, "-c", line, "config", "check"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == os.environ["PATH"]


# -- other shells ----------------------------------------------------------------------------------------------------


def test_for_csh_and_fish(own):
    folder, path = made("--path"), os.environ["PATH"]
    assert made("--shell", "csh") == f"setenv PATH '{folder}:{path}'; rehash;"
    assert made("--shell", "fish") == f"set -gx PATH '{folder}' '{own}/real' '/usr/bin' '/bin';"
    os.environ["PATH"] = f"{folder}:{path}"
    assert made("--shell", "csh") == made("--shell", "fish") == ""
    assert made("--shell", "csh", "--off") == f"setenv PATH '{path}'; rehash;"


def test_off_and_path_together_are_refused(own):
    with pytest.raises(PenstockError, match="give one of them"):
        CliRunner().invoke(shim, ["--off", "--path"], catch_exceptions=False, standalone_mode=False)


def test_settings_are_those_of_the_configuration(own):
    told = json.loads((Path(made("--path")) / "settings.json").read_text())
    assert told["socket"] == f"{own}/state/agent.sock"
    assert told["python"] == sys.executable


def test_a_folder_made_twice_at_once_is_one(tmp_path):
    folders_made = {front_folder(tmp_path, {}, "/usr/bin/python3") for _ in range(3)}
    assert len(folders_made) == 1

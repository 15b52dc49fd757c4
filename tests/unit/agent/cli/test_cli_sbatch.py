"""penstock sbatch with a program in sbatch's place: what it is given, what is said, what is remembered and left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.sbatch.remembered import Remembered, SubmittedJobs, cluster_name
from penstock.state.store import Store

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()", "sbatch"]
# It writes down its words and its script, and names a job, the next at each call.
SBATCH = """
n=$(($(cat "$HERE/n" 2>/dev/null || echo 100) + 1)); echo $n >"$HERE/n"
printf '%s\\n' "$@" >"$HERE/words"
for w; do [ -z "$script" ] && [ -e "$w" ] && script=$w; done
cat "${script:-/dev/stdin}" >"$HERE/script"
case " $* " in
  *" --help "*) echo "Usage: sbatch"; exit 0 ;;
  *" --parsable "*) echo $n ;;
  *" -Q "*) ;;
  *) echo "Submitted batch job $n" ;;
esac
"""
# It knows job 101, and no other.
SQUEUE = 'case " $* " in *" -j 101 "*|*" --name md "*) echo 101 ;; *) exit 1 ;; esac'


@dataclass
class Desk:
    folder: Path

    def put(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/bash\nHERE={self.folder}\n{text}\n")
        file.chmod(0o755)

    def run(self, *words: str, shell: str = 'exec "$@"', **environment: str) -> subprocess.CompletedProcess[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK", "SBATCH", "SLURM"))}
        env |= {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PENSTOCK_AGENT__STATE_DIR": str(self.folder / "state"),
        }
        return subprocess.run(
            ["bash", "-c", shell, "-", *COMMAND, *words],
            cwd=self.folder,
            env=env | environment,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def said(self, *words: str, **more: str) -> str:
        done = self.run(*words, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    @property
    def words(self) -> list[str]:
        """All but the key by which the job would be looked for."""
        words = (self.folder / "words").read_text().splitlines()
        return [word for word in words if not word.startswith("--comment=penstock:")]

    @property
    def script(self) -> bytes:
        return (self.folder / "script").read_bytes()

    @property
    def left(self) -> list[list[dict]]:
        """The jobs of each request that waits for a tick."""
        path = self.folder / "state" / "penstock.db"
        if not path.exists():
            return []
        store = Store.read_only(path)
        try:
            return [payload["links"] for _n, _at, _uid, op, payload in store.inbox.waiting() if op == "follow"]
        finally:
            store.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "bin").mkdir()
    (tmp_path / "slurm.conf").write_text("#\nClusterName = east # here\n")
    it = Desk(tmp_path)
    it.put("sbatch", SBATCH)
    it.put("squeue", SQUEUE)
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH -J align\ntrue\n")
    (tmp_path / "b.sh").write_text("#!/bin/sh\n#SBATCH -d afterok:101\ntrue\n")
    return it


def test_what_depends_on_a_job_of_ours_is_left_for_the_agent_with_that_job(desk):
    assert desk.said("a.sh", "x") == "Submitted batch job 101\n"
    assert (desk.words, desk.left) == (["a.sh", "x"], [])
    done = desk.run("--parsable", "-d", "afterok:101,afterany:7", "b.sh")
    assert (done.returncode, done.stdout, desk.words) == (
        0,
        b"102\n",
        ["--parsable", "-d", "afterok:101,afterany:7", "b.sh"],
    )
    assert done.stderr.count(b"\n") == 1 and b"penstock tick" in done.stderr
    again = desk.run("b.sh")
    assert (again.returncode, again.stdout, again.stderr) == (0, b"Submitted batch job 103\n", b"")
    first, second = desk.left
    assert [(k["called"], k["job"], k["dependency"]) for k in first] == [
        ("align", 101, ""),
        ("b", 102, "afterok:101,afterany:7"),
    ]
    assert [(k["job"], k["dependency"]) for k in second] == [(101, ""), (103, "afterok:101")]
    assert first[0]["order"] == {"words": ["a.sh", "x"], "workdir": str(desk.folder), "script": None}
    files = sorted((desk.folder / "state" / "submitted" / "east").iterdir())
    assert [(f.name, f.stat().st_mode & 0o777) for f in files] == [(f"{n}.json", 0o600) for n in (101, 102, 103)]


def test_a_dependency_on_a_job_that_is_not_ours_is_no_relation(desk):
    done = desk.run("-d", "afterok:55", "a.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Submitted batch job 101\n", b"")
    assert (desk.words, desk.left) == (["-d", "afterok:55", "a.sh"], [])


def test_a_job_by_its_name_becomes_a_number_if_slurm_still_knows_it(desk):
    desk.said("a.sh")  # 101, which squeue knows
    desk.said("--wrap", "true", "-J", "gone")
    desk.said("-d", "afterok:align:7,afterany:gone,after:nobody", "b.sh")
    assert desk.words == [
        "-d",
        "afterok:align:7,afterany:gone,after:nobody",
        "--dependency=afterok:101:7,afterany:gone,after:nobody",
        "b.sh",
    ]
    # -Q says less, and cannot be followed: but the name is understood.
    assert desk.said("-Q", "-d", "afterok:align", "b.sh") == ""
    assert desk.words == ["-Q", "-d", "afterok:align", "--dependency=afterok:101", "b.sh"]
    assert len(desk.left) == 1


def test_jobs_of_one_name_that_run_one_at_a_time(desk):
    desk.said("-J", "md", "a.sh")
    desk.said("-J", "md", "--dependency=singleton", "a.sh")
    ((first, second),) = desk.left
    assert (first["job"], second["job"], second["near"]) == (101, 102, [101])


@pytest.mark.parametrize(
    ("words", "shell"),
    [
        ([], 'cat a.sh | "$@"'),
        (["/dev/stdin"], 'cat a.sh | "$@"'),
        (["/dev/fd/0", "x"], 'cat a.sh | "$@"'),
        ([], '"$@" <(cat a.sh)'),
        ([], 'mkfifo f; (cat a.sh >f) & "$@" f'),
        (["/dev/stdin"], '"$@" <a.sh'),
        ([], '"$@" <a.sh'),
    ],
)
@pytest.mark.parametrize("stage", [(), ("--penstock-workflow=w", "--penstock-stage=s")])
@pytest.mark.few(5)
def test_a_script_that_comes_through_a_pipe_reaches_sbatch_whole(desk, words, shell, stage):
    text = b"#!/bin/sh\n#SBATCH -J piped\n" + b"# \xff\n" * 50_000 + b"true\n"
    (desk.folder / "a.sh").write_bytes(text)
    done = desk.run(*stage, *words, shell=shell)
    assert (done.returncode, desk.script) == (0, text), done.stderr
    if stage:
        return
    (entry,) = SubmittedJobs(desk.folder / "state", "east")._all()
    assert (entry.name, entry.stage) == ("piped", "piped")


def test_what_came_through_a_pipe_can_be_submitted_again_under_its_name(desk):
    (desk.folder / "a.sh").write_text("#!/bin/sh\ntrue\n")
    desk.run("-t1", "--", shell='"$@" <(cat a.sh) x y')
    (entry,) = SubmittedJobs(desk.folder / "state", "east")._all()
    assert entry.order["script"] == "#!/bin/sh\ntrue\n"
    named, *rest = entry.order["words"]
    assert (named, rest) == (f"--job-name={entry.name}", ["-t1", "--", "/dev/stdin", "x", "y"])
    assert entry.name.isdigit()  # /dev/fd/63


def test_the_end_of_sbatch_is_that_of_the_command(desk):
    desk.put("squeue", "exit 0")  # with an empty queue, what sbatch could not do has not happened
    desk.put("sbatch", 'echo oops >&2; echo "what now"; exit 9')
    done = desk.run("a.sh")
    assert (done.returncode, done.stdout, done.stderr) == (9, b"what now\n", b"oops\n")
    desk.put("sbatch", 'echo "Submitted batch job 5"; sleep 0.5; echo more; exit 3')
    done = desk.run("--wait", "a.sh")
    assert (done.returncode, done.stdout) == (3, b"Submitted batch job 5\nmore\n")


def test_where_nothing_can_be_written_one_line_is_said_and_with_q_none(desk):
    (desk.folder / "state").write_text("no folder")
    done = desk.run("a.sh")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"Submitted batch job 101\n", 1)
    done = desk.run("-Q", "a.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("words", [["-M", "west", "a.sh"], ["-N1", ":", "-N2", "a.sh"], ["a.sh"]])
def test_what_is_not_one_job_of_this_cluster_is_not_remembered(desk, words):
    more = {} if len(words) > 1 else {"SLURM_CLUSTERS": "west"}
    desk.said(*words, **more)
    assert not list((desk.folder / "state").glob("submitted/*/*"))


def test_standard_input_that_is_closed_is_for_sbatch_to_complain_of(desk):
    desk.put("sbatch", "cat || exit 6")
    done = desk.run(shell='"$@" <&-')
    assert (done.returncode, b"Traceback" in done.stderr) == (6, False)


def test_help_is_sbatchs_and_ours(desk):
    said = desk.said("--help")
    assert said.startswith("Usage: sbatch\n")
    assert "--penstock-workflow=name" in said
    desk.put("sbatch", "exit 4")
    assert desk.run("--help").returncode == 4


# -- what is remembered ------------------------------------------------------------------------------------------------


def remembered(job: int, name: str = "a", at: float | None = None) -> Remembered:
    return Remembered(job, name, name, time.time() if at is None else at)


def test_jobs_are_known_by_number_and_by_name_and_damaged_files_are_none(tmp_path):
    jobs = SubmittedJobs(tmp_path, "east")
    for job in (remembered(5, at=time.time() - 9), remembered(7, at=time.time() - 3), remembered(6, "b")):
        jobs.add(job)
    assert (jobs.get(5).job, jobs.get(8), jobs.latest("a").job, jobs.latest("c")) == (5, None, 7, None)
    (tmp_path / "submitted" / "east" / "7.json").write_text('{"job": 7')
    assert (jobs.get(7), jobs.latest("a").job) == (None, 5)
    assert SubmittedJobs(tmp_path, "west").get(5) is None
    jobs.add(remembered(9, at=time.time() - 20 * 86400))
    assert jobs.get(9) is None


def test_the_older_half_is_forgotten_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.fronts.programs.memory._MOST", 10)
    jobs = SubmittedJobs(tmp_path, "")
    for number in range(1, 12):
        jobs.add(remembered(number))
        at = time.time() - 100 + number
        os.utime(tmp_path / "submitted" / "-" / f"{number}.json", (at, at))
    left = [number for number in range(1, 12) if jobs.get(number)]
    assert left == [7, 8, 9, 10, 11]


def test_many_commands_at_once(tmp_path):
    jobs = SubmittedJobs(tmp_path, "")
    threads = [threading.Thread(target=jobs.add, args=(remembered(n),)) for n in range(1, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(jobs.get(n) for n in range(1, 40))
    assert len(list((tmp_path / "submitted" / "-").iterdir())) == 39


@pytest.mark.parametrize(
    ("text", "name"), [("ClusterName=x", "x"), ("#ClusterName=y\n", ""), ("clustername = z # a", "z")]
)
def test_the_clusters_name(tmp_path, text, name):
    (tmp_path / "slurm.conf").write_text(text)
    assert cluster_name({"SLURM_CONF": str(tmp_path / "slurm.conf")}) == name
    assert cluster_name({"SLURM_CONF": str(tmp_path / "none")}) == ""

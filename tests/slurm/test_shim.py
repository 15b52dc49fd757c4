"""The front programs before a real Slurm: what is said and done is as without them, and a busy Slurm loses nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from agents import Desk, SlurmAgent

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900, func_only=True)]

PLAIN = "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\ntrue\n"


class Site(SlurmAgent):
    """Alice's, whose front programs lie in `fronts`."""

    fronts = ""

    def behind(self, *folders: str) -> str:
        """A PATH with these in front."""
        return ":".join([*folders, self.cluster.user_env("alice")["PATH"]])


@pytest.fixture
def site(another: Cluster) -> Iterator[Site]:
    it = Site(another)
    it.fronts = Desk(it).say("penstock", "shim", "--path").strip()
    yield it
    another.run_as("root", ["scancel", "--partition=batch"])
    it.down()


def run(site: Site, path: str, *words: str, limit: float = 90, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**site.environment, "PATH": path, **more}
    done: subprocess.CompletedProcess[str] = site.cluster.run_as(
        "alice", list(words), env=env, cwd=site.cluster.home("alice"), timeout=limit
    )
    return done


# -- as without them ---------------------------------------------------------------------------------------------------

CALLS = """
    sbatch -H plain.sh | sbatch -H plain.sh an --argument | sbatch --hold --parsable plain.sh | sbatch -HQ plain.sh
    sbatch -H --quiet --parsable plain.sh | sbatch -H -J name plain.sh | sbatch -H -N1-2 plain.sh
    sbatch -H --wrap true | sbatch -H --wrap=true -t1 --parsable | sbatch -H -a 1-3 plain.sh | sbatch -H -- plain.sh x
    sbatch -H --export=NONE plain.sh | sbatch -H --chdir=/tmp plain.sh | sbatch --wait three.sh | sbatch --wait plain.sh
    sbatch -H --comment=äö plain.sh | sbatch -H --comment plain.sh | sbatch -H -J a : -J b plain.sh
    sbatch --nonsense plain.sh | sbatch no-such-script | sbatch -p nowhere plain.sh | sbatch -N many plain.sh
    sbatch -t soon plain.sh | sbatch --version | sbatch -V | sbatch --usage | sbatch --help
    sbatch --test-only plain.sh
    sbatch -H dos.sh | sbatch -H no-shebang.sh | sbatch -M nowhere plain.sh | sbatch -d afterok:J plain.sh
    sbatch -Hv -J said plain.sh | sbatch -Hv --comment=mine plain.sh | sbatch -v -p nowhere plain.sh
    sbatch -d afterok:no-such-name plain.sh
    sbatch -d nonsense:J plain.sh | sbatch -H -n 1000000 plain.sh | sbatch -H --mem=999T plain.sh | sbatch
    scancel 999999 | scancel nonsense | scancel -v 999999 | scancel -n no-such-name | scancel --usage | scancel
    scancel --nonsense | scancel -t PENDING -n gone | scancel -s USR1 999999
    scontrol hold J | scontrol release 999999 | scontrol hold 999999 | scontrol update jobid=J timelimit=2
    scontrol update jobid=J timelimit=x | scontrol update jobid=999999 timelimit=2 | scontrol requeue 999999
    scontrol nonsense | scontrol show job 999999 | scontrol show partition | scontrol show job J | scontrol --version
    scontrol show nonsense | scontrol ping | squeue | squeue -h -o %i_%t | squeue -j 999999 | squeue --nonsense
    squeue --me -o %Z | sacct -j 999999 | sacct -n -X -j J -o JobID,State | sacct --nonsense | sacct -o nonsense
"""
SHELL = {
    'cat plain.sh | "$@"': ["sbatch -H", "sbatch -H /dev/stdin", "sbatch -H --parsable /dev/stdin x"],
    '"$@" <(cat plain.sh)': ["sbatch -H"],
    '"$@" </dev/null': ["sbatch -H"],
    '"$@" 2>&1': ["sbatch -p nowhere plain.sh", "sbatch -H plain.sh", "squeue -j 999999"],
}


def told(site: Site, path: str, line: str, shell: str, job: str) -> tuple[int, str, str]:
    """Exit code, output and errors; all numbers and times alike, and the columns that they are in."""
    words = [job if word == "J" else word.replace(":J", f":{job}").replace("=J", f"={job}") for word in line.split()]
    done = run(site, path, "bash", "-c", shell, "-", *words)
    plain = [re.sub(r"\d+", "N", re.sub(r" +", " ", text)) for text in (done.stdout, done.stderr)]
    return done.returncode, *(re.sub(r"N-N-NTN:N:N|(N-)?(N:)+N", "T", text) for text in plain)


@pytest.mark.long_elsewhere
@pytest.mark.parametrize(
    "agent", [pytest.param(False, id="alone", marks=pytest.mark.long), pytest.param(True, id="agent")]
)
def test_what_is_said_is_what_slurms_own_say(site, agent):
    if agent:
        site.start()
    desk = Desk(site)
    desk.write("plain.sh", PLAIN)
    desk.write("three.sh", "#!/bin/bash\n#SBATCH -t 1 -o /dev/null\nexit 3\n")
    desk.write("dos.sh", PLAIN.replace("\n", "\r\n"))
    desk.write("no-shebang.sh", "true\n")
    job = desk.say("sbatch", "--parsable", "-H", "plain.sh").strip()
    table = [(line.strip(), '"$@"') for row in CALLS.strip().splitlines() for line in row.split("|")]
    table += [(line, shell) for shell, lines in SHELL.items() for line in lines]
    assert len(table) >= 75
    differ = []
    for line, shell in table:
        # Each in a queue that holds no more than the one job.
        both = []
        for path in (site.behind(), site.behind(site.fronts)):
            both.append(told(site, path, line, shell, job))
            others = [row for row in desk.say("squeue", "-h", "--me", "-o", "%F").split() if row != job]
            if others:
                desk.run("scancel", *others)  # which refuses to cancel one component of several
        if both[0] != both[1]:
            differ.append((line, shell, *both))
    assert differ == []


def test_a_job_finds_what_it_finds_without_them(site):
    Desk(site).write("env.sh", "#!/bin/bash\nenv -0\n")  # dash would lose functions
    texts = []
    for name, path in (("bare", site.behind()), ("fronts", site.behind(site.fronts))):
        line = f"f() {{ :; }}; export -f f; export ODD=$'a\\nb'; sbatch --wait --mem=1G -o {name}.txt -t1 -J e env.sh"
        assert run(site, path, "bash", "-c", line).returncode == 0
        deadline = time.monotonic() + 20
        while not (found := (site.cluster.home("alice") / f"{name}.txt")).exists() or not found.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        texts.append(sorted(re.sub(r"\d+", "N", word) for word in found.read_text().split("\0")))
        texts[-1] = [word for word in texts[-1] if not word.startswith("SLURM_JOB_SLUID=")]  # new, and at random
    assert texts[0] == texts[1]
    assert any(word.startswith("BASH_FUNC_f%%=") for word in texts[1])
    assert site.fronts not in "".join(texts[1])


# -- a busy Slurm ------------------------------------------------------------------------------------------------------

FLAKY = """#!/bin/bash
# Of ten calls two fail before and two after the fact.
n=$((16#$(head -c2 /dev/urandom | od -An -tx1 | tr -d ' \\n') % 10))
case $n in
  0 | 1) echo "NAME: error: BEFORE: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  2 | 3) REAL "$@" >/dev/null 2>&1; echo "NAME: error: BEFORE: Socket timed out on send/recv operation" >&2; exit 1 ;;
esac
exec REAL "$@"
"""


def flaky(site: Site, *programs: str) -> str:
    """A folder with programs in front of Slurm's, that do so."""
    folder = site.place / "flaky"
    folder.mkdir()
    path = site.cluster.user_env("alice")["PATH"]
    for name in programs:
        real = shutil.which(name, path=path) or f"/usr/bin/{name}"
        file = folder / name
        text = FLAKY.replace("REAL", real).replace("NAME", name)
        file.write_text(
            text.replace("BEFORE", "Batch job submission failed" if name == "sbatch" else "slurm_load_jobs")
        )
        file.chmod(0o755)
    return str(folder)


@pytest.mark.long
def test_hundreds_of_submissions_of_which_four_in_ten_fail(site):
    count = 200 if site.cluster.spec.release is None else 40
    site.start()
    desk = Desk(site)
    desk.write("plain.sh", PLAIN)
    path = site.behind(site.fronts, flaky(site, "sbatch", "squeue", "sacct"))
    named: dict[str, subprocess.CompletedProcess[str]] = {}
    left = [f"job-{n}" for n in range(count)]

    def submit() -> None:
        while left:
            name = left.pop()
            form = ["--parsable"] if name.endswith("5") else ["-a1-2"] if name.endswith("7") else []
            words = ["sbatch", "-H", "-J", name, *form, "plain.sh"]
            # The looks for the key fail as often.
            named[name] = run(site, path, *words, limit=300, PENSTOCK_SHIM_PATIENCE="200")

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(named) < count // 3 and any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
    site.stop(9)  # the agent is gone, and nothing depends on it
    for thread in threads:
        thread.join()
    assert {name: done for name, done in named.items() if done.returncode} == {}
    assert {re.sub(r"\d+", "N", done.stdout) for done in named.values()} == {"Submitted batch job N\n", "N\n"}
    told = {name: re.findall(r"\d+", done.stdout) for name, done in named.items()}
    there = [row.split() for row in desk.say("squeue", "--me", "-h", "-o", "%j %F").splitlines()]
    found = {name: [number for other, number in there if other == name] for name in named}
    assert found == told, "0 lost, 0 doubled"
    assert len(there) == count


def test_an_outage_is_waited_for(site):
    desk = Desk(site)
    desk.write("plain.sh", PLAIN)
    path = site.behind(site.fronts)
    job = run(site, path, "sbatch", "--parsable", "-H", "plain.sh").stdout.strip()
    site.cluster.stop_controller()
    found: dict[str, subprocess.CompletedProcess[str]] = {}
    calls = {
        "squeue": ["squeue", "-h", "-o", "%i %t", "-j", job],
        "sbatch": ["sbatch", "-H", "plain.sh"],
        "scontrol": ["scontrol", "update", f"jobid={job}", "timelimit=2"],
    }

    def call(name: str) -> None:
        found[name] = run(site, path, *calls[name], limit=240, PENSTOCK_SHIM_PATIENCE="120")

    threads = [threading.Thread(target=call, args=(name,)) for name in calls]
    try:
        for thread in threads:
            thread.start()
        time.sleep(8)  # an outage of that long, by the clock
        assert found == {}
    finally:
        site.cluster.start_controller()
    for thread in threads:
        thread.join()
    assert (found["squeue"].returncode, found["squeue"].stdout, found["squeue"].stderr) == (0, f"{job} PD\n", "")
    assert found["scontrol"].returncode == 0
    assert re.fullmatch(r"Submitted batch job \d+\n", found["sbatch"].stdout)
    assert len(desk.say("squeue", "--me", "-h", "-o", "%i").split()) == 2


def test_fronts_behind_fronts_and_those_of_another(site):
    desk = Desk(site)
    desk.write("plain.sh", PLAIN)
    older = site.folder / "older"
    site.cluster.run_as("alice", ["cp", "-r", site.fronts, str(older)], check=True)
    done = run(site, site.behind(str(older), site.fronts, str(older)), "sbatch", "-H", "plain.sh")
    assert re.fullmatch(r"Submitted batch job \d+\n", done.stdout)
    theirs = site.cluster.home("bob") / "theirs"
    site.cluster.run_as("bob", ["cp", "-r", site.fronts, str(theirs)], check=True)
    site.cluster.run_as("bob", ["chmod", "755", str(site.cluster.home("bob"))], check=True)
    for path in (site.behind(str(theirs)), site.behind(site.fronts, str(theirs))):
        done = run(site, path, "sbatch", "-H", "plain.sh")
        assert (done.returncode, done.stdout) == (4, "")
        assert "of another user" in done.stderr

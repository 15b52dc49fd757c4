"""What tools say to Slurm, call by call, and what they read in its answers.

The words, the standard input, the folder and the variables of each call are those that the tools were seen to use on a
real cluster, with a recording program in front of Slurm's; Nextflow's are from its sources. Scripts have the tools'
directives, and bodies of our own. `{first}` and so on are the numbers of jobs, `{work}` is the dialogue's folder,
`{user}` the user's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["DIALOGUES", "GONE", "TABLE", "Call", "Dialogue"]

GONE: Final = "gone"
TABLE: Final = "table"
"""Rows of fields that end with "|", the first row being their names; all are as long."""


@dataclass(frozen=True, slots=True)
class Call:
    """One command, and how the tool understands it.

    `reads`: what each line of the output has to be (TABLE: all of them are one), and with its groups what the tool
    takes from it; empty: the output is empty. `saves`: under which name the group `job`, or else the whole output, is
    known to the calls after it. `until`: it is asked again and again until a line about the job `about` has this in
    its group `state`, or, GONE, until there is no such line. `errors`: what stderr is; `merged`: the tool reads it
    with the output. `script`: the file that is its standard input. `bare`: nothing but HOME is in its environment.
    `since`: the first release that can do it; `before`: the first in which the tool fails at it by itself.
    """

    words: Sequence[str]
    reads: str = ""
    saves: str = ""
    until: str = ""
    about: str = ""
    errors: str = ""
    merged: bool = False
    script: str = ""
    folder: str = "{work}"
    environ: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    since: str = ""
    before: str = "99"


@dataclass(frozen=True, slots=True)
class Dialogue:
    """`files`: what the tool has written in its folder; `ends`: how the jobs end, by accounting; `leaves`: what the
    jobs have written. `refused`: a line of the files that sbatch does not take any more, and since which release: who
    uses the tool there has taken it out."""

    tool: str
    version: str
    files: Mapping[str, str]
    calls: Sequence[Call]
    ends: Mapping[str, str]
    leaves: Mapping[str, str]
    refused: tuple[str, str] = ("", "99")


SUBMITTED: Final = r"Submitted batch job (?P<job>\d+)"

# -- Nextflow: SlurmExecutor, GridTaskHandler, AbstractGridExecutor ---------------------------------------------------

_STATES: Final = "PD|R|CA|CF|CG|CD|F|TO|NF|S|ST|PR|BF"
# One line that is not of two words is passed by there; none is to be so here.
_NEXTFLOW: Final = rf"(?P<job>\S+) (?P<state>{_STATES})"
_NEXTFLOW_ASKS: Final = ("squeue", "--noheader", "-o", "%i %t", "-t", "all")
_NEXTFLOW_HEAD: Final = """\
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -t 00:05:00
#SBATCH --mem 100M
#SBATCH -p batch
NXF_CHDIR={work}
"""
_NEXTFLOW_BODY: Final = """\
end() { printf %s $? > .exitcode; }
trap end EXIT
cd "$NXF_CHDIR"
touch .command.begin
echo said > .command.out
"""


def _nextflow(*words: str, until: str, about: str, since: str = "") -> Call:
    return Call((*_NEXTFLOW_ASKS, *words), _NEXTFLOW, until=until, about=about, merged=True, since=since)


_USERS: Final = ("-p", "batch", "-u", "{user}")
NEXTFLOW: Final = Dialogue(
    "Nextflow",
    "26.08.0-edge, its sources",
    {
        ".command.run": "#!/bin/bash\n#SBATCH -J nf-hello_(1)\n#SBATCH -o {work}/.command.log\n"
        + _NEXTFLOW_HEAD
        + _NEXTFLOW_BODY,
        "array/.command.run": "#!/bin/bash\n#SBATCH --array 0-1\n#SBATCH -J nf-hello_(2)\n#SBATCH -o /dev/null\n"
        + _NEXTFLOW_HEAD
        + "sleep 300\n",
        "piped": "#!/bin/bash\n#SBATCH -J nf-hello_(3)\n#SBATCH -o /dev/null\n"
        + _NEXTFLOW_HEAD
        + 'cd "$NXF_CHDIR"\necho piped > piped.out\n',
    },
    [
        Call(("sbatch", ".command.run"), SUBMITTED, saves="first", merged=True),
        Call(("sbatch", ".command.run"), SUBMITTED, saves="second", merged=True, folder="{work}/array"),
        Call(("sbatch",), SUBMITTED, saves="third", merged=True, script="piped"),  # with Fusion
        _nextflow(*_USERS, until="CD", about="{first}"),
        _nextflow(*_USERS, until="R", about="{second}_1"),
        _nextflow("--only-job-state", until="CD", about="{third}", since="24.05"),
        Call(("scancel", "{second}_0", "{second}_1"), merged=True),
        _nextflow(*_USERS, until="CA", about="{second}_1"),
        _nextflow("-u", "{user}", until="CD", about="{third}"),
    ],
    {"first": "COMPLETED", "second_0": "CANCELLED", "second_1": "CANCELLED", "third": "COMPLETED"},
    {".exitcode": "0", ".command.out": "said\n", "piped.out": "piped\n"},
)

# -- AiiDA: core.slurm over a transport that starts login shells ------------------------------------------------------

_AIIDA_FIELDS: Final = "^^^".join(f"%{letter}" for letter in "itrBuDCRPlMSjV")
# With one job it is named twice, so that squeue ends well when it is gone.
_AIIDA: Final = r"(?P<job>\d+)\^\^\^(?P<state>[A-Z]+)" + r"\^\^\^([^^]+)" * 12
_STANDARD: Final = {"SLURM_TIME_FORMAT": "standard"}
_AIIDA_HEAD: Final = """\
#!/bin/bash
#SBATCH --no-requeue
#SBATCH --job-name="aiida-4"
#SBATCH --get-user-env
#SBATCH --output=_scheduler-stdout.txt
#SBATCH --error=_scheduler-stderr.txt
#SBATCH --partition=batch
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:05:00
#SBATCH --mem=100
"""


def _aiida(job: str, until: str) -> Call:
    words = ("squeue", "--noheader", "-o", _AIIDA_FIELDS, f"--jobs={job},{job}")
    return Call(words, _AIIDA, until=until, about=job, environ=_STANDARD)


def _aiida_record(job: str, state: str) -> list[Call]:
    return [
        Call(("sacct", "--helpformat"), r".*", saves="fields"),
        Call(("sacct", "--format={fields}", "--parsable", f"--jobs={job}"), TABLE, until=state, about=job),
    ]


AIIDA: Final = Dialogue(
    "AiiDA",
    "aiida-core 2.9.4",
    {
        "_aiidasubmit.sh": _AIIDA_HEAD + "echo 5 > aiida.out\n",
        "other/_aiidasubmit.sh": _AIIDA_HEAD + "sleep 300\n",
    },
    [
        Call(("sbatch", "_aiidasubmit.sh"), SUBMITTED, saves="first"),
        Call(("sbatch", "_aiidasubmit.sh"), SUBMITTED, saves="second", folder="{work}/other"),
        _aiida("{first}", GONE),
        *_aiida_record("{first}", "COMPLETED"),
        _aiida("{second}", "R"),
        Call(("scancel", "{second}")),
        _aiida("{second}", GONE),
        *_aiida_record("{second}", "CANCELLED"),
    ],
    {"first": "COMPLETED", "second": "CANCELLED"},
    {"aiida.out": "5\n", "_scheduler-stdout.txt": "", "_scheduler-stderr.txt": ""},
)

# -- Cylc: the job runner slurm --------------------------------------------------------------------------------------

_CYLC_HEAD: Final = """\
#!/bin/bash -l
#SBATCH --job-name={name}.1.talk
#SBATCH --output={work}/{name}/job.out
#SBATCH --error={work}/{name}/job.err
#SBATCH --time=5:00
#SBATCH --partition=batch
#SBATCH --mem=100M
"""
_CYLC: Final = r" *(?P<job>\d+) .*"


def _cylc(*jobs: str, until: str, about: str) -> Call:
    # A job is there, or it is not: only the number is read.
    return Call(("squeue", "-h", "-j", ",".join(jobs)), _CYLC, until=until, about=about)


CYLC: Final = Dialogue(
    "Cylc",
    "cylc-flow 8.5.4; 8.7.0 says the same",
    {
        "first/job": _CYLC_HEAD.replace("{name}", "first") + "echo SUCCEEDED\n",
        "long/job": _CYLC_HEAD.replace("{name}", "long") + "sleep 300\n",
    },
    [
        Call(("sbatch", "{work}/first/job"), SUBMITTED, saves="first", folder="~"),
        Call(("sbatch", "{work}/long/job"), SUBMITTED, saves="second", folder="~"),
        _cylc("{first}", "{second}", until=GONE, about="{first}"),
        _cylc("{second}", until="", about="{second}"),
        Call(("scancel", "{second}")),
        _cylc("{second}", until=GONE, about="{second}"),
    ],
    {"first": "COMPLETED", "second": "CANCELLED"},
    {"first/job.out": "SUCCEEDED\n"},
)

# -- batchspawner: SlurmSpawner, of a hub that hands no PATH to sbatch ------------------------------------------------

_SPAWNER_HEAD: Final = """\
#!/bin/bash
#SBATCH --output={work}/jupyterhub_slurmspawner_%j.log
#SBATCH --job-name=spawner-jupyterhub
#SBATCH --chdir={work}
#SBATCH --export=PATH,LANG,HOME,JUPYTERHUB_API_TOKEN
#SBATCH --get-user-env=L
#SBATCH --partition=batch
#SBATCH --time=0:10:00
#SBATCH --mem=100M
#SBATCH --cpus-per-task=1
"""
_SPAWNER: Final = r"(?P<state>PENDING|CONFIGURING|RUNNING|COMPLETING) (?P<host>[\w./-]+)"


def _spawner(job: str, until: str) -> Call:
    # Twice a second. No line: it has ended.
    return Call(("squeue", "-h", "-j", job, "-o", "%T %B"), _SPAWNER, until=until)


BATCHSPAWNER: Final = Dialogue(
    "batchspawner",
    "1.3.0, JupyterHub 6.1.1",
    {
        "server": _SPAWNER_HEAD + "sleep 300\n",
        "dies": _SPAWNER_HEAD + "echo began\nfalse\n",
    },
    [
        Call(("sbatch", "--parsable"), r"(?P<job>\d+)", saves="first", script="server", bare=True),
        Call(("sbatch", "--parsable"), r"(?P<job>\d+)", saves="second", script="dies", bare=True),
        _spawner("{first}", "RUNNING"),
        _spawner("{second}", GONE),
        Call(("scancel", "{first}")),
        _spawner("{first}", GONE),
    ],
    {"first": "CANCELLED", "second": "FAILED"},
    {"jupyterhub_slurmspawner_{second}.log": "began\n"},
    ("#SBATCH --get-user-env=L\n", "26.05"),
)

# -- jobflow-remote: qtoolkit's SlurmIO ------------------------------------------------------------------------------

_QTOOLKIT_FIELDS: Final = "<><> ".join(f"%{letter}" for letter in "itrjuPlDCMm")
_QTOOLKIT: Final = r"(?P<job>\d+)<><> (?P<state>[A-Z]+)" + r"<><> (.+?)" * 9
_QTOOLKIT_HEAD: Final = """\
#!/bin/bash
#SBATCH --partition=batch
#SBATCH --job-name=a-flow
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=0-0:5:0
#SBATCH --output=queue.out
#SBATCH --error=queue.err
"""
# Split at blanks and at the first "=" of each word: every word has one.
_QTOOLKIT_JOB: Final = r"JobId=(?P<job>\d+) JobName=\S+ (\S+=\S* )*JobState=(?P<state>[A-Z]+)( +\S+=\S*)* *"


def _qtoolkit(job: str, until: str) -> Call:
    words = ("squeue", "--noheader", "-o", _QTOOLKIT_FIELDS, f"--jobs={job},{job}")
    return Call(words, _QTOOLKIT, until=until, about=job, environ=_STANDARD)


JOBFLOW: Final = Dialogue(
    "jobflow-remote",
    "1.0.1, its queue alone (qtoolkit)",
    {
        "a/submit.sh": _QTOOLKIT_HEAD + "cd {work}/a\necho done > out\n",
        "b/submit.sh": _QTOOLKIT_HEAD + "cd {work}/b\nsleep 300\n",
    },
    [
        Call(("sbatch", "{work}/a/submit.sh"), SUBMITTED, saves="first", folder="{work}/a"),
        Call(("sbatch", "{work}/b/submit.sh"), SUBMITTED, saves="second", folder="{work}/b"),
        _qtoolkit("{first}", GONE),
        Call(
            ("scontrol", "show", "job", "-o", "{second}"),
            _QTOOLKIT_JOB,
            until="RUNNING",
            about="{second}",
            environ=_STANDARD,
            before="26.05",  # whose SubmitLine has words of its own
        ),
        Call(("scancel", "-v", "{second}"), errors=r"scancel: Terminating job (?P<job>\d+)\n"),
        _qtoolkit("{second}", GONE),
    ],
    {"first": "COMPLETED", "second": "CANCELLED"},
    {"a/out": "done\n", "a/queue.out": "", "a/queue.err": ""},
)

DIALOGUES: Final = (NEXTFLOW, AIIDA, CYLC, BATCHSPAWNER, JOBFLOW)

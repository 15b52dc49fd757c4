"""The options of sbatch and srun, and what each is elsewhere. Pure.

Nothing is imported here: the front programs, which start for every command, read this too.
"""

from __future__ import annotations

__all__ = ["AT_WILL", "KINDS", "LETTERS", "NO_VALUE", "VALUE", "VARIABLES", "column", "options_of"]

# From 22.05 to 26.05 (slurm_opt.c, opt.c). What a newer release adds is taken for one whose value comes with =, if any.
#   option    its name/short letter; several with commas between where all else is alike
#   sbatch    and srun: whether it takes a value there: no, = always, ? at will, - there is none
#   variable  what sbatch reads for it, * named as it; of several the last one counts
#   stage     the key of a workflow file that says it, which is also a field of a job
#   pool      jobs of pools may have it: "kept" to, or passed "over" as it means nothing there
#   REST      the field of a job description; "said" otherwise, or it changes nothing of the job; - by code of its own
_TABLE = """
option              sbatch  srun  variable                             stage       pool  REST
account/A           =       =     *                                    account     kept  account
array/a             =       -     SBATCH_ARRAY_INX                     array       kept  array
bb                  =       =     SBATCH_BURST_BUFFER
chdir/D             =       =     -                                    workdir     kept  said
clusters/M          =       =     SBATCH_CLUSTERS,SLURM_CLUSTERS
comment             =       =     -                                    -           kept  comment
constraint/C        =       =     *                                    constraint  -     constraints
cpu-freq            =       =     SBATCH_CPU_FREQ_REQ                  -           over
cpus-per-task/c     =       =     -                                    cpus        kept  number:cpus_per_task
dependency/d        =       =     -                                    -           kept  dependency
error/e             =       =     *                                    error       kept  standard_error
exclude/x           =       =     -                                    exclude     -     list:excluded_nodes
get-user-env        ?       -     *                                    -           over
gpus/G              =       =     *                                    gpus        kept
gres                =       =     *                                    gres        kept
hint                =       =     SBATCH_HINT,SLURM_HINT               -           over
hold/H              no      no    -                                    -           kept
ignore-pbs          no      -     *                                    -           over
input/i             =       =     *                                    -           kept  standard_input
job-name/J          =       =     *                                    -           kept  said
kill-on-invalid-dep =       -     -                                    -           kept  said
licenses/L          =       =     -                                    licenses    -     licenses
mail-user           =       =     -                                    -           kept  mail_user
mem                 =       =     SBATCH_MEM_PER_NODE                  memory      kept
mincpus             =       =     -                                    -           -     number:minimum_cpus_per_node
no-kill/k           ?       ?     *                                    -           over
no-requeue          no      -     *                                    -           kept  said
nodelist/w          =       =     -                                    -           -     list:required_nodes
nodes/N             =       =     -                                    nodes       kept  said
ntasks-per-core     =       =     -                                    -           over  number:tasks_per_core
ntasks-per-node     =       =     -                                    -           kept  number:tasks_per_node
ntasks-per-socket   =       =     -                                    -           over  number:tasks_per_socket
ntasks/n            =       =     -                                    ntasks      kept  number:tasks
output/o            =       =     *                                    output      kept  standard_output
parsable            no      no    -                                    -           over  said
partition/p         =       =     *                                    partition   kept  partition
prefer              =       =     -                                    -           -     prefer
qos/q               =       =     *                                    qos         kept  qos
quiet/Q             no      no    -                                    -           over  said
requeue             ?       -     *                                    -           kept  said
reservation         =       =     *                                    -           -     reservation
segment             =       =     SBATCH_SEGMENT_SIZE                  -           over
switches            =       =     SBATCH_REQ_SWITCH,SBATCH_WAIT4SWITCH -           over
tasks-per-node      =       =     -                                    -           kept  number:tasks_per_node
time/t              =       =     SBATCH_TIMELIMIT                     time        kept  said
verbose/v           no      no    SBATCH_DEBUG                         -           over  said
wait-all-nodes      =       -     *                                    -           over
wait/W              no      =     *                                    -           over
wckey               =       =     *                                    -           kept  wckey
wrap                =       -     -                                    -           kept
export,gpus-per-node,gpus-per-task,mem-per-cpu,open-mode,signal = = * - kept
acctg-freq,delay-boot,distribution/m,gpu-bind,gpu-freq,gres-flags,mem-bind,profile,thread-spec = = * - over
threads-per-core = = * - over
begin/b,mail-type = = - - kept
cores-per-socket,extra-node-info/B,priority,sockets-per-node,time-min,tmp = = - - over
nice,oom-kill-step,propagate ? ? - - over
consolidate-segments,overcommit/O,spread-job,spread-segments,use-min-nodes no no * - over
contiguous,oversubscribe/s,stepmgr no no - - over
batch = - *
runtime = -
cluster-constraint,container,container-id,container-type,core-spec/S,cpus-per-gpu,gpus-per-socket,mem-per-gpu = = *
network,power,tres-bind,tres-per-task = = *
autocomplete,bbf,cluster,context,deadline,export-file,extra,gid,mcs-label,mem-update,nodefile/F,ntasks-per-gpu = =
ntasks-per-tres,resources,uid = =
exclusive ? ? *
resv-ports ? ?
external,help/h,reboot,test-only,usage,version/V no no
accel-bind,bcast-exclude,cpu-bind,cpu_bind,environment,epilog,het-group,ignore-signals,jobid,mpi,msg-timeout - =
pack-group,prolog,relative/r,slurmd-debug,task-epilog,task-prolog,threads/T,treewidth - =
bcast,compress,external-launcher,immediate/I,kill-on-bad-exit/K,overlap,pty,send-libs,wait-for-children,x11 - ?
async,debugger-test,disable-status/X,exact,interactive,label/l,multi-prog,no-allocate/Z,preserve-env/E - no
quit-on-interrupt,unbuffered/u,whole - no
"""
NO_VALUE, AT_WILL, VALUE = 0, 1, 2
_KINDS = {"no": NO_VALUE, "?": AT_WILL, "=": VALUE}
_TITLES, *_ROWS = [line.split() for line in _TABLE.split("\n")[1:-1]]


def options_of(program: str) -> tuple[dict[str, int], dict[str, str]]:
    """By the full names of the options of sbatch or srun whether they take a value, and the full names of the short
    ones."""
    kinds: dict[str, int] = {}
    letters: dict[str, str] = {}
    place = _TITLES.index(program)
    for row in _ROWS:
        kind = _KINDS.get(row[place])
        if kind is not None:
            for word in row[0].split(","):
                if word[-2:-1] == "/":
                    letters[word[-1]] = word = word[:-2]
                kinds[word] = kind
    return kinds, letters


def column(title: str) -> dict[str, str]:
    """What stands in a column, by the full names of the options; without those of which it says nothing."""
    place = _TITLES.index(title)
    said = [(row[0].split(","), row[place]) for row in _ROWS if len(row) > place and row[place] != "-"]
    return {word.partition("/")[0]: cell for words, cell in said for word in words}


def _variables() -> dict[str, str]:
    found: dict[str, str] = {}
    for option, cell in column("variable").items():
        for name in [f"SBATCH_{option.upper().replace('-', '_')}"] if cell == "*" else cell.split(","):
            found[name] = option
    return found


KINDS, LETTERS = options_of("sbatch")
VARIABLES = _variables()
"""The options that sbatch reads variables for, by these."""

"""sbatch's options: which there are, and which take a value. Pure.

Nothing is imported here: the front programs, which start for every command, read these too.
"""

from __future__ import annotations

__all__ = ["AT_WILL", "KINDS", "LETTERS", "NO_VALUE", "VALUE", "tables"]

# sbatch's options from 22.05 to 26.05 (slurm_opt.c): name[/short letter]. What a newer release adds is taken for one
# whose value, if any, comes with "=".
_FLAGS = (
    "consolidate-segments contiguous external help/h hold/H ignore-pbs no-requeue overcommit/O oversubscribe/s "
    "parsable quiet/Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes verbose/v version/V "
    "wait/W"
)
_WITH_VALUE_AT_WILL = "exclusive get-user-env nice no-kill/k oom-kill-step propagate requeue resv-ports"
_WITH_VALUE = (
    "account/A acctg-freq array/a autocomplete batch bb bbf begin/b chdir/D cluster cluster-constraint clusters/M "
    "comment constraint/C container container-id container-type context core-spec/S cores-per-socket cpu-freq "
    "cpus-per-gpu cpus-per-task/c deadline delay-boot dependency/d distribution/m error/e exclude/x export "
    "export-file extra extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket gpus-per-task "
    "gres gres-flags hint input/i job-name/J kill-on-invalid-dep licenses/L mail-type mail-user mcs-label mem "
    "mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile/F nodelist/w nodes/N ntasks/n "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output/o partition/p "
    "power prefer priority profile qos/q reservation resources runtime segment signal sockets-per-node switches "
    "tasks-per-node thread-spec threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey "
    "wrap"
)
NO_VALUE, AT_WILL, VALUE = 0, 1, 2


def tables(flags: str, at_will: str, with_value: str) -> tuple[dict[str, int], dict[str, str]]:
    """By the full names of options whether they take a value, and the full names of the short ones, from words such as
    `hold/H`: options without a value, with one at will, and with one."""
    kinds: dict[str, int] = {}
    letters: dict[str, str] = {}
    for kind, words in ((NO_VALUE, flags), (AT_WILL, at_will), (VALUE, with_value)):
        for word in words.split():
            name, _, letter = word.partition("/")
            kinds[name] = kind
            if letter:
                letters[letter] = name
    return kinds, letters


KINDS, LETTERS = tables(_FLAGS, _WITH_VALUE_AT_WILL, _WITH_VALUE)
"""By their full names whether options take a value, and the full names of the short ones."""

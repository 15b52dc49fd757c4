"""srun's options: which there are, and which take a value. Pure; front programs read it."""

from __future__ import annotations

from penstock.slurm.option_table import tables

__all__ = ["KINDS", "LETTERS"]

# From 22.05 to 26.05 (slurm_opt.c): name[/short letter].
_FLAGS = (
    "async consolidate-segments contiguous debugger-test disable-status/X exact external help/h hold/H interactive "
    "label/l multi-prog no-allocate/Z overcommit/O oversubscribe/s parsable preserve-env/E quiet/Q quit-on-interrupt "
    "reboot spread-job spread-segments stepmgr test-only unbuffered/u usage use-min-nodes verbose/v version/V whole"
)
_WITH_VALUE_AT_WILL = (
    "bcast compress exclusive external-launcher immediate/I kill-on-bad-exit/K nice no-kill/k oom-kill-step overlap "
    "propagate pty resv-ports send-libs wait-for-children x11"
)
_WITH_VALUE = (
    "accel-bind account/A acctg-freq autocomplete bb bbf bcast-exclude begin/b chdir/D cluster cluster-constraint "
    "clusters/M comment constraint/C container container-id container-type context core-spec/S cores-per-socket "
    "cpu-bind cpu_bind cpu-freq cpus-per-gpu cpus-per-task/c deadline delay-boot dependency/d distribution/m "
    "environment epilog error/e exclude/x export export-file extra extra-node-info/B gid gpu-bind gpu-freq gpus/G "
    "gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint ignore-signals input/i job-name/J "
    "jobid licenses/L mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus mpi "
    "msg-timeout network nodefile/F nodelist/w nodes/N ntasks/n ntasks-per-core ntasks-per-gpu ntasks-per-node "
    "ntasks-per-socket ntasks-per-tres open-mode output/o pack-group partition/p power prefer priority profile prolog "
    "qos/q relative/r reservation resources segment signal slurmd-debug sockets-per-node switches task-epilog "
    "task-prolog tasks-per-node thread-spec threads/T threads-per-core time/t time-min tmp treewidth tres-bind "
    "tres-per-task uid wait/W wckey"
)
KINDS, LETTERS = tables(_FLAGS, _WITH_VALUE_AT_WILL, _WITH_VALUE)
"""By their full names whether options take a value, and the full names of the short ones."""

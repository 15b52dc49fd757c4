"""Examples of commands, by command, as the man pages show them.

A test parses each, so that none goes stale, and wants one of every command.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXAMPLES"]

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "submit": (
            ("penstock submit mosaic.yaml", "A workflow file."),
            ("penstock submit blast.json --max-nodes 4 -t 30m", "A WfFormat file; its stages get up to 4 nodes."),
        ),
        "try": (("penstock try mosaic.yaml", "How long it would take, submitted now."),),
        "shim": (("penstock shim --path", "The folder, for tools that set PATH themselves."),),
        "status": (("penstock status mosaic", "One workflow with its stages."),),
        "explain": (("penstock explain w1", "Why workflow 1 is where it is."),),
        "logs": (("penstock logs mosaic merge -f", "Go on with what a stage writes."),),
        "cancel": (("penstock cancel w3", "Workflow 3 and its jobs."),),
        "more": (("penstock more mosaic 2h", "Its last stages come within two hours."),),
        "retry": (("penstock retry mosaic merge", "One stage, and what comes after it."),),
        "advise": (("penstock advise --risk 5", "Limits that one run in twenty may exceed."),),
        "waits": (("penstock waits -N 4 -t 2h -p batch", "The wait of a job of 4 nodes for 2 hours."),),
        "slots": (("penstock slots -N 4 -t 2:00:00 --to now+2d", "Where 4 nodes are free for 2 hours."),),
        "quote": (("penstock quote -N 2 -t 3h --at now+1h", "The price of a slot that begins in an hour."),),
        "plan": (("penstock plan mosaic.yaml --deadline now+1d --gantt", "A plan that ends by tomorrow."),),
        "hold open": (("penstock hold open -N 2 -t 3h --at 18:00", "Two nodes from the evening on."),),
        "ledger": (("penstock ledger --account lab --budget 5000", "What the account may spend in all."),),
        "profile": (("penstock profile --runs 5 -- ./md --steps 1000", "Measure a program."),),
        "pool auto": (("penstock pool auto --max-nodes 8 -t 4h -- --mem=0", "Up to 8 nodes, by jobs of at most 4 h."),),
        "pool start": (("penstock pool start --detach", "Open a pool in the background."),),
        "pool join": (("penstock pool join --idle 5m", "The last line of a job's script."),),
        "pool submit": (("penstock pool submit -t 2m -- ./model --seed 1", "One task."),),
        "config show": (("penstock config show --origin", "Every value, and where it comes from."),),
        "pause": (("penstock pause --feature malleable --why upgrade", "Resize no job until `penstock resume`."),),
        "audit": (("penstock audit --since 7d --user alice", "What one user asked for in a week."),),
        "db backup": (("penstock db backup state.db", "Copy the state, beside a running agent too."),),
        "agent": (("penstock agent --config penstock.yaml", "With this configuration, in the foreground."),),
        "bags": (("penstock bags 3 --watch", "Bag 3, until all of its tasks are done."),),
        "config check": (("penstock config check penstock.yaml", "A file, before an agent reads it."),),
        "config schema": (("penstock config schema > penstock.schema.json", "For an editor."),),
        "dashboard": (("penstock dashboard --listen 127.0.0.1:8080", "At a port that a tunnel leads to."),),
        "db check": (("penstock db check --json", "Whether the state is whole, for a monitor."),),
        "db salvage": (("penstock db salvage penstock.db saved.db", "What can still be read, into a new file."),),
        "db vacuum": (("penstock db vacuum", "While no agent runs."),),
        "doctor": (
            ("penstock doctor -v", "Every check, also where all is well."),
            ("penstock doctor --mpi --limit 30s", "With MPI programs, on a slow controller."),
        ),
        "elastic": (
            ("penstock elastic farm.yaml", "A file with `elastic: {min: 1, max: 8, use: farm, tasks: tasks.txt}`."),
            ("penstock elastic farm.yaml --dry-run", "The job script, to look at."),
        ),
        "site-view": (("penstock site-view --age 30s", "Half as many looks, in the foreground."),),
        "env": (('eval "$(penstock env)"', "Before sbatch of an MPI program."),),
        "hold cancel": (("penstock hold cancel 4", "Give hold 4 back."),),
        "hold grant": (("penstock hold grant pst-1a2b.request", "A user's request, as an operator."),),
        "hold list": (("penstock hold list --all", "With those that are over."),),
        "hold tick": (("penstock hold tick", "A line of a crontab where no agent runs."),),
        "message list": (("penstock message list --last 5", "The latest five."),),
        "message test": (("penstock message test", "One message by every way that is configured."),),
        "off": (
            ("penstock off --dry-run", "What there is, and what would be left."),
            ('penstock off --why "maintenance" --timeout 5m', "Wait longer for what is being given back."),
        ),
        "on": (("penstock on", "After `penstock off`."),),
        "pool cancel": (("penstock pool cancel 7 8", "Two tasks."),),
        "pool drain": (("penstock pool drain 4711", "Job 4711 takes no more tasks."),),
        "pool logs": (("penstock pool logs 7 --err", "What task 7 has written to its standard error."),),
        "pool stage": (("penstock pool stage < tasks.jsonl", "In the script of a workflow's stage."),),
        "pool status": (("penstock pool status --phase failed", "With the tasks that have failed."),),
        "pool stop": (("penstock pool stop --drain", "Once every task has ended."),),
        "pool top": (("penstock pool top --interval 5s", "A look every five seconds."),),
        "profile compare": (("penstock profile compare here.yaml there.yaml", "What one machine says of another."),),
        "report": (("penstock report --since 30d", "The last month."),),
        "resume": (("penstock resume --feature malleable", "Lift this pause, and no other."),),
        "sbatch": (
            ("penstock sbatch job.sh", "As sbatch, with the #PENSTOCK lines of the script."),
            (
                "penstock sbatch --penstock-workflow=w --penstock-stage=b --penstock-after=a b.sh",
                "A stage after another.",
            ),
        ),
        "select": (
            ("penstock select md.yaml -n 1024 --explain", "Where 1024 tasks end first."),
            ("penstock select md.yaml -n 1024 --submit", "Send them there."),
        ),
        "stage": (("penstock stage near far results/ --sites sites.yaml --size 3GB", "A folder to another site."),),
        "tick": (("penstock tick -v", "What a pass does, or why it does nothing."),),
        "top": (("penstock top --interval 10s", "A look every ten seconds."),),
        "backtest": (
            ("penstock backtest site.history", "Every predictor, on all jobs or on sampled stretches."),
            (
                "penstock backtest site.history --partition gpu --stretches 0",
                "One partition, no slow learners.",
            ),
            ("penstock backtest site.history --strategies 20 --workflow mosaic.yaml", "And how to submit this chain."),
        ),
        "bench asa": (("penstock bench asa --part fig5 --out asa", "One figure, with its picture."),),
        "bench dmr": (("penstock bench dmr --part table4", "The workloads on simulated nodes."),),
        "bench provision": (("penstock bench provision --runs 5", "Some minutes instead of hours."),),
        "bench select": (("penstock bench select --quick", "A short look."),),
        "cluster down": (("penstock cluster down", "With every trace of it."),),
        "cluster env": (('eval "$(penstock cluster env)"', "Use the cluster from this shell."),),
        "cluster prepare": (("penstock cluster prepare trixie", "Build the file system once, before it is needed."),),
        "cluster run": (("penstock cluster run --as bob -- sbatch --wrap hostname", "As one of its users."),),
        "cluster status": (("penstock cluster status --json", "For a script."),),
        "cluster up": (
            ("penstock cluster up --nodes 4 --min-job-age 1m", "Four nodes that forget ended jobs soon."),
            ("penstock cluster up --name far --join near", "A second cluster, for `squeue -M`."),
        ),
        "demo": (("penstock demo --quick", "In a minute, on a simulated Slurm."),),
        "history command": (("penstock history command --since 2025-01-01", "The line of sacct that makes a dump."),),
        "history import": (
            ("penstock history import jobs.txt.gz --to site.history", "A dump that was made by that line."),
            ("penstock history import --live --since now-180days --to site.history --anonymise", "Accounting, now."),
            ("penstock history import log.swf.gz --to log.history", "A log of the Parallel Workloads Archive."),
        ),
        "history show": (("penstock history show site.history", "What it holds."),),
        "whatif": (
            ("penstock whatif site.history --nodes 420", "More nodes."),
            ("penstock whatif site.history --policy conservative", "How far a replay is from what was recorded."),
            ("penstock whatif site.history --malleable 0.2 --windows 8", "A fifth of the jobs can be resized."),
        ),
        "simulate cluster": (
            ("penstock simulate cluster --model lublin --nodes 64 --failures 40d --repair 2h", "Nodes fail."),
            ("penstock simulate cluster log.swf.gz --nodes 128 --keep-free 30d/8h/16", "A maintenance of 16 nodes."),
        ),
        "simulate model": (("penstock simulate model lublin --load 0.8 --out lublin.swf.gz", "A log of a model."),),
        "simulate sweep": (
            ("penstock simulate sweep --log log.swf.gz --policy easy --policy fcfs --out r.csv", "Two policies."),
        ),
        "simulate swf": (("penstock simulate swf log.swf.gz --procs 128 --policy conservative", "One log."),),
    }
)
"""By the words after `penstock`: command lines, each with what it does."""

"""A queue that stands still, and what tools and people ask squeue, sacct and scontrol about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock_lab.cluster import Cluster
from waiting import until

NAME = "two words|'q\" ä"
UUID = "3f2a9c1e-77aa-4b2e-9e0b-0123456789ab"


@dataclass
class Scene:
    """Jobs by what they are: `ids["held"]`."""

    cluster: Cluster
    ids: dict[str, int] = field(default_factory=dict)

    def submit(self, what: str, *words: str, who: str = "alice", wrap: str = "true") -> int:
        script = self.cluster.home(who) / "job.sh"
        argv = ["sbatch", "--parsable", "-o", "/dev/null", "-t", "30", "-N1", *words]
        done = self.cluster.run_as(who, [*argv, f"--wrap={wrap}"], check=True, cwd=script.parent)
        self.ids[what] = int(done.stdout.strip().partition(";")[0])
        return self.ids[what]

    def state(self, what: str) -> str:
        argv = ["squeue", "-h", "-t", "all", "-j", str(self.ids[what]), "-o", "%T"]
        return self.cluster.run_as("root", argv).stdout.strip()

    def until(self, what: str, *states: str, seconds: float = 90.0) -> None:
        until(lambda: self.state(what) in states, lambda: f"{what}: {self.state(what)!r}, not {states}", seconds)


def make_scene(cluster: Cluster) -> Scene:
    """Ended, running, held, dependent and array jobs of two users; comes back when nothing moves any more."""
    scene = Scene(cluster)
    scene.submit("done", "-J", UUID, "--comment", "rule_a_wildcards_b")
    scene.submit("failed", "-J", UUID, wrap="exit 3")
    scene.submit("steps", "-J", "steps", wrap="srun -n1 true; srun -n1 false; srun -n1 true")
    scene.submit("array-done", "-a", "1-3", "-J", "done array")
    scene.submit("of-bob", "-J", "bob's", who="bob")
    for what in ("done", "failed", "steps", "of-bob"):
        scene.until(what, "COMPLETED", "FAILED")
    scene.submit("long", "-J", "long", wrap="sleep 3000")
    scene.until("long", "RUNNING")
    time.sleep(1.1)
    scene.submit("running-array", "-a", "4,7", "-J", "ra", wrap="sleep 3000")
    time.sleep(1.1)
    scene.submit("held", "-H", "-J", NAME, "--comment", "line one\nline two|x\x1fy")
    scene.submit("cancelled", "-H", "-J", "cancelled")
    cluster.run_as("alice", ["scancel", str(scene.ids["cancelled"])], check=True)
    scene.submit("dependent", "-d", f"afterok:{scene.ids['held']}", "-J", "a" * 70)
    scene.submit("array", "-H", "-a", "0-19:2%3", "-J", "waiting tasks")
    scene.submit("bob-held", "-H", "-J", "(null)", who="bob")
    scene.submit("bob-array", "-H", "-a", "1-6", "-J", UUID, who="bob")
    scene.submit("begin", "-b", "2031-02-03T04:05:06", "-J", "later", "--nice=5", "-n2")
    _odd_jobs(scene)
    scene.until("array-done", *["COMPLETED\nCOMPLETED\nCOMPLETED"])
    return scene


def other_partition(cluster: Cluster) -> None:
    """Besides batch there is one called other."""
    if "other" not in cluster.run_as("root", ["sinfo", "-a", "-h", "-o", "%R"]).stdout:
        words = ["create", "partition=other", f"nodes={cluster.nodes[0]}"]
        cluster.run_as("root", ["scontrol", *words], check=True)


def _odd_jobs(scene: Scene) -> None:
    """Arrays whose tasks are not alike, a job of two parts, one that was put back, one for either of two partitions."""
    cluster, ids = scene.cluster, scene.ids
    scene.submit("changed-array", "-H", "-a", "1-6", "-J", "changed")
    scene.submit("started-array", "-a", "1-5%1", "-J", "started", wrap="sleep 3000")
    parts = ["-H", "-N1", "-t5", "-J", "first", ":", "-N1", "-t5", "-J", "second"]
    done = cluster.run_as("alice", ["sbatch", "--parsable", "-o", "/dev/null", *parts, "--wrap=true"], check=True)
    ids["parts"] = int(done.stdout.strip().partition(";")[0])
    other_partition(cluster)
    scene.submit("wanted", "-H", "-w", cluster.nodes[0], "-x", f"{cluster.nodes[1]},{cluster.nodes[2]}", "-J", "wanted")
    scene.submit("two-partitions", "-H", "-p", "batch,other", "-J", "either")
    scene.submit("other", "-H", "-p", "other", "-J", "other")
    scene.submit("again", "-J", "again", wrap="sleep 3000")
    scene.until("again", "RUNNING")
    cluster.run_as("alice", ["scontrol", "requeuehold", str(ids["again"])], check=True)
    scene.until("again", "PENDING")
    changed = ids["changed-array"]
    cluster.run_as("alice", ["scontrol", "update", f"jobid={changed}_2", "jobname=another"], check=True)
    cluster.run_as("alice", ["scontrol", "update", f"jobid={changed}_4", "timelimit=7"], check=True)
    cluster.run_as("alice", ["scancel", f"{changed}_5"], check=True)


def freeze(scene: Scene) -> None:
    """From now on no time passes for its jobs: they are suspended, and nothing begins."""
    scene.cluster.run_as("root", ["scontrol", "suspend", f"{scene.ids['started-array']}_1"], check=True)
    for what in ("long", "running-array"):
        scene.cluster.run_as("root", ["scontrol", "suspend", str(scene.ids[what])], check=True)
    scene.until("long", "SUSPENDED")
    scene.until("running-array", "SUSPENDED\nSUSPENDED")


def calls(scene: Scene) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Program, words and variables, as Alice."""
    ids = scene.ids
    done, held, array, late, failed = ids["done"], ids["held"], ids["array"], ids["dependent"], ids["failed"]
    alice = scene.cluster.users["alice"]
    bob = scene.cluster.users["bob"]
    yield from _tools(scene, alice)
    squeue = [
        "", "-a", "-h", "-l", "--long", "-l -h", "-r", "-r -h -o %i", "--array -t all", "-t all", "-t PD", "-t R",
        "-t CD", "-t F,CA", "-t running,pending", "--states=all -h", "--state all", "-t completed", "-tall -h",
        f"-u {alice}", f"-u {bob}", f"-u {alice},{bob} -t all", f"--user={alice}", "--me", "--me -t all -h -o %i",
        f"--me -u {bob}", "-u root", "-u 0",
        f"-j {held}", f"-j {held} -h -o %T", f"-j {done}", f"-j {done} -t all", f"-j {held},{late},{done} -t all",
        f"--jobs={held}", f"--job {held} -h", f"-h -j{held},{late}", f"-j {array}", f"-j {array} -r",
        f"-j {held},{held}",
        f"-j {array} -t all -o %i", f"-j {array}_4", f"-j {array}_4 -r -h", f"-j {array}_4,{array}_6",
        f"-j {ids['running-array']}", f"-j {ids['running-array']}_4", f"-j {ids['running-array']}_4 -h -o %A,%F,%K",
        f"-j {ids['array-done']} -t all", "-j 999999", f"-j 999999,{held}", "-j abc", "-j", f"-j {held} extra",
        f"-n {UUID}", f"-n {UUID.upper()} -t all", "--name=long,later", "-n nothing",
        "-p batch", "-p nowhere", "-p batch -h -t all -o %P", "-A nobody", "-q normal", "-q nothing", "-A root",
        "--noheader", "--noh", "--no", "--format=%i", "--form %i", "-o", "-o %", "-o %%i", "-o nothing", "-o x%iy%jz",
        "-o %.5i|%.3j|%2j|%30j|", "-o %5N|%.5N|%.2N|%R|%.4R|%8R|", "-o %.1l|%.1M|%1l|%.3T|%t|%.0i|",
        "-o %A,%B,%C,%c,%D,%d,%E,%e,%F,%f,%G,%g -t all", "-o %H,%h,%I,%i,%J,%j,%K,%k,%L,%l,%m -t PD",
        "-o %n,%N,%O,%o,%P,%p,%Q,%q,%r,%R,%S,%T,%t -t all", "-o %u,%U,%V,%v,%W,%w,%X,%x,%y,%Y,%Z,%z -t all",
        "-o %30k|%2k|%k| -t all", "-o %s", "-o %all", "-o %!", "-o %b",
        "-O jobid", "-O JobArrayID,StateCompact,Reason -t all", "-O name:5,state:.12,username:.3|", "-O jobid:|,name:",
        "-O timeleft:.1,timelimit:.2 -t PD", "-O nodelist:.2,reasonlist:.3", "-O nosuchfield", "-O tres -h",
        "-O numcpus,numnodes,priority,prioritylong,starttime,endtime,submittime -t all", "-O name:-5",
        "-O dependency:40,reqnodes,workdir:60,command:60,comment -t all", "-o %i -O jobid",
        "-S i", "--sort=-i", "-M all", "--start", "-s", "--json=nothing", "--nothing", "-w n1",
        "-P", "--only-job-state", "--only-job-state -h -o %i_%T -t all", "--notme -h -o %u,%i", "--usage", "-V",
        "--helpstate", "--hide", "--local", "--federation", "-L x", "-R x", "--me --notme",
    ]  # fmt: skip
    for what in ("changed-array", "started-array", "parts", "two-partitions", "other", "again"):
        number = ids[what]
        squeue += [f"-j {number}", f"-j {number} -t all -h -o %i|%A|%F|%K|%j|%T|%r|%l", f"-j {number},{done} -t all"]
        squeue += [f"-j {number} -r -t all", f"-j {number}_1 -t all", f"-j {number + 1} -t all"]
    squeue += [f"-j {ids['wanted']} -o %.1n|%1n|%.3x|%3x|%n|%x|%.20n", f"-j {ids['wanted']} -O reqnodes:.1"]
    squeue += ["-p other", "-p batch,other -o %i,%P -t all", "-p other -t all -h -r", "-n changed", "-n another -t all"]
    squeue += ["-n second", "-t CA -r", "-t S", "-t PD -r", "-t CG,CF", "-t RQ,SE", "-t se -h -o %i"]
    for line in squeue:
        yield "squeue", line.split(), {}
    yield "squeue", ["-h", "-o", "%i %j|%20j|%.70j|%k"], {}
    yield "squeue", ["-n", NAME, "-o", "%i"], {}
    yield "squeue", ["-o", ""], {}
    for words, variables in [
        ("", {"SQUEUE_FORMAT": "%i %T"}), ("-l", {"SQUEUE_FORMAT": "%i"}), ("-o %j", {"SQUEUE_FORMAT": "%i"}),
        ("", {"SQUEUE_FORMAT2": "jobid:8,name"}), ("-h", {"SQUEUE_STATES": "all"}), ("", {"SQUEUE_STATES": "CD,F"}),
        ("", {"SQUEUE_USERS": alice}), ("-u " + bob, {"SQUEUE_USERS": alice}), ("", {"SQUEUE_ARRAY": "1"}),
        ("", {"SQUEUE_ALL": "1"}), ("", {"SQUEUE_PARTITION": "nowhere"}), ("", {"SQUEUE_NAMES": UUID}),
        ("", {"SQUEUE_SORT": "i"}), ("-o %S -t all", {"SLURM_TIME_FORMAT": "%s"}), ("", {"SQUEUE_QOS": "normal"}),
        ("-o %S -t all", {"SLURM_TIME_FORMAT": "standard"}), ("", {"SLURM_BITSTR_LEN": "5"}),
        ("", {"SLURM_JOB_ID": "1"}), ("-o %V", {"TZ": "Asia/Tokyo"}),
    ]:  # fmt: skip
        yield "squeue", words.split(), variables
    sacct = [
        "", "-X", "-n", "-P", "-p", "-b", "-a", "-l", "-D", "-X -P", "-X -n -P -o jobid,state", "-n -X -o State%20",
        f"-j {done}", f"-j {done} -o State -n -P", f"-j {done},{failed}", f"-j {done} -j {failed} -X", f"-X -j {held}",
        f"-j {ids['steps']}", f"-j {ids['steps']} -P -o jobid,jobname,state,exitcode,ntasks", f"-j {ids['steps']}.0",
        f"-j {ids['array-done']}", f"-j {ids['array-done']}_2 -X -n -o jobid", f"-j {array}", f"-j {array} -X -P",
        f"-j {ids['of-bob']}", f"-j {ids['of-bob']} -P -o all", "-j 999999", f"-X -j {late}", "-j abc",
        f"-X -j {ids['cancelled']} -o state", f"-X -j {ids['cancelled']} -o state%30 -P",
        f"-n -X -o jobid%-20 -j {done}",
        f"-j {done} -o jobid%3,jobname%4,user%2,account%-5,state%5,exitcode%3",
        f"-X -j {done} -o submit,eligible,start,end,submit%8,elapsed%2,elapsedraw%-8,timelimit%3,alloccpus%1",
        f"-X -j {done} -o reqmem,reqcpus,reqtres%40,alloctres%40,nodelist,nnodes,ncpus%-4,priority,qos",
        f"-j {done} -o jobidraw,uid,gid,group,cluster,partition,workdir%60,submitline%80,flags,constraints",
        f"-X -j {done} -o totalcpu", f"-j {done} -o totalcpu,maxrss,systemcpu,avecpu", f"-j {done} -o job,st,ex",
        f"-j {done} -o a", f"-j {done} -o nothing", f"-j {done} --delimiter=; -P", f"-j {done} --delimiter ;; -p",
        f"--name {UUID}", f"-X --name={UUID} -n -P", f"--name {UUID.upper()} -X", "--name nothing",
        f"-u {alice} -X", f"-u {bob} -X", "-X -S now-1hour -P", "-X -S 00:00 -E now -n", "-X -S 2030-01-01", "-s CD -X",
        "-X -S 2020-01-01 -n -o jobid", "-X -E now", "-X -S now", "-M all -X", "-L -X", "-r batch -X", "-V",
        "--noconvert -X", "--units=M -X", "--truncate", "-N n1 -X", f"-B -j {done}", "-e", "--nothing",
        "--json=nothing",
    ]  # fmt: skip
    for what in ("changed-array", "started-array", "parts", "two-partitions", "other", "again"):
        number = ids[what]
        sacct += [
            f"-j {number} -X -o jobid%20,jobidraw,jobname,partition,state",
            f"-j {number}_1 -n",
            f"-j {number + 1}",
        ]
        sacct += [f"-j {number},{done} -P"]
    for line in sacct:
        yield "sacct", line.split(), {}
    yield "sacct", ["-X", "-j", str(done)], {"SACCT_FORMAT": "jobid,state"}
    yield "sacct", ["-X", "-j", str(done)], {"SLURM_TIME_FORMAT": "%s"}
    yield "sacct", ["-X", "-o", "start", "-j", str(done)], {"SLURM_TIME_FORMAT": "%s"}
    scontrol = [
        f"show job {done}", f"show job {held}", f"show job={held}", f"-o show job {held}", f"show job {late}",
        f"-o show job {done}", f"show jobs {done}", f"show -o job {done}", f"show job {done} -o",
        f"--oneliner show job {late}",
        f"show jobid {done}", f"sho job {done}", f"show job {ids['of-bob']}", f"-o show job {ids['bob-held']}",
        f"show job {array}", f"show job {array}_4", f"show job {ids['array-done']}",
        f"show job {ids['running-array']}_4",
        "show job", "-o show job", "show job 999999", "show job abc", f"-d show job {done}", f"-dd show job {done}",
        f"show job {done} {failed}", "show node", "show config", "-Q show job 999999", f"show job {ids['begin']}",
        "show partition", "ping", f"-a show job {done}", f"show job {ids['failed']}", f"SHOW JOB {done}", "--version",
        f"write batch_script {done} -", f"show step {done}", f"show job {ids['cancelled']}", f"listpids {done}",
    ]  # fmt: skip
    for what in ("changed-array", "started-array", "parts", "two-partitions", "other", "again"):
        scontrol += [f"show job {ids[what]}", f"-o show job {ids[what] + 1}"]
    for line in scontrol:
        yield "scontrol", line.split(), {}


def _tools(scene: Scene, user: str) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    for program, words in tool_calls(scene, user):
        yield program, words, {}


def tool_calls(scene: Scene, user: str) -> list[tuple[str, list[str]]]:
    """What the tools themselves ask, word by word, about jobs that are there."""
    ids = scene.ids
    done, held, failed, late = (ids[what] for what in ("done", "held", "failed", "dependent"))
    hour = time.strftime("%Y-%m-%dT%H:00", time.localtime(time.time() - 3600))
    aiida = "^^^".join(["%i", "%t", "%r", "%B", "%u", "%D", "%C", "%R", "%P", "%l", "%M", "%S", "%j", "%V"])
    snakemake = ["-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State", "--starttime", hour]
    found = [
        ("squeue", ["--noheader", "-o", "%i %t", "-t", "all", "-u", user]),  # Nextflow
        ("squeue", ["--noheader", "-o", "%i %t", "-t", "all", "-p", "batch", "-u", user]),
        ("sacct", [*snakemake, "--endtime", "now", "--name", UUID]),  # Snakemake
        ("squeue", ["--format=%i|%T", "--states=all", "--noheader", "--name", UUID]),
        ("sacct", ["-X", "--noheader", "--format=jobid,state%20", "--job", f"{done},{failed}"]),  # Parsl
        ("squeue", ["--noheader", "--format=%i %t", "--job", f"{held},{late}"]),
        ("squeue", ["-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me"]),  # PSI/J
        ("squeue", ["--me", "-o", "%i", "-h", "-r", "-t", "all"]),
        ("sacct", ["-o", "JobID,State,NodeList", "--parsable2", "-j", str(done), "-j", str(failed)]),  # submitit
        ("squeue", ["--noheader", "-o", aiida, f"--jobs={held},{late}"]),  # AiiDA
        ("squeue", ["--noheader", "-o", aiida, f"--user={user}"]),
        ("squeue", ["-h", "-j", f"{held},{late}"]),  # Cylc
        ("squeue", ["-h", "-j", str(held), "-o", "%T %B"]),  # batchspawner
        ("squeue", []),  # people
        ("squeue", ["-u", user]),
        ("squeue", ["--me"]),
        ("squeue", ["-l"]),
        ("squeue", ["-j", str(held), "-h", "-o", "%T"]),
        ("sacct", ["-j", str(done), "-o", "State", "-n", "-P"]),
        ("sacct", ["-X"]),
        ("scontrol", ["show", "job", str(late)]),
        ("scontrol", ["-o", "show", "job", str(late)]),
    ]
    if scene.cluster.slurm_version >= "24.05":
        found.append(("squeue", ["--noheader", "-o", "%i %t", "-t", "all", "--only-job-state"]))
    return found

"""What a rule's shell command does as a task of a pool, and by Snakemake itself: the same."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.timeout(300, func_only=True)]

SNAKEFILE = r'''
import os
shell.prefix("set -eu; PREFIXED='p q'; ")
os.environ["FROM_SNAKEFILE"] = "set here"
NAME = "a value of the Snakefile's"
# Snakemake itself cannot hand these on to a second Snakemake.
ODD = [] if "second" in config else ['say "x"', "back\\slash"]
ODD += ["it's a b;$HOME", "ünï(*)"]

rule all:
    input:
        expand("odd/{w}.out", w=ODD), "multi", "values", "quoted", "params", "none/deep/down", "flag", "dir", "ended",
        "executable", "suffix", "lists"

wildcard_constraints: w="[^/]+"

rule odd:
    output: "odd/{w}.out"
    log: "logs/{w}/one.log"
    shell: "printf '%s\n' {wildcards.w:q} > {output:q}; echo to the log > {log:q}"

rule multi:
    output: "multi"
    shell:
        """
        # a comment
        for i in 1 2 3; do
            echo "line $i" >> {output}
        done
        cat <<END >> {output}
        here {NAME}
END
        awk '{{print $1}}' <<< "x y" >> {output}
        echo "$PREFIXED $0 $# $-" >> {output}
        """

rule values:
    output: "values"
    threads: 2
    resources: mem_mb=700, runtime="3m", own="a text"
    shell:
        "echo {threads} {resources.mem_mb} {resources.runtime} {resources.own} {rule} {jobid} > {output};"
        "echo $OMP_NUM_THREADS $MKL_NUM_THREADS $TMPDIR $TEMP ${{OWN_VARIABLE-unset}} $FROM_SNAKEFILE >> {output};"
        "pwd >> {output}"

rule quoted:
    input: expand("odd/{w}.out", w=ODD)
    output: "quoted"
    shell: "for f in {input:q}; do echo \"$f\"; done > {output}; wc -l {input:q} | tail -1 >> {output}"

rule params:
    input: a="multi", b=["multi", "values"]
    output: "params"
    params: x=lambda wc, input: len(input.b), y={"k": "v w"}, z=["1", "2 3"], s="$HOME 'q'"
    shell: "echo {params.x} {params.y[k]:q} {params.z} {params.s:q} {input.a} {input.b[1]} {config} > {output}"

rule deep:
    output: "none/deep/down"
    shell: "echo x > {output}"

rule flag:
    output: touch("flag")
    shell: "true | true"

rule directory:
    output: directory("dir")
    shell: "mkdir {output}; echo y > {output}/file"

rule strict:
    output: "ended"
    shell: "(set +e; false | true; echo $?) > {output}"

rule executable:
    output: "executable"
    resources: shell_exec="sh"
    shell: "echo $0 > {output}"

rule suffix:
    output: "suffix"
    shell: "seq 3 | " "head -1" " > " + "{output}"

rule lists:
    output: first="lists", more=["lists.1", "lists.2"]
    shell: "echo {output.more[0]} {output.first} {output} > {output.first}; touch {output.more}"
'''


def contents(snakes) -> dict[str, str]:
    return {
        str(path.relative_to(snakes.work)): path.read_text()
        for path in sorted(snakes.work.rglob("*"))
        if path.is_file() and ".snakemake" not in path.parts
    }


def test_commands_do_what_they_do_under_snakemake_itself(snakes):
    snakes.write(SNAKEFILE)
    config = ("--config", "key=value", "--verbose")
    own = {"OWN_VARIABLE": "of the  submitter"}
    snakes.make(*config, executor="local", **own)
    wanted = contents(snakes)
    snakes.make("--delete-all-output", executor="local")
    for name in ("logs", "odd", "none"):
        assert not any((snakes.work / name).rglob("*.out")), "all is made anew"
    said = snakes.make(*config, **own)
    assert said.count("a second Snakemake runs job") == 0, said
    assert contents(snakes) == wanted
    snakes.idle()
    assert len(snakes.tasks()) == len(wanted_tasks(said))


@pytest.mark.long
def test_commands_do_what_they_do_in_a_second_snakemake(snakes):
    snakes.write(SNAKEFILE.replace("{jobid}", ""))  # a second Snakemake counts its jobs itself
    config = ("--config", "second=1", "--verbose")
    snakes.make(*config)
    wanted = contents(snakes)
    snakes.make("--delete-all-output", *config[:2], executor="local")
    said = snakes.make(*config, "--penstock-inner", "always")
    assert said.count("a second Snakemake runs job") == len(wanted_tasks(said))
    assert contents(snakes) == wanted


def wanted_tasks(said: str) -> list[str]:
    """Lines with which Snakemake begins a job that is not local."""
    return [line for line in said.splitlines() if line.startswith("rule ")]


SECOND = {
    "run": 'run: open(output[0], "w").write("x")',
    "script": 'script: "script.py"',
    "shadow": 'shadow: "minimal"\n    shell: "echo x > {output}"',
    "benchmark": 'benchmark: "bench.tsv"\n    shell: "echo x > {output}"',
    "tmpdir": 'resources: tmpdir="."\n    shell: "echo $TMPDIR > {output}"',
    "of the node": 'shell: "echo {resources.tmpdir} > {output}"',
    "long": 'params: x="x" * 70000\n    shell: "echo {params.x} | wc -c > {output}"',
}


USUAL = ("script",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in USUAL else pytest.mark.long) for n in SECOND])
def test_what_is_more_than_a_shell_command_is_run_by_a_second_snakemake(snakes, name):
    snakes.write(f'rule one:\n    output: "out"\n    {SECOND[name]}\n')
    snakes.write("from pathlib import Path\nPath(snakemake.output[0]).write_text('x')\n", "script.py")
    said = snakes.make("--verbose")
    assert said.count("a second Snakemake runs job") == 1, said
    assert snakes.read("out").strip() in ("x", ".", "70001", str(snakes.folder))
    snakes.idle()

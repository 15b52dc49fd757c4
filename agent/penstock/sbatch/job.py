"""A job as its owner asks sbatch for it, read once: the words, the script, and what `#PENSTOCK` lines say."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from dmr.hydra import complaint
from penstock.errors import UserError
from penstock.fronts.programs.sbatch import read_script
from penstock.fronts.programs.script import PipedScript, order_of, script_lines
from penstock.sbatch.directives import Request, own_options, read_directives, request
from penstock.slurm import option_words
from penstock.slurm.option_words import SbatchWords, read_words, script_words
from penstock.values.lines import split_lines
from penstock.workflow.state import Order

__all__ = ["SbatchJob", "read_again", "read_job"]


@dataclass(frozen=True, slots=True)
class SbatchJob:
    """`line` and `script` are sbatch's options on the command line and in the script, `asked` what Penstock's own say.

    `piped`: the script, where it came through a pipe. `stdin`, `workdir`: the script and the folder of a job that is
    submitted again; None: as this process has them.
    """

    line: SbatchWords
    script: SbatchWords
    asked: Request
    piped: PipedScript | None = None
    stdin: bytes | None = None
    workdir: str | None = None

    def has(self, *names: str) -> bool:
        """Whether any of these options of sbatch is there."""
        return self.line.has(*names) or self.script.has(*names)

    def value(self, name: str) -> str | None:
        """The value of an option: the command line's, else the script's."""
        return self.line.value(name) or self.script.value(name)

    @property
    def array(self) -> str | None:
        """The tasks of an array, as its owner has written them."""
        return option_words.value_of("array", self.line, self.script, os.environ)

    @property
    def exported(self) -> str:
        """What of the environment sbatch is to hand on."""
        return option_words.value_of("export", self.line, self.script, os.environ) or "ALL"

    @property
    def exports_all(self) -> bool:
        """Whether that is all of it, with whatever else."""
        return option_words.exports_all(self.exported.split(","))

    @property
    def quiet(self) -> bool:
        """Whether sbatch is asked on the command line to say nothing."""
        return self.line.has("quiet")

    @property
    def loud(self) -> SbatchJob:
        """The same, where the command line does not ask sbatch to say nothing."""
        return replace(self, line=self.line.without("quiet"))

    @property
    def several(self) -> bool:
        """Whether it has several components."""
        return self.line.several or self.script.several

    @property
    def elsewhere(self) -> bool:
        """Whether it is for another cluster, or may be."""
        return option_words.elsewhere(self.line, self.script, os.environ)

    @property
    def followable(self) -> bool:
        """Whether sbatch will name one job of this cluster: with -Q it says nothing."""
        return not (self.several or self.elsewhere or self.has("quiet"))

    @property
    def name(self) -> str:
        """What Slurm calls it."""
        return option_words.job_name(self.line, self.script, os.environ)

    @property
    def stage(self) -> str | None:
        """What it is called as a stage, where nobody says so."""
        given = option_words.given_name(self.line, self.script, os.environ)
        return given or (Path(self.line.script).stem if self.line.script else None)

    @property
    def dependency(self) -> str:
        """What it depends on, as its owner has written it; "" for nothing."""
        return (self.line if self.line.has("dependency") else self.script).value("dependency") or ""

    @property
    def folder(self) -> str | None:
        """The folder that it runs in, where its owner says so."""
        return self.value("chdir")

    @property
    def known_script(self) -> SbatchWords | None:
        """The options in the script, for a job that can be looked for; None where sbatch alone can read it, too."""
        if self.several or self.elsewhere:
            return None
        if self.piped is not None:
            return None if self.piped.descriptor is None else self.script
        from_input = self.line.script is None and not self.line.has("wrap")
        return None if from_input and self.stdin is None else self.script

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of this process that sbatch has to find."""
        return () if self.piped is None else self.piped.passed_on

    def order(self, *size: str) -> dict[str, object]:
        """How it can be submitted again, with these options of its size (`penstock.workflow.state.Order`)."""
        words = self.line.words(*size)
        return order_of(words, self.line, self.script, self.piped, os.environ, self.workdir, self.stdin)


def read_job(line: SbatchWords) -> SbatchJob:
    """The job of a command line. Raises UserError, which names the option or the script's line."""
    found = read_script(line)
    job = SbatchJob(line, found.options, Request(), found.piped)
    source = line.script or ("--wrap" if found.piped is None else "standard input")
    asked = request(own_options(line.ours), read_directives(found.lines, source), job.stage)
    if asked.checkpoint is not None:
        text = "\n".join(found.lines) or line.value("wrap") or ""
        if why := complaint(asked.checkpoint.signal, text, os.environ):
            raise UserError(f"{source}: checkpoint: {why}")
    return replace(job, asked=asked)


def read_again(order: Order, asked: Request) -> SbatchJob:
    """A job that was submitted before."""
    line = read_words(order.words)
    if order.script is not None:
        lines = split_lines(order.script)
    else:
        lines = script_lines(line.script, line.value("chdir") or order.workdir) if line.script else []
    stdin = None if order.script is None else order.script.encode()
    return SbatchJob(line, script_words(lines), asked, None, stdin, order.workdir or None)

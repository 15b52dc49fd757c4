"""Reads a workflow file: YAML as below, or WfFormat (`wfformat`). Every complaint is one line (`UserError`).

    name: mosaic
    partition: batch          # optional, as are account, qos, workdir, environment (a map of texts)
    shell: plain              # what a failed line means (`model.SHELLS`); `strict` if left out
    stages:
      - name: project
        nodes: 4
        time: 30m             # the limit: 90 (seconds), 90s, 30m, 2h, 1h30m, 00:30:00, 1-02:00:00
        expect: 12m           # expected run time; if left out what earlier runs took, at first the limit
        run: srun ./project   # shell command(s); or `script: FILE`, which must be there
        retries: 1            # how often it is tried again if it fails; optional, 0
        took: [9m, 11m, 26m]  # optional: run times of earlier runs, from which a plan chooses the length of its slot
        produces: 3 GB        # what each stage after it needs of it, where stages run at different sites; optional
        memory: 16G           # as sbatch's --mem; so are gpus, gres, ntasks, cpus (per task), constraint, output,
                              # error, array, licenses; `workdir` is of this stage alone
        sbatch: [--exclusive] # other options of sbatch
      - name: merge
        after: project        # optional: the stage before it; a list is allowed, [] is none
        nodes: 1
        time: 10m
        run: ./merge

`#SBATCH` lines at the head of `run` or of a script count where the file says nothing else.
Scalars are read as YAML 1.2 does (`no` is a text, `1:30` is not a number); doubled keys are refused. Names,
`environment`, `constraint` and `array` are the text as it is written (`1.10`, `007`); elsewhere a number that could
be read in two ways is refused where a text is meant.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from penstock.errors import UserError
from penstock.slurm.hostlist import ParseError
from penstock.slurm.option_words import head_lines
from penstock.slurm.parse import parse_limit
from penstock.values.documents import MAX_BYTES, as_written, flat, show
from penstock.values.lines import split_lines
from penstock.values.models import (
    Bytes,
    Content,
    Duration,
    Entry,
    Listed,
    VariableName,
    kind,
    read_as,
    text,
    texts,
    whole,
)
from penstock.values.yaml12 import parse_yaml
from penstock.workflow.asks import FIELDS, Asks, ScriptSays, script_says, with_raw
from penstock.workflow.files.checks import check_against
from penstock.workflow.files.wfformat import Packing, from_wfformat, is_wfformat
from penstock.workflow.model import NAME_PATTERN, Stage, Workflow

__all__ = ["check_against", "load_workflow", "parse_workflow"]

_MAX_NODES: Final = 10_000_000
_LONGEST_HEAD: Final = 1_000_000  # bytes of a script that are looked through for #SBATCH lines
_MAX_JSON_BYTES: Final = 500_000_000


def _name(value: object) -> str | None:
    name = as_written(value)
    return name if name is not None and NAME_PATTERN.fullmatch(name) else None


def _written(value: object) -> str | None:
    """A text for sbatch, or a number as it is written."""
    word = as_written(value)
    return word.strip() if word is not None and word.strip() and word.isprintable() else None


def _word(value: object) -> str | None:
    """A text for sbatch, or a whole number that can be read in one way only."""
    return _written(value) if isinstance(value, str) or (type(value) is int and abs(value) < 10**18) else None


StageName = Annotated[str, texts(_name, "1 to 40 of A-Z a-z 0-9 _ . -")]
Command = Annotated[
    str, kind(lambda c: c if isinstance(c, str) and c.strip() and "\0" not in c else None, "a shell command")
]
Line = Annotated[str, text()]
Word = Annotated[str, texts(_word, "a text, not empty")]
Written = Annotated[str, texts(_written, "a text, not empty")]


class _Stage(Entry):
    name: StageName
    nodes: Annotated[int, whole(1, _MAX_NODES)] | None = None
    time: Duration | None = None
    expect: Duration | None = None
    run: Command | None = None
    script: Annotated[str, text("the name of a file")] | None = None
    after: Annotated[list[StageName], Listed] | None = None
    retries: Annotated[int, whole(0, 100)] = 0
    took: Annotated[list[Duration], Listed] = Field(default_factory=list, max_length=1000)
    produces: Bytes | None = None
    workdir: Line | None = None
    memory: Word | None = None
    gpus: Word | None = None
    gres: Word | None = None
    ntasks: Word | None = None
    cpus: Word | None = None
    constraint: Written | None = None
    output: Word | None = None
    error: Word | None = None
    array: Written | None = None
    licenses: Word | None = None
    partition: Word | None = None
    sbatch: Annotated[list[Word], Listed] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _runs(self) -> Self:
        if self.run is not None and self.script is not None:
            raise ValueError("has both 'run' and 'script'; one of them says what to run")
        if self.run is None and self.script is None:
            raise ValueError("the key 'run' is missing")
        return self


class _Workflow(Entry):
    name: StageName
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    workdir: Line | None = None
    environment: dict[VariableName, Content] = Field(default_factory=dict)
    shell: Literal["strict", "plain"] | None = None
    stages: Annotated[list[_Stage], Field(max_length=1000)]


def load_workflow(path: str | Path, packing: Packing | None = None) -> Workflow:
    """Read a workflow file; `packing` is for WfFormat. Raises UserError if it is missing, unreadable, too big, or wrong
    in any way. The scripts that it names are looked for beside it. `-` is standard input, and has no scripts."""
    if str(path) == "-":
        return parse_workflow(sys.stdin.buffer.read(_MAX_JSON_BYTES + 1), "standard input", packing)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
                data += file.read(_MAX_JSON_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path}: cannot be read: {why}") from error
    return parse_workflow(data, str(path), packing, Path(path).parent)


def parse_workflow(
    data: bytes | str, source: str = "workflow.yaml", packing: Packing | None = None, folder: Path | None = None
) -> Workflow:
    """The workflow in `data`; `source` is the name for messages. Raises UserError, and nothing else, if it is wrong.

    Scripts are looked for in `folder`; None: they are not allowed.
    """
    try:
        instance = _json(data)
        if is_wfformat(instance):
            assert isinstance(instance, dict)
            return from_wfformat(instance, source, packing)
        document = parse_yaml(data, "workflow")
        top = read_as(_Workflow, document)
        stages, scripts = _stages(top, folder)
        partition, stages = _in_partitions(top.partition, stages)
        workflow = Workflow(
            name=top.name,
            stages=stages,
            partition=partition,
            account=_common("account", top.account, scripts),
            qos=_common("qos", top.qos, scripts),
            workdir=top.workdir,
            environment=MappingProxyType(top.environment),
            source=source,
            shell=top.shell or "strict",
            notices=_notices(top, scripts),
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
    return workflow


def _json(data: bytes | str) -> object:
    """What is in it if it is JSON: all WfFormat files are, and some YAML files."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n") if isinstance(data, bytes) else data[:64].lstrip().encode()
    if start[:1] != b"{":
        return None
    if len(data) > _MAX_JSON_BYTES:
        raise UserError(f"is larger than {_MAX_JSON_BYTES // 1_000_000} MB, which no workflow needs")
    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except (ValueError, RecursionError) as error:
        if len(data) <= MAX_BYTES and b"schemaVersion" not in (data if isinstance(data, bytes) else data.encode()):
            return None  # YAML may be written with braces, too
        raise UserError(f"is not valid JSON: {flat(error)}") from error


def _stages(top: _Workflow, folder: Path | None) -> tuple[tuple[Stage, ...], list[ScriptSays]]:
    """The stages, and what the scripts of each ask for, with less weight than what the file says. One without `after`
    comes after the one before it, and needs what those that it comes after produce."""
    entries = top.stages
    made = {entry.name: entry.produces for entry in entries if entry.produces is not None}
    stages: list[Stage] = []
    scripts: list[ScriptSays] = []
    for i, entry in enumerate(entries):
        where = f"stages[{i}]"
        command = entry.run or ""
        # Below its head `run` may well write a job script of another system.
        lines = [line for _, line in head_lines(split_lines(command))]
        if entry.script is not None:
            command, lines = _script(entry.script, f"{where}.script", folder)
        says = _said(lines, f"{where}.{'run' if entry.script is None else 'script'}")
        if top.partition is not None:
            says = replace(says, asks=replace(says.asks, partition=""))
        nodes, limit = _nodes(entry, says, where), _limit(entry, says, where)
        after = tuple(entry.after) if entry.after is not None else (stages[-1].name,) if stages else ()
        usual = math.fsum(entry.took) / len(entry.took) if entry.took else limit
        stages.append(
            Stage(
                name=entry.name,
                nodes=nodes,
                time_limit=limit,
                run_time=usual if entry.expect is None else entry.expect,
                command=command,
                after=after,
                retries=entry.retries,
                guessed=entry.expect is None and not entry.took,
                took=tuple(entry.took),
                inputs=tuple(made.get(parent, 0.0) for parent in after) if made.keys() & set(after) else (),
                workdir=entry.workdir or says.said.get("workdir"),
                asks=_asks(entry, says, where),
                script=entry.script is not None,
            )
        )
        scripts.append(says)
    return tuple(stages), scripts


def _said(lines: list[str], where: str) -> ScriptSays:
    try:
        return script_says(lines)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _asks(entry: _Stage, says: ScriptSays, where: str) -> Asks:
    """What the stage asks for: its keys count before its `sbatch`, and that before its script's lines."""
    try:
        asks = with_raw(says.asks, [word for line in entry.sbatch for word in shlex.split(line)])
    except (UserError, ValueError) as error:
        raise UserError(f"{where}.sbatch: {error}") from error
    keys: dict[str, Any] = {key: value for key in FIELDS.values() if (value := getattr(entry, key, None)) is not None}
    return replace(asks, **keys) if keys else asks


def _nodes(entry: _Stage, says: ScriptSays, where: str) -> int:
    if entry.nodes is not None:
        return entry.nodes
    said = says.said.get("nodes")
    if said is None:
        raise UserError(f"{where}: the key 'nodes' is missing (the script has no #SBATCH --nodes either)")
    if not said.isdecimal() or not 1 <= int(said[:9]) <= _MAX_NODES:
        raise UserError(f"{where}: #SBATCH --nodes must be one number of nodes here, not {said[:60]!r}; or use 'nodes'")
    return int(said)


def _limit(entry: _Stage, says: ScriptSays, where: str) -> float:
    if entry.time is not None:
        return entry.time
    said = says.said.get("time")
    if said is None:
        raise UserError(f"{where}: the key 'time' is missing (the script has no #SBATCH --time either)")
    try:
        limit = parse_limit(said)
    except ParseError as error:
        raise UserError(f"{where}: #SBATCH --time: {said[:60]!r} is no time limit; or use 'time'") from error
    if limit is None:
        raise UserError(f"{where}: #SBATCH --time must be a time here, not {said[:60]!r}; or use 'time'")
    return limit


def _in_partitions(value: str | None, stages: tuple[Stage, ...]) -> tuple[str | None, tuple[Stage, ...]]:
    """The workflow's partition, which is that of all its stages where the file says none, and the stages, of which only
    those have one that are elsewhere."""
    found = {stage.asks.partition for stage in stages}
    common = found.pop() if value is None and len(found) == 1 else value
    if not common:
        return value, stages
    freed = [
        replace(stage, asks=replace(stage.asks, partition="")) if stage.asks.partition == common else stage
        for stage in stages
    ]
    return common, tuple(freed)


def _common(key: str, value: str | None, scripts: list[ScriptSays]) -> str | None:
    """What the file says, or else all scripts alike: a workflow is of one account and QOS."""
    found = {says.said.get(key) for says in scripts}
    if value is not None or found <= {None}:
        return value
    if len(found) > 1:
        i = next(i for i, says in enumerate(scripts) if says.said.get(key) is not None)
        told = scripts[i].said[key]
        raise UserError(f"stages[{i}]: #SBATCH --{key}={told}, which not all stages say: say '{key}' in the file")
    return found.pop()


def _notices(top: _Workflow, scripts: list[ScriptSays]) -> tuple[str, ...]:
    found = []
    if top.shell is None:
        found.append(
            "'shell' is not said, so the first line that fails ends a stage, as ever (set -eo pipefail); say "
            "'shell: strict' to keep it so, or 'shell: plain' for what sbatch does: the last line counts"
        )
    for entry, says in zip(top.stages, scripts, strict=True):
        if says.left_out:
            found.append(f"stage {entry.name}: {', '.join(says.left_out)} in its #SBATCH lines is left to the agent")
    return tuple(found)


def _script(value: str, where: str, folder: Path | None) -> tuple[str, list[str]]:
    """The command that runs a script, which has to be there and begin as scripts do, and the lines of its
    beginning.

    As with sbatch it need not be executable.
    """
    if folder is None:
        raise UserError(f"{where}: there is no file to look for {show(value)} beside; use 'run'")
    path = folder / value
    try:
        with path.open("rb") as file:
            start = file.read(_LONGEST_HEAD)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{where}: {path} cannot be read: {why}") from error
    if start[:2] != b"#!":
        raise UserError(f"{where}: {path} is no script: its first line must start with #!")
    lines = split_lines(start.decode(errors="replace"))
    words = [str(path.absolute())]
    if not os.access(path, os.X_OK):
        words = [*lines[0][2:].strip().split(maxsplit=1), *words]
    return shlex.join(words), lines

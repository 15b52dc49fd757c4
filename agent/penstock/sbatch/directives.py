"""`#PENSTOCK` lines of a job script, and what they and our options ask for together. Pure.

    #PENSTOCK workflow=mosaic stage=merge after=project,mask
    #PENSTOCK expect=40m malleable=2:32:8:2
    #PENSTOCK elastic=1:8
    #PENSTOCK moldable=2:8h,4:4h30m,8:2h30m checkpoint=USR1:state.dat

Lines count up to the first that is neither empty nor a comment, as for `#SBATCH`. What the command line says counts
before what the script says.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dmr.elastic import plans
from penstock.errors import UserError
from penstock.resize.waiting.model import Checkpoint, read_checkpoint, read_shapes
from penstock.slurm.option_words import OURS, head_lines
from penstock.values.documents import show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.workflow.model import NAME_PATTERN

__all__ = ["KEYS", "Request", "Said", "own_options", "parse_more", "read_directives", "request"]

KEYS: Final = (
    "workflow", "stage", "after", "checkpoint", "elastic", "expect", "malleable", "moldable", "more", "strategy"
)  # fmt: skip
"""What may be said, in lines of the script and as options."""
_LINE: Final = re.compile(r"#PENSTOCK(?=\s|$)(.*)", re.DOTALL)
_MOST: Final = 2**31 - 1
_PROCESSES: Final = re.compile(r"[0-9]{1,10}", re.ASCII)  # more digits than int() reads are none


@dataclass(frozen=True, slots=True)
class Said:
    """A value and where it stands, for messages."""

    value: str
    where: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a job is: a `stage` of a `workflow` that runs `after` others of it, and how long it should run (s).

    Without a workflow it is an ordinary job. `malleable` is "minimum:maximum:preferred:factor", as far as given,
    `elastic` "minimum:maximum:preferred" in nodes, `moldable` "nodes:limit,nodes:limit...", `checkpoint` how it saves.
    `chosen`: somebody has given the stage its name. `more`: for so long (s) more stages may come; 0: this is the last.
    """

    workflow: str | None = None
    stage: str | None = None
    after: tuple[str, ...] = ()
    expect: float | None = None
    strategy: str = "asa"
    malleable: str | None = None
    elastic: str | None = None
    moldable: str | None = None
    checkpoint: Checkpoint | None = None
    chosen: bool = True
    more: float | None = None


def read_directives(lines: Iterable[str], source: str) -> dict[str, Said]:
    """The `#PENSTOCK` values of a script. Raises UserError naming its line."""
    found: dict[str, Said] = {}
    for number, line in head_lines(lines):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        where = f"{source}:{number}"
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError as e:
            raise UserError(f"{where}: #PENSTOCK cannot be read: {e}") from e
        if not words:
            raise UserError(f"{where}: #PENSTOCK says nothing; it takes {', '.join(f'{key}=' for key in KEYS)}")
        for word in words:
            key, equals, value = word.partition("=")
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, 1)
                hint = f"; did you mean {near[0]}=?" if near else ""
                known = ", ".join(f"{name}=" for name in KEYS)
                raise UserError(f"{where}: #PENSTOCK takes {known} and not {show(word)}{hint}")
            if not equals:
                raise UserError(f"{where}: #PENSTOCK {key} needs a value: {key}=...")
            if key in found:
                raise UserError(f"{where}: #PENSTOCK {key}= was given in {found[key].where} already")
            found[key] = Said(value, where)
    return found


def own_options(options: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Penstock's own options of a command line (`SbatchWords.ours`), by their names. Raises UserError for a wrong
    one."""
    found: dict[str, str] = {}
    for key, value in options:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {OURS}{near[0]}?" if near else ""
            raise UserError(f"{OURS}{key} is not an option (there are: {', '.join(KEYS)}){hint}")
        if value is None:
            raise UserError(f"{OURS}{key} needs a value: {OURS}{key}=...")
        if key in found:
            raise UserError(f"{OURS}{key} is given twice")
        found[key] = value
    return found


def request(ours: Mapping[str, str], script: Mapping[str, Said], name: str | None) -> Request:
    """What the command line (`ours`) and the script ask for together; `name` is the stage's where neither names it.

    Raises UserError naming the option or the line.
    """
    said = {**script, **{key: Said(value, f"--penstock-{key}") for key, value in ours.items()}}
    workflow, stage = said.get("workflow"), said.get("stage")
    chosen = stage is not None or workflow is None
    for named in (workflow, stage):
        if named is not None:
            _check_name(named.value, named.where)
    if workflow is None:
        for key in ("stage", "after", "expect", "more", "strategy"):
            if key in said:
                raise UserError(f"{said[key].where}: {key}= is about a workflow: workflow=NAME is missing")
    elif stage is None:
        if name is None or not NAME_PATTERN.fullmatch(name):
            raise UserError(f"{workflow.where}: workflow={workflow.value} needs a stage=NAME")
        stage = Said(name, workflow.where)
    return Request(
        workflow=workflow.value if workflow else None,
        stage=stage.value if stage else None,
        after=_after(said.get("after"), stage.value if stage else ""),
        expect=_expect(said.get("expect")),
        strategy=_strategy(said.get("strategy")),
        malleable=_malleable(said.get("malleable")),
        elastic=_elastic(said.get("elastic"), said.get("malleable")),
        moldable=_moldable(said),
        checkpoint=_checkpoint(said),
        chosen=chosen,
        more=None if (more := said.get("more")) is None else parse_more(more.value, f"{more.where}: more"),
    )


def _check_name(value: str, where: str) -> None:
    if not NAME_PATTERN.fullmatch(value):
        raise UserError(f"{where}: a name has 1 to 40 of A-Z a-z 0-9 _ . -, unlike {value[:60]!r}")


def _after(said: Said | None, stage: str) -> tuple[str, ...]:
    if said is None:
        return ()
    names = tuple(said.value.split(","))
    for name in names:
        _check_name(name, f"{said.where}: after")
        if name == stage:
            raise UserError(f"{said.where}: after: {stage!r} cannot come after itself")
    if len(set(names)) < len(names):
        raise UserError(f"{said.where}: after: names a stage twice: {show(said.value)}")
    return names


def _expect(said: Said | None) -> float | None:
    if said is None:
        return None
    seconds = parse_duration(said.value)
    if seconds is None:
        raise UserError(f"{said.where}: expect: must be {DURATION_FORMS}, not {show(said.value)}")
    return seconds


def parse_more(text: str, where: str) -> float:
    """For how long (s) more stages of a workflow may come, as a user says it. Raises UserError."""
    seconds = 0.0 if text == "no" else parse_duration(text)
    if seconds is None:
        raise UserError(f"{where}: must be `no` (that was all) or {DURATION_FORMS}, not {show(text)}")
    return seconds


def _strategy(said: Said | None) -> str:
    """Which of them there are, and which of these serve jobs that their owner submits, is the agent's to say."""
    if said is None:
        return "asa"
    if not NAME_PATTERN.fullmatch(said.value):
        raise UserError(f"{said.where}: strategy: must be the name of one, such as asa, not {show(said.value)}")
    return said.value


def _elastic(said: Said | None, malleable: Said | None) -> str | None:
    if said is None:
        return None
    if malleable is not None:
        raise UserError(f"{said.where}: elastic: the job is malleable already ({malleable.where}); say one of them")
    try:
        plans.sizes(said.value)
    except ValueError as e:
        raise UserError(f"{said.where}: elastic: {e}") from None
    return said.value


def _moldable(said: Mapping[str, Said]) -> str | None:
    found = said.get("moldable")
    if found is None:
        return None
    for other in ("malleable", "elastic", "workflow"):
        if other in said:
            raise UserError(f"{found.where}: moldable: does not go with {other}= ({said[other].where})")
    try:
        read_shapes(found.value)
    except UserError as e:
        raise UserError(f"{found.where}: moldable: {e}") from None
    return found.value


def _checkpoint(said: Mapping[str, Said]) -> Checkpoint | None:
    found = said.get("checkpoint")
    if found is None:
        return None
    if "moldable" not in said:
        raise UserError(f"{found.where}: checkpoint= is about moldable jobs: moldable=NODES:TIME,... is missing")
    try:
        return read_checkpoint(found.value)
    except UserError as e:
        raise UserError(f"{found.where}: checkpoint: {e}") from None


def _malleable(said: Said | None) -> str | None:
    if said is None:
        return None
    where = f"{said.where}: malleable"
    parts = said.value.split(":")
    if not 2 <= len(parts) <= 4 or not all(_PROCESSES.fullmatch(p) and 1 <= int(p) <= _MOST for p in parts):
        raise UserError(
            f"{where}: must be min:max[:preferred[:factor]] in processes, such as 2:32:8:2, not {said.value[:60]!r}"
        )
    least, most = int(parts[0]), int(parts[1])
    if least > most:
        raise UserError(f"{where}: the minimum {least} is above the maximum {most}")
    if len(parts) > 2 and not least <= int(parts[2]) <= most:
        raise UserError(f"{where}: the preferred size {parts[2]} is outside {least}..{most}")
    return said.value

"""A series of windows on file: what was measured stays, and what was cut off is measured again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from penstock_lab.paired.series import keep, series_command, taken_up


@dataclass(frozen=True)
class OneNumber:
    machine: str
    seed: int
    number: int

    def told(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> OneNumber:
        return cls(**told)


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    out = tmp_path / "windows"
    assert taken_up(out, OneNumber.read) == []
    whole = [OneNumber("ctc", 1, number) for number in range(3)]
    for window in whole:
        keep(out, window)
    out.write_text(out.read_text()[:-9])
    assert taken_up(out, OneNumber.read) == whole[:2]
    keep(out, whole[2])
    assert taken_up(out, OneNumber.read) == whole


def test_a_second_run_goes_on_behind_the_first(tmp_path: Path) -> None:
    asked: list[tuple[str, int, frozenset[int]]] = []

    def measured(machine: str, seed: int, windows: int, done: frozenset[int], at_once: int) -> Any:
        asked.append((machine, seed, done))
        for number in range(windows):
            if number not in done:
                yield OneNumber(machine, seed, number)
                if len(asked) == 2:
                    raise KeyboardInterrupt

    command = series_command(OneNumber.read, ["sdsc", "ctc"], 2, measured, lambda found: iter([f"{len(found)} found"]))
    words = ["--out", str(tmp_path / "windows"), "--seeds", "1"]
    CliRunner().invoke(command, words)
    assert asked == [("ctc", 1, frozenset()), ("sdsc", 1, frozenset())]
    asked.append(("end", 0, frozenset()))
    done = CliRunner().invoke(command, words)
    assert asked[3:] == [("ctc", 1, frozenset({0, 1})), ("sdsc", 1, frozenset({0}))]
    assert done.output == "4 found\n"


def test_a_machine_that_nobody_knows(tmp_path: Path) -> None:
    command = series_command(OneNumber.read, ["ctc"], 2, lambda *_: iter(()), lambda _: iter(()))
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "windows"), "--machine", "kth"])
    assert done.exit_code == 2 and "'ctc'" in done.output
    assert not (tmp_path / "windows").exists()

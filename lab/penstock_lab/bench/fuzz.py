"""Throws damaged inputs at every place where Penstock reads what others have written, and reports what breaks.

    python -m penstock_lab.bench.fuzz [--inputs 10000000] [--seed 1] [--target NAME ...] [--json] [--keep FOLDER]
    python -m penstock_lab.bench.fuzz --c-library [--inputs 10000000]   the C library's reader of replies
    python -m penstock_lab.bench.fuzz --atheris NAME [SECONDS]   coverage-guided (`pip install penstock-lab[fuzz]`)

Every target (`fuzz_targets.py`) takes any bytes; it has to return or to raise the error that its module documents,
within a second of processor time and without a jump in memory. Inputs are made from real ones: bytes and whole lines
are changed, moved, doubled and cut, words of the format are put in, values of JSON documents are replaced. They depend
on the seed and the number alone, so a finding is found again by its seed. `--inputs` counts all targets together.
Exit code 1 if there is a finding; it is written to `--keep`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

if "--atheris" in sys.argv:
    import atheris

    # What is to be guided by has to be counted from its import on.
    with atheris.instrument_imports(include=["penstock", "dmr"]):
        from penstock_lab.bench.fuzz_targets import TARGETS, Target
else:
    from penstock_lab.bench.fuzz_targets import TARGETS, Target

LONGEST = 1.0  # seconds of processor time for one input
MOST_MEMORY = 200_000  # kB by which a round may raise the process's peak
MEMORY = 4 << 30  # bytes, of the whole process
LARGEST = 20_000  # bytes of an input
MOST_PLACES = 300  # values of a JSON document, which is changed no further then
ROUND = 50  # inputs, times its weight, of one target before the next has its turn
TOLD = 5  # inputs of one kind of finding that are kept
DEEP = b'{"a":[' * 2000

NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.5, 1e308, -0.0, float("nan"), float("inf"),
    "", " ", "a", "\0", "\n", "²", "٣", "\ud800", "9" * 5000, "../../etc/passwd", "1e999",
    "\x1b[2J", "a" * 600, [], {}, [[]], [None],
    {"": None}, ["a", "a"], {"program": "x"}, [{}], "workflow 9", "key:", "munge:", "1-00:00:00",
    "{x}", "{0.a}", "n[1-9]",
)  # fmt: skip


class TooSlow(BaseException):
    """The alarm rang; not an Exception, so that no parser takes it for a wrong input."""


@dataclass
class Score:
    """What became of one target's inputs."""

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    findings: dict[str, list[bytes]] = field(default_factory=dict)


def mutated(target: Target, random_: random.Random) -> bytes:
    """One input."""
    seed = random_.choice(target.seeds)
    if target.json and random_.random() < 0.8:
        with contextlib.suppress(ValueError, RecursionError):
            return _changed_json(seed, random_)
    return _changed_bytes(target, seed, random_)


def _changed_bytes(target: Target, seed: bytes, random_: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(1 + int(random_.expovariate(0.5))):
        size = len(data)
        at = random_.randrange(size + 1)
        match random_.randrange(10):
            case 0 if size:
                data[at % size] = random_.randrange(256)
            case 1 if size:
                data[at % size] ^= 1 << random_.randrange(8)
            case 2:
                del data[at : at + 1 + int(random_.expovariate(0.1))]
            case 3:
                del data[at:]
            case 4:
                data[at:at] = data[at : at + random_.randrange(1, 64)] * random_.choice((1, 1, 2, 50))
            case 5:
                other = random_.choice(target.seeds)
                begin = random_.randrange(len(other) + 1)
                data[at:] = other[begin:]
            case 6:
                data[at:at] = random_.randbytes(random_.randrange(1, 9))
            case 7:
                rows = data.split(b"\n")
                random_.shuffle(rows)
                data[:] = b"\n".join(rows)
            case _ if target.words:
                end = at if random_.random() < 0.5 else at + random_.randrange(12)
                data[at:end] = random_.choice(target.words)
            case _:
                data[at : at + 1] = random_.choice(
                    (b"0", b"-", b'"', b"{", b"[", b"\\", b",", b"9" * 30, b"e9", b"\xff", DEEP)
                )
    return bytes(data[:LARGEST])


def _changed_json(seed: bytes, random_: random.Random) -> bytes:
    document = json.loads(seed)
    for _ in range(1 + int(random_.expovariate(0.7))):
        places = list(_places(document))
        if not 0 < len(places) < MOST_PLACES:
            break
        holder, key = random_.choice(places)
        if isinstance(holder, dict) and random_.random() < 0.15:
            holder.pop(key, None)
        elif isinstance(holder, list) and random_.random() < 0.15:
            holder.append(holder[key])
        elif random_.random() < 0.1:
            other, its = random_.choice(places)
            holder[key] = json.loads(json.dumps(other[its]))
        else:
            holder[key] = random_.choice(NASTY)
    return json.dumps(document).encode()[:LARGEST]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def attempt(target: Target, data: bytes) -> tuple[bool, str, float]:
    """Whether it was accepted, what is wrong (or nothing), and the seconds that it took."""
    began = time.process_time()
    accepted, wrong = False, ""
    try:
        target.run(data)
        accepted = True
    except target.allowed:
        pass
    except TooSlow:
        wrong = "does not end"
    except (Exception, RecursionError, MemoryError) as e:
        place = traceback.extract_tb(e.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(e.__traceback__) if "penstock" in f.filename or "dmr" in f.filename]
        last = (ours or [place])[-1]
        wrong = f"{type(e).__name__} at {Path(last.filename).name}:{last.lineno}: {str(e)[:160]!r}"
    took = time.process_time() - began
    if not wrong and took > LONGEST:
        wrong = "takes more than a second"
    return accepted, wrong, took


@contextlib.contextmanager
def watched() -> Iterator[Callable[[], None]]:
    """Ends what does not end by itself. What comes with it is to be called before each input."""

    def ring(_number: int, _frame: object) -> None:
        raise TooSlow

    def wind() -> None:
        signal.setitimer(signal.ITIMER_PROF, 10 * LONGEST)

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield wind
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(
    targets: tuple[Target, ...], inputs: int, seed: int, tell: Callable[[dict[str, Score]], None] = lambda _: None
) -> dict[str, Score]:
    """The scores by target after `inputs` inputs in all, shared out by the targets' weights."""
    scores = {target.name: Score() for target in targets}
    most = -(-inputs // sum(target.weight for target in targets))
    with watched() as wind:
        for begin in range(0, most, ROUND):
            for target in targets:
                score = scores[target.name]
                random_ = random.Random(zlib.crc32(f"{seed} {target.name} {begin}".encode()))
                peak = _peak()
                for _ in range(min(ROUND, most - begin) * target.weight):
                    data = mutated(target, random_)
                    wind()
                    accepted, wrong, took = attempt(target, data)
                    score.inputs += 1
                    score.accepted += accepted
                    score.seconds += took
                    score.slowest = max(score.slowest, took)
                    if wrong:
                        same = next(
                            (known for known in score.findings if known.split(": ")[0] == wrong.split(": ")[0]), wrong
                        )
                        kept = score.findings.setdefault(same, [])
                        kept += [data] if len(kept) < TOLD else []
                # Asking is too slow to be done for each input.
                if begin and _peak() - peak > MOST_MEMORY:
                    score.findings[f"takes much memory: inputs from {begin} on"] = [b""]
            tell(scores)
    return scores


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def quiet() -> None:
    """The agent's log would be most of the work."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def table(scores: dict[str, Score]) -> str:
    rows = [f"{'target':24}{'inputs':>12}{'accepted':>12}{'mean, µs':>10}{'slowest, ms':>13}{'findings':>10}"]
    rows += [
        f"{name:24}{s.inputs:12,}{s.accepted:12,}{1e6 * s.seconds / max(s.inputs, 1):10.0f}{1000 * s.slowest:13.1f}"
        f"{len(s.findings):10}"
        for name, s in scores.items()
    ]
    total = sum(s.inputs for s in scores.values())
    return "\n".join([*rows, f"{'all':24}{total:12,}{sum(s.accepted for s in scores.values()):12,}"])


def keep(folder: Path, scores: dict[str, Score]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, score in scores.items():
        for place, (wrong, inputs) in enumerate(score.findings.items()):
            stem = f"{name.replace(' ', '-').replace(chr(39), '')}-{place}"
            (folder / f"{stem}.txt").write_text(wrong + "\n", encoding="utf-8", errors="backslashreplace")
            (folder / f"{stem}.input").write_bytes(min(inputs, key=len))


def guided_by_coverage(target: Target, seconds: int) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    def one(data: bytes) -> None:
        _accepted, wrong, _took = attempt(target, data)
        if wrong:
            raise AssertionError(f"{target.name}: {wrong}")

    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", f"-max_len={LARGEST}", "-rss_limit_mb=4096"], one)
    atheris.Fuzz()


def c_library(inputs: int, seed: int) -> tuple[int, int]:
    """How many replies the C library was given, and how many it took. RuntimeError with what a sanitizer says."""
    here = Path(__file__).parent
    library = here.parents[2] / "dmr" / "c"
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
        program, seeds = Path(folder) / "fuzz_reply", Path(folder) / "seeds"
        seeds.write_bytes(b"".join(next(target for target in TARGETS if target.name == "wire reply").seeds))
        sources = [here / "fuzz_reply.c", library / "json.c", library / "reply.c"]
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(["gcc", *flags, f"-I{library}", *sources, "-o", program], check=True)
        words = [str(program), str(seed), str(inputs), str(seeds)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    given, taken = map(int, done.stdout.split())
    return given, taken


def main() -> int:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together (100000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=names, help="only these")
    parser.add_argument("--atheris", nargs="+", metavar=("NAME", "SECONDS"), help="coverage-guided, one target")
    parser.add_argument("--c-library", action="store_true", help="only the C library's reader of replies")
    parser.add_argument("--keep", type=Path, help="folder for the inputs of findings")
    parser.add_argument("--progress", type=float, default=60.0, help="seconds between lines of progress (60)")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    if said.c_library:
        given, taken = c_library(said.inputs, said.seed)
        print(f"{given:,} replies, {taken:,} accepted, no finding")
        return 0
    quiet()
    if said.atheris:
        guided_by_coverage(next(t for t in TARGETS if t.name == said.atheris[0]), int((said.atheris[1:] or ["60"])[0]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    told = [time.monotonic()]

    def tell(scores: dict[str, Score]) -> None:
        if time.monotonic() - told[0] >= said.progress:
            told[0] = time.monotonic()
            done, found = sum(s.inputs for s in scores.values()), sum(len(s.findings) for s in scores.values())
            print(f"{done:,} inputs, {found} findings", file=sys.stderr, flush=True)
            if said.keep and found:
                keep(said.keep, scores)

    chosen = tuple(t for t in TARGETS if not said.target or t.name in said.target)
    scores = fuzz(chosen, said.inputs, said.seed, tell)
    if said.keep:
        keep(said.keep, scores)
    if said.json:
        rows = {
            n: {"inputs": s.inputs, "accepted": s.accepted, "slowest": s.slowest, "findings": list(s.findings)}
            for n, s in scores.items()
        }
        print(json.dumps(rows))
    else:
        print(table(scores))
        for name, score in scores.items():
            for wrong, inputs in score.findings.items():
                print(f"{name}: {wrong}\n    {min(inputs, key=len)[:300]!r}")
    return 1 if any(s.findings for s in scores.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

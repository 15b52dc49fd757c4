"""A submission is made once, however often it has to be tried: what to do after each try. Pure.

Every try carries the same key in the job's comment. When sbatch fails in a way after which the job may be there all the
same, the queue is looked through for the key before the next try.
"""

from __future__ import annotations

from penstock.slurm.error_texts import BUSY, UNKNOWN, errors_in, kind_of, submit_limit
from penstock.slurm.option_words import SbatchWords

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DONE",
    "LOOK",
    "LOOK_ONCE",
    "ROOM",
    "Form",
    "after_try",
    "delays",
    "jobs_with",
    "key_option",
    "named",
    "new_key",
    "patience",
    "without_key",
]

DONE, LOOK, LOOK_ONCE, ROOM = "done", "look", "look once", "room"
"""After a try: its answer stands; the job may be there, and if not it is tried again; or if not, the answer stands;
there are as many jobs in the queue as may be: it is tried again when there is room."""
_KEY = "penstock:"
_LONGEST = 1000  # bytes of a comment: Slurm refuses more than 1024
_PATIENCE = 60.0
_SUBMITTED = b"Submitted batch job "


def new_key(random: bytes) -> str:
    """A key of these random bytes."""
    return _KEY + random.hex()


def key_option(line: SbatchWords, script: SbatchWords, key: str) -> str | None:
    """The option that puts the key into the job's comment, after what its owner says there: the last option of the
    command line, else the script's (sbatch reads no variable for it). None where there is no room for it."""
    own = line.value("comment") if line.has("comment") else script.value("comment")
    kept = " ".join(word for word in (own or "").split(" ") if not word.startswith(_KEY))
    comment = f"{kept} {key}" if kept else key
    if len(comment.encode(errors="surrogateescape")) > _LONGEST:
        return None
    return f"--comment={comment}"


def named(text: bytes) -> tuple[int, str] | None:
    """The job that sbatch has named, and its cluster or ""; None for none yet."""
    for word in text.split(b"\n")[:-1]:
        cluster = b""
        if word.startswith(_SUBMITTED):
            word, _, cluster = word[len(_SUBMITTED) :].partition(b" on cluster ")
        else:
            word, _, cluster = word.partition(b";")
        if word.isdigit() and len(word) <= 10:
            return int(word), cluster.decode(errors="surrogateescape")
    return None


class Form:
    """How sbatch answers: what it says of a job that it has submitted, and whether it `waits` for its end."""

    def __init__(self, pattern: bytes, *, waits: bool) -> None:
        self._pattern = pattern
        self.waits = waits

    @classmethod
    def of(cls, line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> Form:
        """As these options ask for it."""
        pattern = b"%d\n" if line.has("parsable") or script.has("parsable") else _SUBMITTED + b"%d\n"
        quiet = line.has("quiet") or script.has("quiet")
        waits = line.has("wait") or script.has("wait") or "SBATCH_WAIT" in environ
        return cls(b"" if quiet else pattern, waits=waits)

    def said(self, job: int) -> bytes:
        """What it says of that job."""
        return self._pattern % job if self._pattern else b""


def without_key(messages: bytes, key: str) -> bytes:
    """sbatch's messages as they are without the key, which it shows among its options with -v."""
    word = key.encode()
    kept = []
    for line in messages.split(b"\n"):
        if word in line:
            line = line.replace(b" " + word, b"")
            if line.rstrip().endswith(b":"):
                continue  # there is no other comment
        kept.append(line)
    return b"\n".join(kept)


def after_try(code: int, job: tuple[int, str] | None, messages: str) -> str:
    """What to do after sbatch has ended with `code` (of a signal: negative), having named `job` and said `messages`."""
    if code == 0 or job is not None:
        return DONE
    if code < 0 or not messages.strip():
        return LOOK
    kind = kind_of(errors_in(messages))
    if submit_limit(messages):
        return ROOM
    # A busy Slurm may have taken the job before, in one of the tries that sbatch makes itself.
    return LOOK if kind in BUSY else LOOK_ONCE if kind == UNKNOWN else DONE


def jobs_with(key: str, lines: Iterable[str]) -> list[int]:
    """The jobs in lines of "COMMENT NUMBER" whose comment ends with the key, in the order of their numbers. A comment
    may have lines of its own; the key stands on its last."""
    found = set()
    for line in lines:
        comment, _, number = line.rstrip().rpartition(" ")
        if number.isdigit() and (comment == key or comment.endswith(f" {key}")):
            found.add(int(number))
    return sorted(found)


def patience(text: str | None) -> float:
    """For how long (s) to try, by PENSTOCK_SHIM_PATIENCE."""
    try:
        seconds = float(text) if text else _PATIENCE
    except ValueError:
        return _PATIENCE
    return seconds if 0 <= seconds < 1e9 else _PATIENCE


def delays(random: bytes) -> Iterable[float]:
    """How long to wait (s) before each next try: twice as long each time, up to 8 s, no two commands alike."""
    first = 0.5 + int.from_bytes(random[:2], "big") / 65536
    for n in range(1_000_000):
        yield min(first * 2 ** min(n, 10), 8.0)

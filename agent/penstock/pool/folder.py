"""The folder of a pool: its address, its certificate and key, its task log and the tasks' output.

Only its owner can read it, and whoever has its key is a member or a client: that is the whole of the access rules. It
must be on a file system that the nodes share, as a state folder in a home is.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.errors import AgentUnavailable, NotPermitted, StoreError, UserError
from penstock.host.files import replace
from penstock.state.ownership import denied, own_folder

__all__ = ["PoolFolder", "SchedulerAddress", "base_folder", "pool_folder", "pools"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_VALID: Final = datetime.timedelta(days=3650)
_SKEW: Final = datetime.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class SchedulerAddress:
    """Where the scheduler is: `url` for Dask, `host` and `pid` for people; `started` in seconds of its clock."""

    url: str
    host: str
    pid: int
    started: float


def pool_folder(config: Config, name: str) -> PoolFolder:
    """The folder of the pool of this name. Raises UserError for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise UserError(f"pool {name[:60]!r}: a name is 1 to 40 of A-Z a-z 0-9 _ . - and begins with a letter or digit")
    return PoolFolder(name, base_folder(config) / name)


def pools(config: Config) -> Iterator[PoolFolder]:
    """Those that there are."""
    with contextlib.suppress(OSError):
        for path in sorted(base_folder(config).iterdir()):
            if (path / "key.pem").exists():
                yield PoolFolder(path.name, path)


def base_folder(config: Config) -> Path:
    """Where the folders of all pools are."""
    return config.pool.folder or own_folder(config) / "pools"


class PoolFolder:
    """See the module's text."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.certificate = path / "cert.pem"
        self.key = path / "key.pem"
        self.journal = path / "tasks.jsonl"
        self.output = path / "output"
        self.log = path / "scheduler.log"
        self.demand = path / "demand.json"
        self.wanted = path / "auto.json"  # somebody wants to know the demand
        self.leaving = path / "leaving.json"  # jobs whose members are to leave
        self._address = path / "address.json"

    @property
    def start(self) -> str:
        """The command that starts its scheduler, for a message."""
        return f"`penstock pool start --pool {self.name}`"

    def make(self) -> None:
        """Make what is missing, with a certificate of the pool's own. Raises StoreError, NotPermitted."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.check()
            self.output.mkdir(mode=0o700, exist_ok=True)
            if not self.key.exists() or not self.certificate.exists():
                certificate, key = _certificate(self.name)
                replace(self.certificate, certificate)
                replace(self.key, key)
        except OSError as e:
            raise denied(self.path, e, f"{self.path} cannot be made") from e

    def check(self) -> None:
        """Raise unless it is there and nobody but the caller can look into it."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise AgentUnavailable(
                f"there is no pool {self.name!r} in {self.path.parent}; {self.start} makes one"
            ) from None
        except OSError as e:
            raise NotPermitted(f"{self.path}: {e.strerror}") from None
        if found.st_uid != os.geteuid():
            raise NotPermitted(f"{self.path}: belongs to another user: a pool runs tasks as its owner only")
        if found.st_mode & 0o077:
            raise NotPermitted(f"{self.path}: others can look into it, and with it into the pool's key: chmod 700 it")

    def address(self) -> SchedulerAddress | None:
        """Where its scheduler is; None: it was stopped, or never started. Raises as `check`, and StoreError."""
        self.check()
        try:
            return SchedulerAddress(**json.loads(self._address.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as e:
            raise StoreError(f"{self._address}: cannot be read: {e}") from e

    def publish(self, address: SchedulerAddress) -> None:
        """Say where the scheduler is."""
        replace(self._address, json.dumps(asdict(address)))

    def withdraw(self) -> None:
        """It is no more, on purpose: members need not wait for another one."""
        self._address.unlink(missing_ok=True)


def _certificate(name: str) -> tuple[bytes, bytes]:
    """A certificate that vouches for itself, and its key: members and clients show it to each other (mutual TLS).

    It is valid from two days ago on, for clocks that differ.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"penstock pool {name}")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return certificate.public_bytes(encoding), key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

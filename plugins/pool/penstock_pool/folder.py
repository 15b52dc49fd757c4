"""The folder of a pool: its address, its certificate and key, its task log and the tasks' output.

Only its owner can read it, and whoever has its key is a member or a client: that is the whole of the access rules. It
must be on a file system that the nodes share, as a state folder in a home is.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.host.files import replace
from penstock.state.ownership import denied
from penstock.state.pools import PoolPlace, SchedulerAddress, pool_place, pool_places

__all__ = ["PoolFolder", "pool_folder", "pools"]

_VALID: Final = datetime.timedelta(days=3650)
_SKEW: Final = datetime.timedelta(days=2)


def pool_folder(config: Config, name: str) -> PoolFolder:
    """The folder of the pool of this name. Raises UserError for a name that cannot be one."""
    return PoolFolder(name, pool_place(config, name).path)


def pools(config: Config) -> Iterator[PoolFolder]:
    """Those that there are."""
    return (PoolFolder(place.name, place.path) for place in pool_places(config))


class PoolFolder(PoolPlace):
    """See the module's text."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.certificate = path / "cert.pem"
        self.journal = path / "tasks.jsonl"
        self.output = path / "output"
        self.log = path / "scheduler.log"
        self.demand = path / "demand.json"
        self.wanted = path / "auto.json"  # somebody wants to know the demand
        self.leaving = path / "leaving.json"  # jobs whose members are to leave

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

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmr import credential
from dmr.credential import CredentialError

DIGEST = "ab" * 32


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return path


def test_key_round_trip(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMR_KEY_FILE", str(key_file))
    token = credential.sign(DIGEST)
    assert token.startswith("key:")
    key = credential.load_key(key_file)
    assert credential.verify_key(token, DIGEST, key) == os.geteuid()
    assert "secret" not in repr(key)


def test_key_tampering(key_file: Path) -> None:
    key = credential.load_key(key_file)
    token = credential.sign_key(DIGEST, key)
    other = credential.Key(key.uid, secrets.token_bytes(32))
    flipped = token[:-1] + ("0" if token[-1] != "0" else "1")
    for wrong, digest, by in [
        (token, "cd" * 32, key),
        (token, DIGEST, other),
        (flipped, DIGEST, key),
        (token[4:], DIGEST, key),
        ("", DIGEST, key),
        ("key:ü", DIGEST, key),
    ]:
        with pytest.raises(CredentialError):
            credential.verify_key(wrong, digest, by)


@pytest.mark.timeout(20)
def test_a_key_file_that_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    """To open a FIFO waits for its other end, for ever, and each request has a thread of its own."""
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(CredentialError, match="not a regular file"):
        credential.load_key(tmp_path / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o601])
def test_key_that_others_can_use_is_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(CredentialError, match="chmod 600"):
        credential.load_key(key_file)


def test_unfit_key_files(key_file: Path, tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="No such file"):
        credential.load_key(tmp_path / "none")
    key_file.write_bytes(b"short")
    with pytest.raises(CredentialError, match="shorter"):
        credential.load_key(key_file)
    with pytest.raises(CredentialError):
        credential.load_key(tmp_path)
    with pytest.raises(CredentialError, match="regular"):
        credential.load_key("/dev/null")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_key_of_another_user_is_refused(key_file: Path) -> None:
    os.chown(key_file, 65534, -1)
    with pytest.raises(CredentialError, match="another user"):
        credential.load_key(key_file)


def start_munged(folder: Path) -> subprocess.Popen[bytes]:
    """A munged of our own; the folder must be short (a socket's path is at most 107 bytes) and passable by others."""
    folder.chmod(0o711)
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(secrets.token_bytes(128))
    names = {"key-file": "key", "socket": "s", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder / name}" for option, name in names.items()]
    return subprocess.Popen(["munged", "--force", "--foreground", *options], stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def munge() -> Iterator[str]:
    """The socket of a running munged."""
    if shutil.which("munged") is None:
        pytest.skip("munged is not installed")
    with tempfile.TemporaryDirectory(prefix="dmr-munge-") as name:
        process = start_munged(Path(name))
        try:
            for _ in range(100):
                if (Path(name) / "s").exists():
                    break
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                pytest.fail(f"munged ended: {process.stderr.read().decode()}")
            yield f"{name}/s"
        finally:
            process.terminate()
            process.wait(10)
            process.stderr.close()


def test_munge_round_trip(munge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMR_KEY_FILE", raising=False)
    monkeypatch.setenv("DMR_MUNGE_SOCKET", munge)
    token = credential.sign(DIGEST)
    assert token.startswith("munge:MUNGE:") and token.isprintable()
    assert credential.verify_munge(token, DIGEST) == (os.geteuid(), os.getegid())


def test_munge_replay(munge: str) -> None:
    token = credential.sign_munge(DIGEST, munge)
    credential.verify_munge(token, DIGEST, munge)
    with pytest.raises(CredentialError, match="used before"):
        credential.verify_munge(token, DIGEST, munge)


def test_munge_other_request(munge: str) -> None:
    with pytest.raises(CredentialError, match="another request"):
        credential.verify_munge(credential.sign_munge(DIGEST, munge), "cd" * 32, munge)


def test_munge_tampering(munge: str) -> None:
    token = credential.sign_munge(DIGEST, munge)
    middle = len(token) // 2
    flipped = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    for wrong in [flipped, token[:-10], "munge:", "munge:x", "key:ab", "", "munge:\0", "munge:ü"]:
        with pytest.raises(CredentialError):
            credential.verify_munge(wrong, DIGEST, munge)


def test_another_realm(munge: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dmr-munge-") as name:
        process = start_munged(Path(name))
        try:
            for _ in range(100):
                if (Path(name) / "s").exists():
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.05)
            token = credential.sign_munge(DIGEST, f"{name}/s")
        finally:
            process.terminate()
            process.wait(10)
            process.stderr.close()
    with pytest.raises(CredentialError, match="another realm"):
        credential.verify_munge(token, DIGEST, munge)


def test_no_munged(tmp_path: Path) -> None:
    with pytest.raises(CredentialError):
        credential.sign_munge(DIGEST, str(tmp_path / "nobody-listens"))


def test_another_user_is_named(munge: str) -> None:
    """The uid is munged's finding, not the sender's claim."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    code = f"from dmr import credential; print(credential.sign_munge({DIGEST!r}, {munge!r}))"
    Path(munge).parent.chmod(0o711)
    result = subprocess.run(
        [sys.executable, "-c", code],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if result.returncode:
        pytest.skip(f"the other user cannot run this Python: {result.stderr[-200:]}")
    assert credential.verify_munge(result.stdout.strip(), DIGEST, munge) == (65534, 65534)

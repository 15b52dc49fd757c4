"""The ways that messages take, which are an extension point: mail, a webhook and a command come with Penstock.

A channel of a site's own is a class, named under the entry point `penstock.channels`. The configuration says that it
is used, and with what:

    messages:
      channels:
        chat: {room: "#hpc", token: /etc/penstock/chat}

The class is called with these settings by name, `Chat(room="#hpc", token="/etc/penstock/chat")`, and gives a `Channel`
that has the same name as its entry point. That is done at each start, at each reload and by `penstock config check`, so
it looks at its settings (what it raises is a wrong configuration) and opens nothing.

- `takes` is asked in the agent's pass: it answers at once, by the event alone. A fault in it is logged, and the event
  goes by the other ways.
- `deliver` is called in a thread that this channel alone has, one event after the other. It may block, and keeps a time
  limit of its own. It returns when the event was delivered, else it raises `Undelivered`: tried again after 30 s,
  2 min, 10 min and an hour, or not at all if that is `final`. Any other exception counts as one that may pass.
- The text of an `Undelivered` goes into the log and the state file: no URL and no password may be in it. `read_secret`
  reads a file that only the agent's user can read.
- A shared agent tells a channel of the events of all its users.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import IO, Any, Final, Protocol
from urllib.parse import urlsplit

from penstock.config import MessagesSection
from penstock.core.events import Event
from penstock.errors import ConfigError
from penstock.host.listening import bare
from penstock.host.logins import login
from penstock_messages.extending import CHANNELS

__all__ = ["Channel", "Command", "Mail", "Undelivered", "Webhook", "attempt", "channels_of", "read_secret"]

_LOGIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?", re.ASCII)
_AGAIN: Final = (408, 425, 429)
_LONGEST_SECRET: Final = 10_000


class Undelivered(Exception):
    """It was not delivered. `final`: nor would it be if it were tried again."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Channel(Protocol):
    """A way to tell somebody. `name` is that of its entry point, and the label of its metrics."""

    name: str

    def takes(self, event: Event) -> bool:
        """Whether the event goes this way. Asked in the agent's pass: no I/O."""
        ...

    def deliver(self, event: Event) -> None:
        """Deliver it, or raise `Undelivered`. Called in a thread of its own, which it may block."""
        ...


def channels_of(settings: MessagesSection, domain: str = "", *, shared: bool = False) -> dict[str, Channel]:
    """The ways that are set up, by name. `domain` is Slurm's MailDomain; `shared`: the agent serves several users.

    Raises ConfigError for a channel that is not installed, cannot be loaded, or does not take its settings.
    """
    wanted: dict[str, dict[str, Any]] = {}
    if settings.mail != "off":
        wanted["mail"] = {"settings": settings, "domain": settings.mail_domain or domain, "shared": shared}
    if settings.webhook is not None:
        wanted["webhook"] = {"path": settings.webhook, "timeout": settings.timeout}
    if settings.command is not None:
        wanted["command"] = {"words": settings.command, "timeout": settings.timeout}
    for name in settings.channels:
        if name in CHANNELS.own:
            raise ConfigError(f"`messages.channels`: {name!r} comes with Penstock: set `messages.{name}` instead")
    return {name: _made(name, keys) for name, keys in {**wanted, **settings.channels}.items()}


def _made(name: str, settings: dict[str, Any]) -> Channel:
    made: Channel = CHANNELS.make(name, **settings)
    if made.name != name:
        raise CHANNELS.broken(name, TypeError(f"its `name` must be {name!r}"))
    return made


def attempt(channel: Channel, event: Event) -> Undelivered | None:
    """Deliver an event, whatever the channel may raise; None: it was delivered."""
    try:
        channel.deliver(event)
    except Undelivered as error:
        return error
    except Exception as error:
        # A fault of the channel's; its text might have a secret in it.
        return Undelivered(f"a fault: {type(error).__name__}")
    return None


def read_secret(path: Path) -> list[str]:
    """The lines of a file that only its owner can read. Raises `Undelivered` if others can, or if it is empty."""
    try:
        with path.open(encoding="utf-8") as file:
            there = os.fstat(file.fileno())
            if there.st_mode & 0o077 or there.st_uid not in (0, os.geteuid()):
                raise Undelivered(f"{path} is a secret that others can read or own: chown it to this user, chmod 600")
            lines = file.read(_LONGEST_SECRET).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Undelivered(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise Undelivered(f"{path} is empty")
    return found


def _json(event: Event) -> bytes:
    return json.dumps({**event.to_dict(), "host": socket.gethostname()}).encode()


class Mail:
    """Mail to the user whose event it is and to nobody else; what is nobody's goes to `mail_to`.

    An agent of a single user has one reader: `mail_to` if it is set, for everything.
    """

    name = "mail"

    def __init__(self, settings: MessagesSection, domain: str, *, shared: bool) -> None:
        self._settings = settings
        self._domain = domain
        self._shared = shared

    def takes(self, event: Event) -> bool:
        """See `Channel`."""
        return self._address(event) is not None

    def _address(self, event: Event) -> str | None:
        if not self._shared:
            return self._settings.mail_to or self._of(event.user or login(os.geteuid()))
        if event.uid is None:
            return self._settings.mail_to
        return self._of(event.user) if self._settings.users else None

    def _of(self, user: str) -> str | None:
        if not _LOGIN.fullmatch(user):
            return None
        return f"{user}@{self._domain}" if self._domain else user

    def deliver(self, event: Event) -> None:
        """See `Channel`."""
        to = self._address(event)
        if to is None:
            raise Undelivered("there is no address for it", final=True)
        message = self._message(event, to)
        if self._settings.mail == "sendmail":
            words = [*self._settings.sendmail, "-i", "--", to]
            _run(words, message.as_bytes(), self._settings.timeout)
        else:
            self._by_smtp(message, to)

    def _message(self, event: Event, to: str) -> EmailMessage:
        message, host = EmailMessage(), socket.gethostname()
        message["From"] = self._settings.mail_from or f"{login(os.geteuid())}@{host}"
        message["To"] = to
        message["Subject"] = f"[penstock] {event.title}"
        message["Date"] = formatdate(event.at, localtime=True)
        # The same for the same event, so that a mail program shows what comes twice once.
        message["Message-ID"] = f"<{hashlib.sha256(event.key.encode()).hexdigest()[:32]}.penstock@{host}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(event.text)
        return message

    def _by_smtp(self, message: EmailMessage, to: str) -> None:
        import smtplib  # not needed by most, and every `penstock tick` would load it

        settings = self._settings
        assert settings.smtp is not None
        host, _, port = settings.smtp.rpartition(":")
        login = read_secret(settings.smtp_login) if settings.smtp_login else []
        if settings.smtp_login and len(login) != 2:
            raise Undelivered(f"{settings.smtp_login} must have two lines: user name and password")
        context = ssl.create_default_context()
        try:
            server = (
                smtplib.SMTP_SSL(bare(host), int(port), timeout=settings.timeout, context=context)
                if settings.smtp_security == "tls"
                else smtplib.SMTP(bare(host), int(port), timeout=settings.timeout)
            )
            with server:
                if settings.smtp_security == "starttls":
                    server.starttls(context=context)
                if login:
                    server.login(*login)
                server.send_message(message, to_addrs=[to])
        except smtplib.SMTPRecipientsRefused as error:
            code, _ = next(iter(error.recipients.values()))
            raise Undelivered(f"the mail server refuses {to} ({code})", final=code >= 500) from None
        except smtplib.SMTPAuthenticationError as error:
            raise Undelivered(f"the mail server does not take the login ({error.smtp_code})") from None
        except smtplib.SMTPResponseException as error:
            raise Undelivered(f"the mail server said {error.smtp_code}", final=error.smtp_code >= 500) from None
        except (smtplib.SMTPException, OSError) as error:
            raise Undelivered(f"mail server {settings.smtp}: {_reason(error)}") from None


class Webhook:
    """The event as JSON by POST. The URL is read from its file each time, so that it can be changed."""

    name = "webhook"

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout

    def takes(self, event: Event) -> bool:
        """See `Channel`."""
        return True

    def deliver(self, event: Event) -> None:
        """See `Channel`."""
        url = read_secret(self._path)[0]
        try:
            good = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
        except ValueError:
            good = False
        if not good:
            raise Undelivered(f"{self._path} must have an http or https URL on its first line")
        headers = {"Content-Type": "application/json", "Idempotency-Key": event.key, "User-Agent": "penstock"}
        try:
            request = urllib.request.Request(url, _json(event), headers)  # noqa: S310 (looked at above)
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self._timeout):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            final = 300 <= error.code < 500 and error.code not in _AGAIN
            raise Undelivered(f"the webhook answered {error.code}", final=final) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Of the others the type alone: their texts may have the URL in them.
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            text = _reason(reason) if isinstance(reason, OSError) else type(reason).__name__
            raise Undelivered(f"the webhook cannot be reached: {text}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The URL is a secret, and what is posted is for its host alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Never."""
        return


class Command:
    """The event as JSON on the standard input of a program, which is no shell's."""

    name = "command"

    def __init__(self, words: Sequence[str], timeout: float) -> None:
        self._words = list(words)
        self._timeout = timeout

    def takes(self, event: Event) -> bool:
        """See `Channel`."""
        return True

    def deliver(self, event: Event) -> None:
        """See `Channel`."""
        _run(self._words, _json(event), self._timeout)


def _run(words: list[str], given: bytes, timeout: float) -> None:
    """Run a program in a session of its own, of which nothing is left after the time limit."""
    name = Path(words[0]).name
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Undelivered(f"{name} cannot be run: {_reason(error)}") from None
    try:
        process.communicate(given, timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise Undelivered(f"{name} took longer than {timeout:g} s") from None
    if process.returncode != 0:
        raise Undelivered(f"{name} ended with {process.returncode}")


def _reason(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__) if isinstance(error, OSError) else str(error)

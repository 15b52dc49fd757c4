"""The agent's configuration: typed, with defaults that are safe on a stranger's cluster.

Read from the first of `PENSTOCK_CONFIG`, `$XDG_CONFIG_HOME/penstock/config.yaml`, `/etc/penstock/penstock.yaml` that
exists (none is fine); single keys are overridden by `PENSTOCK_SECTION__KEY`. Durations are seconds, or text such as
"90s", "5m", "1-00:00:00"; sizes are bytes, or "16 MiB", "2 GB". Paths may begin with `~`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.config.plain import plainly
from penstock.config.sections import (
    AgentSection,
    AsaSection,
    Config,
    LimitsSection,
    MalleableSection,
    MessagesSection,
    WorkflowsSection,
    keys_by_section,
)
from penstock.errors import ConfigError, UserError
from penstock.host.homes import home
from penstock.values.beside import FRONTS, MESSAGES, PLANNING, POOL
from penstock.values.documents import MAX_BYTES, show

__all__ = ["DEFAULT", "SITE", "AgentSection", "AsaSection", "Config", "LimitsSection", "MalleableSection"]
__all__ += [
    "MessagesSection",
    "WorkflowsSection",
    "config_of",
    "find",
    "keys_by_section",
    "load",
    "origins",
    "own_file",
    "schema",
]
__all__ += ["values_of"]

_ADMINISTRATORS: Final = ("workflows", "age_while_dependent")
"""A key that only administrators may set."""
_BESIDE: Final = {"messages": MESSAGES, "pool": POOL, "provision": PLANNING, "select": PLANNING, "shim": FRONTS}
"""The sections of what comes in distributions of its own."""
DEFAULT: Final = "default"
"""Where a value comes from that nobody has given."""
SITE: Final = Path("/etc/penstock/penstock.yaml")
"""The file of those who have none of their own."""


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file that applies, if any."""
    if named := environ.get("PENSTOCK_CONFIG"):
        return Path(named)
    candidates = [SITE]
    with contextlib.suppress(ConfigError):  # who has no home has no file in it
        candidates.insert(0, own_file(environ))
    for candidate in candidates:
        # A service user that root's shell runs a command as may not look into root's home: nothing is there for it.
        with contextlib.suppress(PermissionError):
            if candidate.exists():
                return candidate
    return None


def own_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a user's own configuration file is, or would be. Raises ConfigError where there is no home for it."""
    return Path(environ.get("XDG_CONFIG_HOME") or home() / ".config") / "penstock" / "config.yaml"


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration from a file and the environment.

    Raises `ConfigError` naming the file and key, with the nearest known key where one is unknown.
    """
    path = path or find(environ)
    data: dict[str, Any] = {}
    if path is not None:
        try:
            with path.open("rb") as file:
                loaded = _parsed(file.read(MAX_BYTES + 1), "configuration")
        except (OSError, ValueError) as e:
            raise ConfigError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
        except UserError as e:
            raise ConfigError(f"{path}: cannot be read: {e}") from e
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{path}: must be a mapping of sections, such as `agent:`")
        # A section whose keys are all commented out is an empty one.
        data = {section: {} if keys is None else keys for section, keys in (loaded or {}).items()}
    variables: dict[tuple[str, ...], str] = {}
    for (section, name), variable in _variables(environ).items():
        inner = data.setdefault(section, {})
        if isinstance(inner, dict):
            inner[name] = _list_or_text(variable, environ[variable])
            variables[section, name] = variable
            variables[section,] = variable if section not in keys_by_section() else variables.get((section,), "")
    from_site = _taken_from_site(data, path)
    config = _made(data, lambda location: variables.get(location[:2]) or variables.get(location[:1]) or path)
    allowed = from_site or (_ADMINISTRATORS not in variables and path is not None and _roots(path))
    if config.workflows.age_while_dependent and not allowed:
        raise ConfigError(
            f"{variables.get(_ADMINISTRATORS) or path}: {'.'.join(_ADMINISTRATORS)}: only an administrator can allow "
            f"this: in {SITE}, or another file that belongs to root and that nobody else can write"
        )
    return config


def _parsed(text: bytes | str, what: str) -> object:
    from penstock.values.yaml12 import parse_yaml  # slow to load

    return parse_yaml(text, what)


def config_of(data: Mapping[str, Any]) -> Config:
    """The configuration that these values make, by section and key. Raises ConfigError, which names the key."""
    return _made(data, lambda _location: None)


def _made(data: Mapping[str, Any], where: Callable[[tuple[str, ...]], object]) -> Config:
    for section in filter(data.__contains__, _BESIDE):
        from penstock.host.distributions import is_installed  # few files have one of these

        if not is_installed(needs := _BESIDE[section]):
            raise ConfigError(f"{where((section,)) or 'configuration'}: `{section}:` needs {needs}: install that, too")
    if (config := plainly(data)) is not None:
        return config
    from penstock.config.checking import WrongValueError, checked  # slow to load

    try:
        return checked(data)
    except WrongValueError as e:
        raise ConfigError(f"{where(e.location) or 'configuration'}: {e}") from e


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration file, for editors and for tools that write one."""
    from penstock.config import checking

    return checking.schema()


def values_of(config: Config) -> dict[str, dict[str, Any]]:
    """The values by section and key, as JSON has them."""
    from penstock.config import checking

    return checking.dumped(config)


def _taken_from_site(data: dict[str, Any], path: Path | None) -> bool:
    """Take what an administrator has said in the site's file into that of somebody who has one of their own and does
    not say otherwise; whether there was anything to take."""
    section, key = _ADMINISTRATORS
    mine = data.get(section)
    if path is None or path == SITE or not isinstance(mine, dict | None) or key in (mine or {}) or not _roots(SITE):
        return False
    try:
        site = _parsed(_text(SITE).encode(), "configuration")
    except (ConfigError, UserError):
        return False  # whoever reads it for all it says will be told
    theirs = site.get(section) if isinstance(site, dict) else None
    if not isinstance(theirs, dict) or key not in theirs:
        return False
    data.setdefault(section, {})[key] = theirs[key]
    return True


def _roots(path: Path) -> bool:
    """Whether the file is there, belongs to root, and nobody else can write it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def origins(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> dict[tuple[str, str], str]:
    """Where the value of each (section, key) comes from: `DEFAULT`, `FILE:LINE`, or the name of a variable.

    For a configuration that `load` takes; raises `ConfigError` as that does.
    """
    path = path or find(environ)
    known = {(section, key): DEFAULT for section, keys in keys_by_section().items() for key in keys}
    if path is not None:
        import yaml

        tree = yaml.compose(_text(path), Loader=yaml.SafeLoader)
        for section, keys in tree.value if isinstance(tree, yaml.MappingNode) else ():
            for key, _value in keys.value if isinstance(keys, yaml.MappingNode) else ():
                known[section.value, key.value] = f"{path}:{key.start_mark.line + 1}"
    return known | _variables(environ)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(e).split())}") from e


def _variables(environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The variables that set single keys, by (section, key)."""
    found = {}
    for variable in environ:
        if variable.startswith("PENSTOCK_") and "__" in variable:
            section, _, name = variable.removeprefix("PENSTOCK_").lower().partition("__")
            found[section, name] = variable
    return found


def _list_or_text(variable: str, value: str) -> object:
    if value[:1] + value[-1:] not in ("[]", "{}"):  # "[::1]:0" is an address
        return value
    try:
        return _parsed(value, "list")
    except UserError as e:
        raise ConfigError(f"{variable}: is not a list such as [1, 2, 3]: {show(value)}") from e

"""What is read without the whole check means the same as with it, and commands load nothing slow for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config, checking, config_of, keys_by_section
from penstock.config.plain import plainly
from penstock.errors import ConfigError

SAID = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**6),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["90s", "5m", "1-0", "16 MiB", "own", "all", "auto", "yes", "off", "/run/x", "~/x", "x", "a:1", "7"]
    ),
    st.sampled_from([[], {}, ["a"], [1.0, 2.0], "a\n", "-1s", "~nobodysuch", "https://h:1", "é", "\udcff", 0, 1, "0"]),
)
KEYS = [(section, key) for section, keys in keys_by_section().items() for key in keys]


def whole(data: dict[str, Any]) -> Config | None:
    try:
        return checking.checked(data)
    except checking.WrongValueError:
        return None


@given(st.dictionaries(st.sampled_from(KEYS), SAID, max_size=4))
def test_what_is_plainly_right_is_what_the_whole_check_makes_of_it(values):
    data: dict[str, Any] = {}
    for (section, key), said in values.items():
        data.setdefault(section, {})[key] = said
    found = plainly(data)
    assert found is None or (found == whole(data) and repr(found) == repr(whole(data)))


@pytest.mark.parametrize("section", keys_by_section())
def test_each_key_takes_plainly_what_the_whole_check_takes(section):
    for key in keys_by_section()[section]:
        for said in (0, 1, 3, 0.5, "90s", "x", "/x", True, "a:1", None, "own", "all", "off", "yes"):
            found = plainly({section: {key: said}})
            assert found is None or found == whole({section: {key: said}}), (key, said)


def test_a_usual_file_is_plainly_right():
    agent = {"state_dir": "/var/lib/penstock", "interval": "30s", "serve": "all", "request_burst": 100}
    assert plainly({}) == Config()
    assert plainly({"agent": agent, "dmr": {"listen": "0.0.0.0:9000"}, "log": {"level": "debug"}}) is not None


def test_what_is_wrong_in_values_is_said_with_its_key():
    with pytest.raises(ConfigError, match=r"^configuration: `agent\.interval`: must be"):
        config_of({"agent": {"interval": "soon"}})


def test_a_configuration_is_read_without_what_checks_one(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("agent: {interval: 30s, state_dir: /tmp/x}\n")
    code = (
        "import sys, pathlib; from penstock.config import load; load(pathlib.Path(sys.argv[1]), {}); "
        "print(sorted({'pydantic', 'numpy', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""The configuration: where it comes from, what is refused and how that is said, and what a reload takes over."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from penstock.admin.doctor.reader import _trouble, read_facts
from penstock.app import App, serve
from penstock.cli import cli
from penstock.config import DEFAULT, Config, config_of, find, load, origins, schema, values_of
from penstock.core.backends import make_backend
from penstock.core.installed import extension_points
from penstock.core.metrics import Metrics
from penstock.core.reloading import taken_over
from penstock.errors import ConfigError, NotNow
from penstock.host import sdnotify
from penstock.host.listening import cannot_listen
from penstock.resize.running.part import MalleablePart, make_policy
from penstock.state.leadership import hold_state, open_store
from penstock.state.lease.holder import Lease
from penstock.state.store import Store
from penstock.workflow.part import WorkflowPart
from penstock_lab.cluster.rootfs import cache_folder
from penstock_lab.cluster.spec import default_folder
from penstock_lab.mock.backend import virtual_cluster
from penstock_messages.part import MessagesPart
from penstock_planning.extending import pricing_rules


def wrong(path: Path, text: str) -> str:
    """What is said about a file with this text."""
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "penstock.yaml"


def test_without_a_file_the_defaults_are_kind_to_the_cluster(tmp_path):
    config = load(None, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert (config.agent.interval, config.agent.idle_interval, config.slurm.min_interval) == (60, 300, 10)
    assert (config.slurm.backend, config.agent.serve, config.dmr.policy) == ("cli", "own", "throughput")
    assert config.metrics.listen is None
    assert config.socket_path == config.agent.state_dir / "agent.sock"


def test_a_file_gives_what_it_gives_and_durations_are_text_or_seconds(file):
    file.write_text(
        "agent:\n  interval: 90s\n  idle_interval: 5m\nslurm:\n  timeout: 7\ndmr:\n  cooldown: 1-00:00:00\n"
    )
    config = load(file, {})
    assert (config.agent.interval, config.agent.idle_interval) == (90, 300)
    assert (config.slurm.timeout, config.dmr.cooldown) == (7, 86400)
    assert config.slurm.min_interval == 10


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_an_empty_file_means_the_defaults(file, text):
    file.write_text(text)
    assert load(file, {}) == load(None, {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})


PATHS = [
    (section, key)
    for section, about in schema()["properties"].items()
    for key, about in schema()["$defs"][about["$ref"].rpartition("/")[2]]["properties"].items()
    if '"format": "path"' in json.dumps(about)
]


@pytest.mark.parametrize(("section", "key"), PATHS)
def test_a_tilde_is_the_home_in_every_path(file, section, key, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    file.write_text(f"{section}: {{{key}: ~/it}}")
    variable = {f"PENSTOCK_{section}__{key}".upper(): "~/it", "HOME": "/nonexistent"}
    for config in (load(file, {}), load(None, variable)):
        assert getattr(getattr(config, section), key) == tmp_path / "it"
    assert f"`{section}.{key}`: begins with the home of a user" in wrong(file, f"{section}: {{{key}: ~nobodysuch/it}}")


def test_all_paths_are_known():
    assert len(PATHS) == 14
    assert ("agent", "state_dir") in PATHS


@pytest.mark.parametrize("key", ["state_dir", "socket"])
def test_where_the_agent_is_does_not_depend_on_where_one_stands(file, key):
    assert f"`agent.{key}`: must be an absolute path" in wrong(file, f"agent: {{{key}: state}}")


def test_a_relative_home_of_states_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".local" / "state"
    for given, taken in (("state", own), ("", own), ("/s", Path("/s"))):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert config_of({}).agent.state_dir == taken / "penstock"


def test_root_without_a_configuration_does_not_take_the_folder_of_the_site_s_service(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("penstock.config.SITE", tmp_path / "none.yaml")
    for name in [n for n in os.environ if n.startswith(("PENSTOCK_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load().agent.state_dir == tmp_path / ".local" / "state" / "penstock"
    shown = json.loads(CliRunner().invoke(cli, ["config", "show", "--json"]).stdout)
    assert shown["agent"]["state_dir"] == str(tmp_path / ".local" / "state" / "penstock")


def test_who_has_no_home_is_told_so_where_one_is_needed(monkeypatch):
    """A user whom the site's directory does not know, in a container, say."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in ("STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)

    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    for needs in (lambda: load(None, {}), default_folder, cache_folder):
        with pytest.raises(ConfigError, match="the home of user id 1000 is not known here: set HOME"):
            needs()
    named = {"PENSTOCK_AGENT__STATE_DIR": "/srv/penstock"}
    assert load(None, named).agent.state_dir == Path("/srv/penstock"), "and where none is needed all works"
    assert find({"XDG_CONFIG_HOME": "/nonexistent"}) is None
    facts = read_facts(1.0, with_mpi=False, environ={"PENSTOCK_SLURM__BACKEND": "mock"})
    assert "the home of user id 1000" in facts.config_trouble


def test_the_environment_overrides_single_keys(file):
    file.write_text("agent:\n  interval: 90s\n  seed: 3\n")
    environ = {
        "PENSTOCK_AGENT__INTERVAL": "2m",
        "PENSTOCK_AGENT__SOCKET": "/run/x.sock",
        "PENSTOCK_ASA__ALTERNATIVES": "[1, 2.5, 10]",
        "PENSTOCK_LOG__LEVEL": "debug",
        "PENSTOCK_CONFIG": "/never/read/since/a/path/is/given",
        "OTHER__KEY": "x",
    }
    config = load(file, environ)
    assert (config.agent.interval, config.agent.seed) == (120, 3)
    assert config.socket_path == Path("/run/x.sock")
    assert config.asa.alternatives == (1, 2.5, 10)
    assert config.log.level == "debug"


def test_a_variable_may_hold_an_address_in_brackets():
    assert load(None, {"HOME": "/nonexistent", "PENSTOCK_DMR__LISTEN": "[::1]:0"}).dmr.listen == "[::1]:0"
    with pytest.raises(ConfigError, match="PENSTOCK_ASA__ALTERNATIVES"):
        load(None, {"HOME": "/nonexistent", "PENSTOCK_ASA__ALTERNATIVES": "[1, 2"})


def test_the_first_file_that_exists_applies(tmp_path):
    home = tmp_path / "home" / "penstock" / "config.yaml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    home.parent.mkdir(parents=True)
    home.write_text("agent: {seed: 1}")
    assert find(environ) == home
    assert load(None, environ).agent.seed == 1
    named = tmp_path / "named.yaml"
    named.write_text("agent: {seed: 2}")
    assert load(None, {**environ, "PENSTOCK_CONFIG": str(named)}).agent.seed == 2
    with pytest.raises(ConfigError, match="cannot be read"):
        load(None, {**environ, "PENSTOCK_CONFIG": str(tmp_path / "missing.yaml")})


def test_nothing_is_found_in_a_home_that_is_closed(monkeypatch):
    # `runuser -u penstock` in root's shell: its HOME is still root's.
    def closed(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", closed)
    assert find({"XDG_CONFIG_HOME": "/closed"}) is None


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("agent: {intervall: 5}", "`agent.intervall` is not a known key", "did you mean `interval`?"),
        ("slrm: {timeout: 5}", "`slrm` is not a known key", "did you mean `slurm`?"),
        ("dmr: {grant-timeout: 5}", "`dmr.grant-timeout` is not a known key", "did you mean `grant_timeout`?"),
        ("agent: {qwxz: 5}", "`agent.qwxz` is not a known key", ""),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(file, text, key, near):
    message = wrong(file, text)
    assert key in message
    assert near in message
    assert near or "did you mean" not in message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("agent: {interval: soon}", "`agent.interval`"),
        ("agent: {interval: 5 parsecs}", "`agent.interval`"),
        ("agent: {interval: -5}", "`agent.interval`"),
        ("agent: {interval: .nan}", "`agent.interval`"),
        ("agent: {interval: [5]}", "`agent.interval`"),
        ("agent: {seed: x}", "`agent.seed`"),
        ("agent: {serve: nobody}", "`agent.serve`"),
        ("agent: {state_dir: [1]}", "`agent.state_dir`"),
        ("agent: 5", "`agent`"),
        ("asa: {alternatives: [1, x]}", "`asa.alternatives.1`"),
        ("asa: {alternatives: [5, 1]}", "`asa.alternatives`"),
        ("asa: {alternatives: [-5]}", "`asa.alternatives`"),
        ("asa: {alternatives: []}", "`asa.alternatives`"),
        ("asa: {alternatives: [.nan]}", "`asa.alternatives.0`"),
        ("asa: {gamma: 0.5}", "`asa.gamma`"),
        ("agent: {interval: true}", "`agent.interval`"),
        ("agent: {interval: .inf}", "`agent.interval`"),
        ("dmr: {listen: 'localhost:99999'}", "`dmr.listen`"),
        ("dmr: {listen: localhost}", "`dmr.listen`"),
        ("metrics: {listen: ':9341'}", "`metrics.listen`"),
        ("dmr: {listen: 5}", "`dmr.listen`"),
        ("log: {level: loud}", "`log.level`"),
    ],
)
def test_a_wrong_type_or_value_names_the_key_and_what_was_there(file, text, key):
    assert wrong(file, text).startswith(f"{key}: ")


def test_sizes_are_bytes_or_text_with_a_unit(file):
    for text, size in (("16MiB", 16 * 2**20), ("2 GB", 2 * 10**9), ("4096", 4096), ("0", 0)):
        file.write_text(f"pool: {{output_limit: {text}}}")
        for config in (load(file, {}), load(None, {"PENSTOCK_POOL__OUTPUT_LIMIT": text})):
            assert config.pool.output_limit == size
    said = wrong(file, "pool: {output_limit: 5 MX}")
    assert "`pool.output_limit`: unknown unit 'MX': must be bytes, or text such as 16 MiB or 2 GB" in said


@pytest.mark.parametrize("none", ["0", "0s", "0m", "0d", "00:00:00", "0.0h"])
def test_no_time_at_all_is_a_duration_in_all_forms(file, none):
    """`agent.keep: 0s` is for ever, as 0 is."""
    file.write_text(f"agent: {{keep: {none}}}\nslurm: {{min_interval: '{none}'}}\n")
    config = load(file, {"PENSTOCK_ASA__HISTORY": none})
    assert (config.agent.keep, config.slurm.min_interval, config.asa.history) == (0, 0, 0)
    assert "greater than 0" in wrong(file, f"messages: {{timeout: '{none}'}}"), "where the key allows none"


def test_a_bad_duration_says_how_durations_are_written(file):
    assert "90s" in wrong(file, "agent: {interval: soon}") or "1h30m" in wrong(file, "agent: {interval: soon}")


@pytest.mark.parametrize("text", ["agent: [", "\tagent: 5", "a: b: c", "agent: {interval: 5}}"])
def test_what_is_not_yaml_cannot_be_read(file, text):
    assert wrong(file, text).startswith("cannot be read")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "5"])
def test_what_is_no_mapping_says_what_it_must_be(file, text):
    assert wrong(file, text).startswith("must be a mapping of sections")


def test_bytes_that_are_no_text_and_folders_cannot_be_read(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "x", tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path, {})


def test_an_environment_with_a_wrong_key_is_refused(file):
    file.write_text("agent: {interval: 5}")
    with pytest.raises(ConfigError, match=r"`agent\.intervall` is not a known key; did you mean `interval`"):
        load(file, {"PENSTOCK_AGENT__INTERVALL": "5"})
    with pytest.raises(ConfigError, match=r"`agent\.interval`"):
        load(file, {"PENSTOCK_AGENT__INTERVAL": "soon"})


def test_a_wrong_variable_is_blamed_by_its_own_name(file):
    file.write_text("agent: {interval: 5}")
    for variable, value in (
        ("PENSTOCK_AGENT__INTERVALL", "5"),
        ("PENSTOCK_ASA__ALTERNATIVES", "[1,"),
        ("PENSTOCK_SLRUM__TIMEOUT", "5"),
    ):
        with pytest.raises(ConfigError, match=rf"^{variable}: "):
            load(file, {variable: value})


def test_a_section_without_keys_is_an_empty_one(file):
    file.write_text("agent:\n  # interval: 5\n")
    assert load(file, {"PENSTOCK_AGENT__SERVE": "all"}).agent.serve == "all"


def test_a_configuration_cannot_be_changed_after_it_was_read():
    with pytest.raises(FrozenInstanceError):
        config_of({}).agent.interval = 5


def test_a_policy_that_is_not_installed_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"`dmr\.policy`.*'nope'.*wide"):
        make_policy("nope")


def test_the_simulated_slurm_needs_its_socket():
    with pytest.raises(ConfigError, match=r"slurm\.mock_socket"):
        make_backend(config_of({"slurm": {"backend": "mock"}}))


@pytest.mark.parametrize("command", [["agent"], ["config", "check"], ["status"]])
def test_a_wrong_configuration_ends_every_command_with_exit_code_78(file, command):
    file.write_text("agent: {intervall: 5}")
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", *command],
        env={**os.environ, "PENSTOCK_CONFIG": str(file)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 78
    assert done.stderr == f"penstock: {file}: `agent.intervall` is not a known key; did you mean `interval`?\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PENSTOCK_DMR__POLICY", "nope", "`dmr.policy`: no policy 'nope'"),
        (
            "PENSTOCK_WORKFLOWS__STRATEGY",
            "nope",
            "`workflows.strategy`: no strategy 'nope' is installed",
        ),
        ("PENSTOCK_PROVISION__PRICING", "nope", "`provision.pricing`: no pricing 'nope'"),
        ("PENSTOCK_POOL__PLACEMENT", "nope", "`pool.placement`: no placement 'nope'"),
        ("PENSTOCK_SLURM__BACKEND", "mock", "`slurm.mock_socket` must be set"),
        ("PENSTOCK_SLURM__BACKEND", "pbs", "`slurm.backend`: no backend 'pbs' is installed"),
        ("PENSTOCK_DMR__POLICY", "broken", "`dmr.policy`: the policy 'broken' cannot be loaded"),
        ("PENSTOCK_WORKFLOWS__STRATEGY", "broken", "`workflows.strategy`: the strategy 'broken' cannot be loaded"),
        ("PENSTOCK_PROVISION__PRICING", "broken", "`provision.pricing`: the pricing 'broken' cannot be loaded"),
        ("PENSTOCK_POOL__PLACEMENT", "broken", "`pool.placement`: the placement 'broken' cannot be loaded"),
        ("PENSTOCK_SLURM__BACKEND", "broken", "`slurm.backend`: the backend 'broken' cannot be loaded"),
        ("PENSTOCK_MESSAGES__CHANNELS", "{broken: }", "`messages.channels`: the channel 'broken' cannot be loaded"),
        ("PENSTOCK_MESSAGES__CHANNELS", "{nope: }", "`messages.channels`: no channel 'nope' is installed"),
        ("PENSTOCK_MESSAGES__CHANNELS", "{mail: }", "`messages.channels`: 'mail' comes with Penstock"),
    ],
)
@pytest.mark.usefixtures("broken")
def test_check_finds_what_would_end_the_agent_though_the_file_can_be_read(file, variable, value, said):
    file.write_text("{}")
    done = CliRunner(env={"PENSTOCK_CONFIG": str(file), variable: value}).invoke(cli, ["config", "check"])
    assert isinstance(done.exception, ConfigError), done.output
    where = file if "mock_socket" in said else variable  # which nobody has set
    assert str(done.exception).startswith(f"{where}: {said}")


def test_check_names_the_line_of_a_wrong_value_and_the_nearest_that_is_installed(file):
    file.write_text("agent: {interval: 10}\ndmr:\n  policy: troughput\n")
    done = CliRunner().invoke(cli, ["config", "check", str(file)])
    said = str(done.exception)
    assert said.startswith(f"{file}:3: `dmr.policy`: no policy 'troughput' is installed (installed: ")
    assert said.endswith("); did you mean 'throughput'?")


def test_check_names_the_variables_that_it_has_checked(file, monkeypatch):
    variable = {"PENSTOCK_DMR__POLICY": "wide"}
    file.touch()
    done = CliRunner(env=variable).invoke(cli, ["config", "check", str(file)])
    assert done.output == f"{file}, PENSTOCK_DMR__POLICY: ok\n"
    monkeypatch.setattr("penstock.admin.commands.agent.find", lambda: None)
    monkeypatch.setattr("penstock.config.find", lambda _environ=None: None)
    assert CliRunner(env=variable).invoke(cli, ["config", "check"]).output == "defaults, PENSTOCK_DMR__POLICY: ok\n"


def test_check_takes_what_the_agent_takes(file):
    file.write_text("dmr: {listen: '[::1]:0'}\nslurm: {backend: auto}\n")
    done = CliRunner(env={"PENSTOCK_CONFIG": str(file)}).invoke(cli, ["config", "check"])
    assert (done.exit_code, done.output) == (0, f"{file}: ok\n")


# -- listening ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as e:
        pytest.skip(f"no IPv6 on this host: {e}")


def opened(config: Config) -> tuple[App, str]:
    """An agent whose doors were opened, and closed again, and where it tells applications to find it."""
    backend = virtual_cluster()
    app = App(config, backend, backend.clock, Store(":memory:"))

    async def run() -> str:
        await app.start()
        try:
            await app.open_doors()
            environment = app.part(WorkflowPart).controller.carrier.environment
            return " ".join(environment[n] for n in ("DMR_AGENT", "DMR_AGENT_OTHERS") if n in environment)
        finally:
            await app.close()

    return app, asyncio.run(run())


def settings(folder: Path, **more: dict[str, object]) -> Config:
    folder.mkdir(exist_ok=True)
    return config_of({"agent": {"state_dir": str(folder), **more.pop("agent", {})}, **more})


@pytest.mark.usefixtures("ipv6")
def test_an_address_of_ipv6_is_listened_at(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setattr(socket, "gethostname", lambda: "thishost")
    assert opened(settings(folder, dmr={"listen": "[::1]:0"}))[1].startswith("[::1]:")
    assert opened(settings(folder, dmr={"listen": "[::]:0"}))[1].startswith("thishost:")
    Metrics().serve("[::1]:0")


@pytest.mark.parametrize("host", ["no such host", "a..b"])
def test_a_name_that_no_host_can_have_is_a_wrong_configuration(tmp_path, host):
    with pytest.raises(ConfigError, match=r"`dmr\.listen`: cannot listen at"):
        opened(settings(tmp_path / "state", dmr={"listen": f"{host}:0"}))
    with pytest.raises(ConfigError, match=r"`metrics\.listen`: cannot listen at"):
        Metrics().serve(f"{host}:0")


@pytest.mark.parametrize("listen", ["127.0.0.1:{port}", "192.0.2.1:0"])
def test_what_may_pass_is_no_mistake_of_the_configuration(tmp_path, listen):
    """Or systemd would not start the agent again (RestartPreventExitStatus=78)."""
    folder = tmp_path / "state"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = listen.format(port=taken.getsockname()[1])
        with pytest.raises(NotNow, match=f"`dmr.listen`: cannot listen at {at}: .*address"):
            opened(settings(folder, dmr={"listen": at}))
        with pytest.raises(NotNow, match=f"`metrics.listen`: cannot listen at {at}: .*[aA]ddress"):
            Metrics().serve(at)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), NotNow),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ConfigError),
        (OSError("could not bind on any address out of [('192.0.2.1', 0)]"), NotNow),
        (PermissionError(errno.EACCES, "Permission denied"), ConfigError),
        (UnicodeError("label empty or too long"), ConfigError),
    ],
)
def test_what_an_address_that_cannot_be_listened_at_means(error, kind):
    assert type(cannot_listen("dmr.listen", "h:1", error)) is kind


def test_a_door_for_other_hosts_whose_port_is_taken_may_open_later(tmp_path):
    backend = virtual_cluster()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        config = settings(tmp_path / "state", agent={"shared": "yes", "listen": listen})
        leadership = hold_state(config, "agent")
        assert isinstance(leadership, Lease)
        app = App(config, backend, backend.clock, open_store(config, leadership), leadership=leadership)

        async def run() -> None:
            await app.start()
            try:
                await app.open_doors()
            finally:
                await app.close()

        try:
            with pytest.raises(NotNow, match=r"`agent\.listen`: cannot listen at"):
                asyncio.run(run())
        finally:
            leadership.close()


# -- reload ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def app(file, monkeypatch):
    file.write_text("agent: {interval: 5, idle_interval: 50}\nslurm: {min_interval: 1}\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    backend = virtual_cluster()
    made = App(load(), backend, backend.clock, Store(":memory:"))
    asyncio.run(made.start())
    return made


def test_a_reload_changes_what_can_change_while_running(app, file):
    file.write_text(
        "agent: {interval: 7, idle_interval: 70}\nslurm: {min_interval: 2}\ndmr: {cooldown: 9, accept_timeout: 8}\n"
    )
    app.reload()
    assert (app.loop.interval, app.loop.idle_interval, app.observer.min_interval) == (7, 70, 2)
    assert (
        app.part(MalleablePart).controller.settings.limits.cooldown,
        app.part(MalleablePart).controller.settings.limits.accept,
    ) == (9, 8)
    assert app.config.agent.interval == 7


@pytest.mark.parametrize(
    "text",
    ["agent: {intervall: 7}", "agent: {interval: soon}", "agent: [", "dmr: {policy: nope}\nagent: {interval: 7}"],
)
def test_a_reload_of_a_wrong_file_keeps_the_old_configuration(app, file, text):
    before, policy, limits = (
        app.config,
        app.part(MalleablePart).controller.settings.policy,
        app.part(MalleablePart).controller.settings.limits,
    )
    file.write_text(text)
    app.reload()
    assert app.config is before
    assert (app.part(MalleablePart).controller.settings.policy, app.part(MalleablePart).controller.settings.limits) == (
        policy,
        limits,
    )
    assert (app.loop.interval, app.loop.idle_interval, app.observer.min_interval) == (5, 50, 1)
    file.unlink()
    app.reload()
    assert app.config is before


@pytest.fixture
def broken(installed):
    """An installed package whose extensions cannot be imported, one of each kind."""
    installed({point.group: {"broken": "no_such_module:It"} for point in extension_points()})


@pytest.mark.usefixtures("broken")
def test_an_extension_that_cannot_be_loaded_is_a_wrong_configuration():
    with pytest.raises(ConfigError, match=r"`dmr\.policy`: the policy 'broken' cannot .*no_such_module"):
        make_policy("broken")
    with pytest.raises(ConfigError, match=r"`provision\.pricing`: the pricing 'broken' cannot .*no_such_module"):
        pricing_rules(config_of({"provision": {"pricing": "broken"}}))
    assert "no_such_module" in _trouble(lambda: make_policy("broken")).why, "what the doctor says"


def reloaded(app) -> float:
    return app.metrics.registry.get_sample_value("penstock_config_last_reload_successful")


def test_a_reload_always_ends_for_systemd_and_says_whether_it_did(app, file, broken, monkeypatch):
    said = []
    monkeypatch.setattr(sdnotify, "notify", said.append)
    app.serving = True
    before = app.config
    file.write_text("dmr: {policy: broken}\n")
    app.reload()
    assert [state.partition("\n")[0] for state in said] == ["RELOADING=1", "READY=1"]
    assert (reloaded(app), app.config) == (0, before)

    file.write_text("dmr: {policy: wide}\n")
    app.reload()
    assert (reloaded(app), app.config.dmr.policy) == (1, "wide")

    said.clear()
    monkeypatch.setattr(app.part(MessagesPart).messenger, "configure", lambda _config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        app.reload()
    assert [state.partition("\n")[0] for state in said] == ["RELOADING=1", "READY=1"]
    assert reloaded(app) == 0


@pytest.mark.parametrize(
    "text", ["workflows: {strategy: nope}", "provision: {pricing: nope}", "pool: {placement: nope}"]
)
def test_a_reload_and_a_start_refuse_what_the_check_refuses(app, file, text):
    before = app.config
    file.write_text(text)
    app.reload()
    assert (reloaded(app), app.config) == (0, before)
    with pytest.raises(ConfigError, match="nope"):
        asyncio.run(serve(load()))


def test_applications_are_told_of_all_hosts_on_which_the_agent_may_run(tmp_path):
    dmr = {"listen": "127.0.0.1:0", "advertise": "login1", "hosts": ["login1", "login2", "2001:db8::1"]}
    here, others = opened(settings(tmp_path / "a", dmr=dmr))[1].split()
    port = here.removeprefix("login1:")
    assert port.isdigit() and others == f"login2:{port},[2001:db8::1]:{port}"
    assert " " not in opened(settings(tmp_path / "b", dmr={"listen": "127.0.0.1:0"}))[1]


@pytest.mark.parametrize(("written", "meant"), [("yes", "yes"), ("no", "no"), ("'yes'", "yes"), ("auto", "auto")])
def test_yes_and_no_are_what_they_are_in_yaml(written, meant):
    told = yaml.safe_load(f"agent: {{shared: {written}}}")
    assert config_of(told).agent.shared == meant


@pytest.mark.parametrize("host", ["login1:9342", "", "a b", "a,b", "http://login1"])
def test_hosts_of_the_agent_are_names_without_a_port(host):
    with pytest.raises(ConfigError, match="without a port"):
        config_of({"dmr": {"hosts": [host]}})


def test_what_a_restart_alone_changes_is_named_and_stays_as_it_is(app, file):
    before = app.config
    assert taken_over(before, before) == (before, [])
    file.write_text(
        "agent: {interval: 6, serve: all, keep: 9d}\nmetrics: {listen: '127.0.0.1:1'}\n"
        "dmr: {advertise: x, cooldown: 7}\nworkflows: {grace: 9, strategy: perstage}\n"
        "provision: {ledger: /l}\nslurm: {min_interval: 2, timeout: 9}\n"
    )
    waiting = taken_over(before, load())[1]
    assert sorted(waiting) == [
        *("agent.serve", "dmr.advertise", "metrics.listen", "provision.ledger", "slurm.timeout", "workflows.grace")
    ]
    app.reload()
    for name in waiting:
        section, _, key = name.partition(".")
        assert getattr(getattr(app.config, section), key) == getattr(getattr(before, section), key)
    config = app.config
    assert (config.agent.interval, config.agent.keep, config.dmr.cooldown) == (6, 9 * 86400, 7)
    assert (app.observer.min_interval, app.observer.stale_after, reloaded(app)) == (2, 12, 1)
    assert not app._serves(os.geteuid() + 1)


@pytest.mark.parametrize(("predictor", "key"), [("queue", "watch_queue"), ("slurm", "ask_slurm")])
def test_a_predictor_needs_its_source(tmp_path, predictor, key):
    path = tmp_path / "c.yaml"
    path.write_text(f"asa: {{predictor: {predictor}, {key}: false}}")
    with pytest.raises(ConfigError, match=f"predictor {predictor} needs `{key}: true`"):
        load(path, {})
    path.write_text(f"asa: {{predictor: {predictor}}}")
    assert load(path, {}).asa.predictor == predictor


def test_each_value_says_where_it_comes_from(file):
    file.write_text("# mine\nagent:\n  interval: 90s\n\n  seed: 3\nasa:\nlog: {level: debug}\n")
    environ = {"PENSTOCK_AGENT__SEED": "4", "PENSTOCK_DMR__COOLDOWN": "1m", "OTHER__KEY": "x"}
    where = origins(file, environ)
    assert where["agent", "interval"] == f"{file}:3"
    assert where["agent", "seed"] == "PENSTOCK_AGENT__SEED"
    assert where["dmr", "cooldown"] == "PENSTOCK_DMR__COOLDOWN"
    assert where["log", "level"] == f"{file}:7"
    assert where["asa", "predictor"] == where["agent", "serve"] == DEFAULT
    values = values_of(load(file, environ))
    assert set(where) == {(section, key) for section, keys in values.items() for key in keys}


def test_without_a_file_all_are_defaults(tmp_path):
    assert set(origins(None, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}).values()) == {DEFAULT}


def show(path, *words, **environ):
    environ = {"PENSTOCK_CONFIG": str(path), **environ}
    done = CliRunner(env=environ).invoke(cli, ["config", *words])
    assert done.exit_code == 0, done.exception
    return done.output


def test_show_with_origins_is_a_configuration_file_itself(file, tmp_path):
    file.write_text("agent: {interval: 90s}\nasa: {alternatives: [1, 2]}\n")
    text = show(file, "show", "--origin", PENSTOCK_DMR__LISTEN="127.0.0.1:7")
    assert f"# {file}:1" in text
    assert "# PENSTOCK_DMR__LISTEN" in text
    (tmp_path / "again.yaml").write_text(text)
    assert load(tmp_path / "again.yaml", {}) == load(file, {"PENSTOCK_DMR__LISTEN": "127.0.0.1:7"})
    told = json.loads(show(file, "show", "--origin", "--json"))
    assert told["agent"]["interval"] == {"value": 90.0, "from": f"{file}:1"}
    assert json.loads(show(file, "show", "--json"))["asa"]["alternatives"] == [1.0, 2.0]
    assert yaml.safe_load(show(file, "show"))["agent"]["interval"] == 90.0


def test_the_schema_knows_every_key_and_nothing_else(file):
    file.write_text("")
    found = json.loads(show(file, "schema"))
    sections = {name: found["$defs"][part["$ref"].rpartition("/")[2]] for name, part in found["properties"].items()}
    values = values_of(load(file, {}))
    assert {name: set(part["properties"]) for name, part in sections.items()} == {n: set(k) for n, k in values.items()}
    assert all(part["additionalProperties"] is False for part in (found, *sections.values()))
    kinds = {kind["type"] for kind in sections["agent"]["properties"]["interval"]["anyOf"]}
    assert kinds == {"number", "string"}  # seconds, or text such as 90s
    assert sections["agent"]["properties"]["serve"]["enum"] == ["own", "all"]
    assert all(
        "description" in key for name, part in sections.items() if name != "log" for key in part["properties"].values()
    )


# -- what only an administrator may allow ------------------------------------------------------------------------------

AGEING = "workflows: {age_while_dependent: true}\n"


@pytest.fixture
def site_file(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.config.SITE", tmp_path / "site.yaml")
    return tmp_path / "site.yaml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own the site's file")
def test_the_sites_file_allows_ageing_for_those_with_a_file_of_their_own(file, site_file):
    file.write_text("log: {level: error}\n")
    assert not load(file, {}).workflows.age_while_dependent
    site_file.write_text(AGEING)
    assert load(file, {}).workflows.age_while_dependent
    assert load(site_file, {}).workflows.age_while_dependent
    file.write_text("workflows: {age_while_dependent: false}\n")
    assert not load(file, {}).workflows.age_while_dependent, "who has it may do without"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_nobody_else_can_allow_it(file, site_file):
    file.write_text(AGEING)
    for mode, owner in ((0o644, 1000), (0o666, 0), (0o664, 0)):
        file.chmod(mode)
        os.chown(file, owner, 0)
        with pytest.raises(ConfigError, match="age_while_dependent: only an administrator can allow this"):
            load(file, {})
        site_file.write_text(AGEING)
        site_file.chmod(mode)
        os.chown(site_file, owner, 0)
        file.write_text("log: {level: error}\n")
        assert not load(file, {}).workflows.age_while_dependent
        file.write_text(AGEING)


def test_nor_can_a_variable(tmp_path, site_file):
    variable = "PENSTOCK_WORKFLOWS__AGE_WHILE_DEPENDENT"
    with pytest.raises(ConfigError, match=f"^{variable}: workflows[.]age_while_dependent: only"):
        load(None, {variable: "true", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    without = load(None, {variable: "false", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert not without.workflows.age_while_dependent, "anybody may do without"

"""The pieces of what is installed: man pages, completions, package, image and guide. Put together in tests/slurm."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import get_completion_class

import manpages
from guide import GUIDE, blocks
from outside import need_program
from penstock.cli import cli
from penstock.config import config_of
from places import PROJECT

DEPLOY = PROJECT / "deploy"
SCRIPTS = [DEPLOY / "build-deb.sh", *sorted((DEPLOY / "image").iterdir())]
MAINTAINER = [DEPLOY / "debian" / name for name in ("postinst", "prerm", "postrm")]


def commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=names[-1])
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, *names, name)


COMMANDS = dict(commands(cli, "penstock"))


# -- man pages and completions -----------------------------------------------------------------------------------------


def test_every_command_has_a_man_page_that_says_what_it_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    written = {path.name: path.read_text() for path in manpages.write(tmp_path / "man")}
    assert set(written) == {"-".join(words) + ".1" for words, found in COMMANDS.items() if not found.hidden}
    for words, found in COMMANDS.items():
        text = written["-".join(words) + ".1"]
        assert text.startswith('.TH "') and '"1970-01-02"' in text.split("\n")[0]
        # What `whatis` and `apropos` read: one line, with a meaning.
        (name,) = re.findall(r"(?m)^\.SH NAME\n(.*)\n\.SH SYNOPSIS", text)
        assert re.fullmatch(r"penstock[\w\\-]* \\- \S.{10,}", name), name
        for parameter in found.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0].replace("-", "\\-") in text
        # A line that begins so is a request to troff, and one that it does not know is swallowed.
        begun = set(re.findall(r"(?m)^[.'](\w*)", text))
        assert begun <= {"TH", "ad", "nh", "SH", "PP", "TP", "IP", "nf", "fi"}, begun


def test_what_troff_would_take_for_its_own_is_written_so_that_it_shows():
    @click.command(help="First.\n\n.profile 'is' a \\n file.\n\n\b\n.a  -b\n'c'\n")
    @click.option("--x", help="y\n\n.z")
    def it(x: str) -> None: ...

    ((name, text),) = manpages.pages(it, "it")
    assert name == "it.1"
    assert "\n\\&.profile 'is' a \\en file.\n" in text
    assert "\n.nf\n\\&.a  \\-b\n\\&'c'\n.fi\n" in text
    assert "\n.IP\n\\&.z\n" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_can_be_read_by_their_shell(tmp_path, shell):
    kind = get_completion_class(shell)
    assert kind is not None
    script = tmp_path / "completion"
    script.write_text(kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE").source())
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in script.read_text()
    if shell == "bash" or shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True, timeout=60)


def test_completion_knows_the_commands():
    kind = get_completion_class("bash")
    assert kind is not None
    completion = kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    assert [item.value for item in completion.get_completions([], "sub")] == ["submit"]
    assert [item.value for item in completion.get_completions(["cluster"], "pre")] == ["prepare"]


# -- scripts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [*SCRIPTS, *MAINTAINER], ids=lambda path: path.name)
def test_shells_and_shellcheck_find_no_fault(script):
    shell = re.search(r"\b(bash|sh)$", script.read_text().split("\n")[0])
    assert shell
    subprocess.run([shell[1], "-n", str(script)], check=True, timeout=60)
    assert (script.stat().st_mode & 0o111 != 0) == (script in SCRIPTS), "who runs it?"
    check = [need_program("shellcheck", "shellcheck"), str(script)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_what_the_package_is_built_of_is_there():
    text = (DEPLOY / "build-deb.sh").read_text()
    named = set(re.findall(r'"\$SOURCE"?/([\w./{},*\[\]-]+)', text))
    library = "dmr/c/{Makefile,*.[ch],package/*,examples/*.c}"
    assert {"deploy/penstock-system.yaml", "systemd/penstock.service", library} <= named
    for name in named - {"plugins/slurm"}:  # which is taken along where it is there
        wide = subprocess.run(["bash", "-c", f"printf '%s\\n' {name}"], capture_output=True, text=True, cwd=PROJECT)
        for one in wide.stdout.split():
            assert one == "deploy/" or any(PROJECT.glob(one)), one


# -- folders that others may have made first ---------------------------------------------------------------------------


def own_folder(path: Path | str) -> subprocess.CompletedProcess[str]:
    script = f'set -euo pipefail; umask 000; . "{PROJECT}/scripts/own-folder.sh"; own_folder "$1"'
    return subprocess.run(["bash", "-c", script, "it", str(path)], capture_output=True, text=True, timeout=60)


def test_a_folder_is_made_that_others_cannot_write_to_and_is_used_again(tmp_path):
    for _ in range(2):
        done = own_folder(tmp_path / "a b" / "c")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (tmp_path / "a b" / "c").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("kind", ["link", "link/", "dangling", "file", "0775", "0777", "1777"])
def test_what_somebody_else_may_have_made_or_can_change_is_refused(tmp_path, kind):
    place = tmp_path / "place"
    if kind.startswith("link"):
        (tmp_path / "real").mkdir(mode=0o755)
        place.symlink_to(tmp_path / "real")
    elif kind == "dangling":
        place.symlink_to(tmp_path / "nothing")
    elif kind == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(int(kind, 8))
    done = own_folder(f"{place}/" if kind.endswith("/") else place)
    assert done.returncode == 1 and str(place) in done.stderr
    word = {"link": "is a link", "dangling": "is a link", "file": "is no folder"}.get(kind.rstrip("/"), "chmod go-w")
    assert word in done.stderr


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user has planted")


@ROOT_ONLY
def test_nobody_can_plant_the_environment_that_root_sets_up():
    planted = '#!/bin/sh\ntouch "$(dirname "$0")/ran"\n'
    with tempfile.TemporaryDirectory() as name:  # which ordinary users cannot read
        scripts = Path(name) / "scripts"
        shutil.copytree(PROJECT / "scripts", scripts)
        for folder in (".", "dmr", "lab"):
            (Path(name) / folder).mkdir(exist_ok=True)
            shutil.copy(PROJECT / folder / "pyproject.toml", Path(name) / folder)
        summed = subprocess.run(["cksum"], input=name, capture_output=True, text=True, check=True).stdout.split()[0]
        environment = Path(f"/var/tmp/penstock-venv-{summed}")
        (environment / "bin").mkdir(parents=True)
        try:
            python = environment / "bin" / "python"
            python.write_text(planted)
            python.chmod(0o755)
            os.chown(environment, 65534, 65534)
            words = [str(scripts / "setup.sh"), "none"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
            assert not (environment / "bin" / "ran").exists()
            assert done.returncode != 0 and f"setup: {environment} belongs to user id 65534" in done.stderr, done.stderr
        finally:
            shutil.rmtree(environment)


@ROOT_ONLY
def test_nobody_can_plant_a_package_beside_the_one_that_is_built(tmp_path):
    place = tmp_path / "penstock"
    place.mkdir()
    os.chown(place, 65534, 65534)
    done = subprocess.run([str(DEPLOY / "build-deb.sh"), str(place)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"build-deb: {place} belongs to user id 65534" in done.stderr


# -- the package -------------------------------------------------------------------------------------------------------


def test_dpkg_takes_the_control_file(tmp_path):
    build = (DEPLOY / "build-deb.sh").read_text()
    control = (DEPLOY / "debian" / "control").read_text()
    marks = set(re.findall(r"@\w+@", control))
    assert marks == set(re.findall(r"s\|(@\w+@)\|", build)), "each is filled in"
    laboratory = (DEPLOY / "debian" / "control-lab").read_text()
    assert set(re.findall(r"@\w+@", laboratory)) <= marks and "Depends: penstock (= @VERSION@)" in laboratory
    values = {"@VERSION@": "1.2+deb12", "@ARCHITECTURE@": "all", "@MAINTAINER@": "A <a@b.example>", "@SIZE@": "7"}
    values |= {"@PYTHON@": "3.11", "@NEXT_PYTHON@": "3.12"}
    for mark in marks:
        control = control.replace(mark, values[mark])
    place = tmp_path / "root" / "DEBIAN"
    place.mkdir(parents=True)
    (place / "control").write_text(control)
    for script in MAINTAINER:
        shutil.copy(script, place)
        (place / script.name).chmod(0o755)
    package = tmp_path / "it.deb"
    words = [need_program("dpkg-deb", "dpkg"), "--root-owner-group", "--build", str(tmp_path / "root"), str(package)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    fields = subprocess.run(["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True).stdout
    assert "Package: penstock\nVersion: 1.2+deb12\n" in fields
    assert "python3 (>= 3.11), python3 (<< 3.12)" in fields, "the environment is made for one Python"
    # A site may have a Slurm of its own.
    assert not re.search(r"(Depends|Recommends):.*slurm", fields)


def test_the_user_that_purge_removes_is_the_one_that_was_made():
    for unit in ("penstock", "penstock-site-view"):
        text = (PROJECT / "systemd" / f"{unit}.sysusers").read_text()
        made = re.search(r'^u penstock(?:-view)? - "(.+?)"', text, re.MULTILINE)
        assert made and f":{made[1]}:" in (DEPLOY / "debian" / "postrm").read_text()


# -- the image ---------------------------------------------------------------------------------------------------------


def dockerfile() -> list[tuple[str, str]]:
    """Its steps: the word, and the rest of the line."""
    lines = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text()).splitlines()
    return [(word, rest) for word, rest in (line.split(maxsplit=1) for line in lines if line and line[0] != "#")]


def test_the_dockerfile_names_what_is_there_and_what_runs_in_the_chroot():
    steps = dockerfile()
    known = {"ARG", "FROM", "RUN", "COPY", "ENV", "EXPOSE", "VOLUME", "HEALTHCHECK", "ENTRYPOINT"}
    assert {word for word, _ in steps} <= known
    stages = [rest.split() for word, rest in steps if word == "FROM"]
    names = {words[2] for words in stages if len(words) == 3 and words[1] == "AS"}
    placed = {}
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            source, target = rest.split()
            assert (PROJECT / source).exists(), source
            placed[target] = source
        for stage in re.findall(r"from=(\w+)", rest):
            assert stage in names
    inside = {Path(target).name: source for target, source in placed.items()}
    (entry,) = (yaml.safe_load(rest) for word, rest in steps if word == "ENTRYPOINT")
    assert inside[entry[0]] == "deploy/image/start.sh"
    (check,) = (rest.partition("CMD ")[2] for word, rest in steps if word == "HEALTHCHECK")
    assert inside[yaml.safe_load(check)[0]] == "deploy/image/health.sh"
    assert any("penstock-image-build" in rest for word, rest in steps if word == "RUN")
    # Without Docker the same scripts come to the same places.
    chroot = (DEPLOY / "image" / "chroot.sh").read_text()
    for name in ("build", "start"):
        assert f"upload '$HERE/{name}.sh' /usr/local/sbin/penstock-image-{name}" in chroot
        assert placed[f"/usr/local/sbin/penstock-image-{name}"] == f"deploy/image/{name}.sh"
    system = yaml.safe_load((DEPLOY / "penstock-system.yaml").read_text())
    ports = {system[section]["listen"].rsplit(":", 1)[1] for section in ("dmr", "metrics")}
    assert ports == set(next(rest for word, rest in steps if word == "EXPOSE").split())


def test_the_image_is_built_of_nothing_that_lies_about():
    """What build-deb.sh reads is there; no history, which would make each build another one."""
    kept = (PROJECT / ".dockerignore").read_text().splitlines()
    assert kept[1] == "*"
    allowed = [line[1:] for line in kept if line.startswith("!")]
    assert not any(name.startswith((".git", "tests")) for name in allowed)
    text = (DEPLOY / "build-deb.sh").read_text()
    for name in re.findall(r'"\$SOURCE"?/([\w.]+)', text):
        assert any(line.split("/")[0] == name for line in allowed), name
    for name in ("pyproject.toml", "hatch_build.py", "LICENSE", "agent"):
        assert name in allowed


def compose(name: str) -> dict[str, dict]:
    return yaml.safe_load((DEPLOY / name).read_text())


def test_the_compose_file_fits_the_image():
    ((name, service),) = compose("compose.yaml")["services"].items()
    assert f"exec -u pst-alice {name} " in (DEPLOY / "compose.yaml").read_text()
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert context == PROJECT and (context / service["build"]["dockerfile"]).is_file()
    text = (DEPLOY / "image" / "start.sh").read_text()
    for variable in service["environment"]:
        assert variable in text or variable.startswith("PENSTOCK_METRICS__")
    (port,) = service["ports"]
    assert re.fullmatch(r"127\.0\.0\.1:\S+:9341", port), "the metrics know no users, but are nobody else's business"


def test_the_hosts_of_the_other_one_are_those_of_its_slurm():
    said = compose("compose-nodes.yaml")
    slurm = dict(
        line.split("=", 1) for line in (DEPLOY / "site" / "slurm.conf").read_text().splitlines() if "=" in line
    )
    first, last = map(int, re.findall(r"n\[(\d+)-(\d+)\]", slurm["NodeName"])[0])
    nodes = {f"n{i}" for i in range(first, last + 1)}
    assert set(said["services"]) == {slurm["SlurmctldHost"], "login", *nodes}
    image, roles = said["services"]["controller"]["image"], (DEPLOY / "image" / "site.sh").read_text()
    hosts = {}
    for name, service in said["services"].items():
        assert service["hostname"] == name and service["image"] == image
        program, role = service["entrypoint"]
        assert program == "penstock-image-site" and f"\n{role}() {{" in roles
        assert role == ("node" if name in nodes else name)
        hosts[name] = service["networks"]["site"]["ipv4_address"]
    assert len(set(hosts.values())) == len(hosts)
    for service in said["services"].values():
        assert dict(line.split(":", 1) for line in map(unexpanded, service["extra_hosts"])) == {
            name: unexpanded(address) for name, address in hosts.items()
        }
    assert "exec -u pst-alice login " in (DEPLOY / "compose-nodes.yaml").read_text()


def unexpanded(text: str) -> str:
    """As it is with no variable set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


# Instead of unshare: late, and with nothing inside but a process 1 that is some time without a handler.
UNSHARE = """#!{python}
import os, time
time.sleep({before})
inside = 'sleep {until}; trap "exit 143" TERM; for i in $(seq 1200); do sleep 0.1; done'
os.execv("{unshare}", ["unshare", "--pid", "--fork", "--kill-child", "--", "bash", "-c", inside])
"""


@ROOT_ONLY
@pytest.mark.parametrize(("before", "until"), [(0.5, 0), (0, 0.5), (0, 30), (30, 0)])
def test_the_image_ends_however_early_it_is_told_to(tmp_path, before, until):
    unshare, real = tmp_path / "unshare", need_program("unshare", "util-linux")
    unshare.write_text(UNSHARE.format(python=sys.executable, before=before, until=until, unshare=real))
    unshare.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    noted = tmp_path / "image.pid"
    with subprocess.Popen([DEPLOY / "image" / "chroot.sh", "run", tmp_path / "image"], env=env) as running:
        deadline = time.monotonic() + 30
        while not (noted.exists() and noted.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        outer = int(noted.read_text())
        try:
            running.terminate()
            assert running.wait(30) in (1, 137, 143)
            assert not Path(f"/proc/{outer}").exists() and not noted.exists()
        finally:
            running.kill()
            if Path(f"/proc/{outer}").exists():
                os.kill(outer, signal.SIGKILL)


# -- the guide ---------------------------------------------------------------------------------------------------------


def test_the_guide_names_commands_and_files_that_exist():
    text = GUIDE.read_text()
    tried = [block for block in blocks(text) if block.ways]
    assert {way for block in tried for way in block.ways} == {"package", "pip", "self"}
    assert len(tried) == text.count("<!-- try:") >= 12, "a comment that is not understood marks nothing"
    fenced = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    code = "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))])
    called = re.findall(r"(?m)(?:^|-- |bin/|\$\()penstock ([a-z]+)(?: ([a-z]+))?", code)
    assert len(called) > 10
    for first, second in called:
        assert ("penstock", first) in COMMANDS, first
        if isinstance(COMMANDS["penstock", first], click.Group):
            assert ("penstock", first, second) in COMMANDS, (first, second)
    for name in re.findall(r"(?<![\w/.~])((?:deploy|systemd|scripts)/[\w./-]+)", code):
        assert (PROJECT / name).exists(), name
    for name in re.findall(r"\]\(([\w-]+\.md)", text):
        assert (GUIDE.parent / name).exists(), name
    headings = {
        re.sub(r"[^a-z -]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"(?m)^#+ (.*)", text)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings


@pytest.mark.parametrize("block", list(blocks(GUIDE.read_text())), ids=lambda block: f"line{block.line}")
def test_shells_can_read_the_blocks_of_the_guide(block):
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# -- what a site has around its services -------------------------------------------------------------------------------


def test_the_parser_of_apparmor_takes_the_profile():
    parser = shutil.which("apparmor_parser", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if parser is None:  # also in CI, which has no use for it else
        pytest.skip("no apparmor_parser here (Debian: apt-get install --no-install-recommends apparmor)")
    words = [parser, "--skip-kernel-load", "--skip-cache", "--kernel-features", "/etc/apparmor.d/abi/3.0"]
    subprocess.run([*words, str(DEPLOY / "apparmor" / "penstock-agent")], check=True, timeout=60, capture_output=True)


def test_the_profile_names_the_folders_of_the_unit_and_of_the_drop_in():
    profile = (DEPLOY / "apparmor" / "penstock-agent").read_text()
    for folder in ("/var/lib/penstock", "/run/penstock", "/etc/penstock", "/usr/lib/penstock", "/srv/penstock"):
        assert f"  {folder}/" in profile, folder


def test_the_role_of_ansible_has_what_its_page_says_and_a_configuration_that_is_right():
    role = DEPLOY / "ansible" / "roles" / "penstock"
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    assert not config_of(defaults["penstock_config"]).agent.state_dir.is_relative_to("/srv")
    page = (PROJECT / "docs" / "site-tools.md").read_text()
    assert set(re.findall(r"(?m)^\| `(penstock_\w+)` \|", page)) == set(defaults)
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    (handler,) = yaml.safe_load((role / "handlers" / "main.yml").read_text())
    assert {task["notify"] for task in tasks if "notify" in task} == {handler["name"]}
    used = set(re.findall(r"\bpenstock_[a-z]+", (role / "tasks" / "main.yml").read_text()))
    assert used - set(defaults) == {"penstock_drop", "penstock_known"}, "what it registers itself"

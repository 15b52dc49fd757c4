"""Where resizers are merged: on releases on which that was tried, and nowhere else. One merge ends slurmctld 25.11."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from penstock.api import Allocation, JobSpec, JobState
from penstock.config import load, values_of
from penstock.core.backends import make_backend
from penstock.errors import ConfigError, Infeasible
from penstock.resize.running.words import ResizePhase, Way
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import CommandResult
from penstock.values import merging
from penstock_lab.agent_world import APP, World, settled, virtual
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

MERGES = ["22.05.8", "22.05.9", "22.05.11", "24.11.5", "24.11.6", "26.05.5", "26.05.6", "26.05.12"]
UNKNOWN = ["20.11.9", "22.05", "22.05.7", "23.02.8", "23.11.10", "24.05.8", "24.11", "24.11.4", "25.05.0", "25.05.3"]
UNKNOWN += ["26.05.4", "26.11.0", "27.05.5", "99.11.9"]
ENDS = ["25.11", "25.11.0", "25.11.2", "25.11.7", "25.11.99", "26.05", "26.05.0", "26.05.1", "26.05.2", "26.05.3"]


def version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


# -- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", MERGES)
def test_where_it_was_tried_it_is_done(release):
    assert merging.why_not(version(release)) is None and not merging.kills(version(release))


@pytest.mark.parametrize("release", [*UNKNOWN, *ENDS])
def test_where_nobody_has_tried_or_it_ends_the_controller_it_is_not_done(release):
    why = merging.why_not(version(release))
    assert why is not None and why.startswith(f"Slurm is {release}, and ")
    assert merging.kills(version(release)) is (release in ENDS)
    assert ("ends slurmctld" in why) is (release in ENDS)


@pytest.mark.parametrize("release", [r for r in UNKNOWN if r.count(".") == 2])
def test_a_site_adds_what_it_has_tried_and_that_alone(release):
    added = (merging.added(release),)
    assert merging.why_not(version(release), added) is None
    later = (*version(release)[:2], version(release)[2] + 1)
    if merging.why_not(later) is not None:
        assert merging.why_not(later, added) is not None, "that patch, and no other"


@pytest.mark.parametrize("release", ENDS)
def test_nobody_adds_one_that_ends_the_controller(release):
    assert merging.why_not(version(release), (version(release),)) is not None
    with pytest.raises(ValueError):
        merging.added(release)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("[25.11.7]", "cannot be of 25.11, or 26.05.0 to 26.05.3, as one merge ends slurmctld"),
        ("[26.05.3]", "cannot be of 25.11, or 26.05.0 to 26.05.3"),
        ("[25.05]", "must be a release of Slurm with its patch, such as 25.05.3"),
        ("[25.5.3]", "must be a release of Slurm"),
        ("[newest]", "must be a release of Slurm"),
    ],
)
def test_the_configuration_names_the_key_and_what_would_be_right(tmp_path, value, told):
    file = tmp_path / "penstock.yaml"
    file.write_text(f"malleable:\n  merge_releases: {value}\n")
    with pytest.raises(ConfigError, match=r"`malleable\.merge_releases\.0`") as caught:
        load(file, {})
    assert told in str(caught.value)


def test_the_configuration_hands_added_releases_to_the_back_end(tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_text("malleable:\n  merge_releases: [25.05.3, '26.05.4']\n")
    config = load(file, {})
    assert config.malleable.merge_releases == ((25, 5, 3), (26, 5, 4))
    assert values_of(config)["malleable"]["merge_releases"] == ["25.05.3", "26.05.4"]
    backend = make_backend(config)
    assert isinstance(backend, CliBackend)
    assert backend._merge_releases == backend.on("far")._merge_releases == ((25, 5, 3), (26, 5, 4))


# -- the back ends -----------------------------------------------------------------------------------------------------

SHOWN = """Configuration data as of 1795249390
AccountingStorageType = accounting_storage/slurmdbd
ClusterName = c
MinJobAge = 300 sec
PriorityType = priority/multifactor
SLURM_VERSION = {release}
SelectType = select/linear
"""


def asked(backend: CliBackend, release: str) -> list[list[str]]:
    """The commands of a merge on that release; none of them finds a job."""
    commands: list[list[str]] = []

    async def answer(argv, **_):
        commands.append([str(word) for word in argv])
        if list(argv[:3]) == ["scontrol", "show", "config"]:
            return CommandResult(0, SHOWN.format(release=release), "")
        return CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified")

    backend._runner.run = answer
    with pytest.raises(Exception) as caught:
        asyncio.run(backend.merge(12, 11))
    commands.append([type(caught.value).__name__, str(caught.value)])
    return commands


@pytest.mark.parametrize("release", [*UNKNOWN, *ENDS])
def test_the_back_end_asks_for_the_release_and_refuses_before_anything_else(release):
    *commands, (error, text) = asked(CliBackend(), release)
    assert commands == [["scontrol", "show", "config"]]
    assert error == "Infeasible" and f"Slurm is {release}" in text


@pytest.mark.parametrize("release", MERGES)
def test_the_back_end_goes_on_where_it_was_tried(release):
    *commands, (error, _) = asked(CliBackend(), release)
    assert error == "NotFound" and any(argv[0] == "squeue" for argv in commands)


def test_the_back_end_goes_on_where_the_site_has_tried_it():
    *_, (error, _) = asked(CliBackend(merge_releases=[(25, 5, 3)]), "25.05.3")
    assert error == "NotFound"
    *commands, (error, _) = asked(CliBackend(merge_releases=[(25, 11, 7)]), "25.11.7")
    assert (error, commands) == ("Infeasible", [["scontrol", "show", "config"]])


@virtual
async def test_the_simulated_controller_ends_as_the_real_one_does():
    backend = virtual_cluster(ClusterConfig(version=(25, 11, 7)), "alice")
    assert (await backend.site()).release == "25.11.7"
    job = await backend.submit(JobSpec("a", "#!/bin/sh\nsleep 100\n", 1, 600.0))
    resizer = await backend.allocate(Allocation("b", 1, 600.0, expands=job), 1.0)
    with pytest.raises(SystemExit, match=r"slurmctld 25\.11\.7"):
        await backend.merge(resizer, job)


# -- the whole agent ---------------------------------------------------------------------------------------------------


def merges(world: World) -> list[str]:
    """What the agents of this world have asked to be merged."""
    return [
        i["subject"] for i in world.store.connection._db.execute("SELECT subject FROM intents WHERE verb = 'merge'")
    ]


@pytest.mark.parametrize("backend", ["auto", "merge"])
@pytest.mark.parametrize("release", ["25.11.7", "25.05.3", "26.05.3", "24.11.4", "27.05.0"])
@virtual
async def test_a_program_that_can_only_be_merged_into_keeps_its_size_and_is_told(tmp_path, release, backend):
    """The simulated slurmctld of these releases does not survive a merge: it would take the test along."""
    world = World(tmp_path, {"malleable": {"backend": backend}}, version=version(release))
    await world.boot()
    program = await world.malleable(seconds=600)
    before = world.now
    await world.until(lambda: world.now > before + 120)
    assert program.sizes == [2] and merges(world) == []
    assert not [j for j in world.engine.records.values() if isinstance(j.spec, Allocation)], "nothing was asked for"
    assert f"Slurm is {release}" in program.told
    (reason,) = {
        t for d in world.store.decisions.of(f"job {program.job}") for c, t in d["reasons"] if c == "no-expansion"
    }
    assert f"Slurm is {release}" in reason


@virtual
async def test_a_program_that_can_use_companions_grows_on_any_release(tmp_path):
    world = World(tmp_path, version=(25, 11, 7))
    await world.boot()
    program = await world.malleable(seconds=600, **APP["companion"])
    await world.until(lambda: program.sizes[-1] == 8)
    assert merges(world) == []


@pytest.mark.parametrize("backend", ["auto", "merge"])
@virtual
async def test_an_agent_for_all_merges_nothing_into_a_job_of_another_user(tmp_path, backend):
    """What its resizer brings would be charged to it, past the owner's limits: D2 of issue 21."""
    world = World(tmp_path, {"malleable": {"backend": backend}}, operator=True)
    await world.boot()
    program = await world.malleable(seconds=600, **(APP["launcher"] if backend == "merge" else {}))
    before = world.now
    await world.until(lambda: world.now > before + 120)
    assert program.sizes == [2] and merges(world) == []
    assert not [j for j in world.engine.records.values() if isinstance(j.spec, Allocation)]
    assert "would be charged to root, past the limits of alice" in program.told


@pytest.mark.parametrize("upgrade", ["another release", "an agent for all"])
@pytest.mark.parametrize("phase", [ResizePhase.ALLOCATING, ResizePhase.MERGING])
@virtual
async def test_what_an_older_agent_has_begun_to_merge_is_cleaned_up(tmp_path, phase, upgrade):
    """Slurm was upgraded while a resizer was granted, or the agent, which merged into jobs of others up to 0.1.0."""
    world = World(tmp_path, {"malleable": {"backend": "merge"}})
    await world.boot()
    program = await world.malleable(seconds=3000)
    name = f"penstock-{program.job}-abc"
    await world.until(lambda: program.job in world.malleables.jobs)
    me = world.malleables.jobs[program.job]
    owner = world.agents
    if upgrade == "an agent for all":
        owner = world.backend.as_user("root")
    resizer = await owner.allocate(Allocation(name, 2, 600.0, expands=program.job), 1.0)
    number = resizer if phase is ResizePhase.MERGING else None
    begun = replace(me, phase=phase, epoch=1, since=world.now, origin=2, target=4, way=Way.MERGE)
    world.malleables.registry.put(replace(begun, resizer_name=name, resizer=number))
    world.kill()
    if upgrade == "another release":
        world.engine.config = replace(world.engine.config, version=(25, 11, 7))
    else:
        world.agents = owner
        world.config = replace(world.config, agent=replace(world.config.agent, serve="all"))
    await world.boot()
    await world.until(lambda: world.engine.records[resizer].state.ended)
    assert world.engine.records[resizer].state is JobState.CANCELLED
    await world.until(lambda: settled(world, program))
    assert program.sizes == [2] and merges(world) == [] and world.resizers() == []


@virtual
async def test_the_agent_takes_a_refusal_by_the_back_end_for_an_answer(tmp_path):
    """The last barrier: slurmctld became another release since the agent looked at the site."""
    world = World(tmp_path, {"malleable": {"backend": "merge"}})
    await world.boot()
    program = await world.malleable(seconds=600)
    world.app.backend.failing = lambda method: Infeasible("Slurm is 25.11.7") if method == "merge" else None
    before = world.now
    await world.until(lambda: world.now > before + 120)
    assert program.sizes == [2] and world.resizers() == []

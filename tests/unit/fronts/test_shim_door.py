"""Whom the door answers, and from which look."""

from __future__ import annotations

import asyncio
import os

from penstock.errors import SlurmUnavailable
from penstock.slurm.raw_looks import RawText
from penstock_fronts.door import ShimDoor, site_of

CONFIG = "ClusterName             = c\nSLURM_VERSION           = 22.05.8\nPrivateData             = none\n"


def test_the_site():
    site = site_of(CONFIG, "PartitionName=batch\n   AllowGroups=ALL Hidden=NO")
    assert (site.cluster, site.release) == ("c", (22, 5, 8))
    assert not (site.private or site.hidden or site.federated)
    assert site_of(CONFIG.replace("none", "jobs"), "AllowGroups=ALL").private
    assert site_of(CONFIG, "AllowGroups=wheel").hidden
    assert site_of(CONFIG, "AllowGroups=ALL Hidden=YES").hidden
    assert site_of(CONFIG + "FederationParameters    = fed_display\n", "").federated


class Looks:
    """Slurm, of one job of user 7."""

    def __init__(self, config: str = CONFIG) -> None:
        self.config, self.asked, self.down = config, [], False

    async def squeue(self, letters: str, *options: str) -> RawText:
        self.asked.append(("squeue", *options))
        if self.down:
            raise SlurmUnavailable("away")
        job = {"i": "1", "A": "1", "F": "1", "T": "RUNNING", "U": "7"}
        lines = ["".join(f"{text}<" for text in row) for row in (letters, [job.get(one, "x") for one in letters])]
        return RawText("\n".join(lines) + "\n", "<")

    async def sacct(self, *options: str) -> RawText:
        raise AssertionError(options)

    async def scontrol(self, *words: str) -> RawText:
        return RawText(self.config if "config" in words else "AllowGroups=ALL")

    async def clusters(self) -> frozenset[str]:
        return frozenset({"c"})


def ask(door: ShimDoor, *words: str, uid: int | None = None, **environ: str) -> dict[str, object]:
    request = {"program": "squeue", "words": list(words), "environ": environ}
    told = asyncio.run(door.answer(os.geteuid() if uid is None else uid, request))
    assert isinstance(told, dict)
    return told


def test_the_door_serves_its_own_user_and_lets_others_through():
    looks = Looks()
    door = ShimDoor(looks, 5.0, environment={"SLURM_CONF": "/etc/s"})  # type: ignore[arg-type]
    good = {"SLURM_CONF": "/etc/s"}
    assert ask(door, "-h", "-o", "%i %T", **good) == {"out": "1 RUNNING\n", "err": "", "code": 0}
    assert ask(door, "-h", "-o", "%T", **good)["out"] == "RUNNING\n"
    assert len(looks.asked) == 1
    for told in (
        ask(door, "-h", uid=12345, **good),
        ask(door, "-h"),
        ask(door, "-h", SLURM_CONF="/other"),
        ask(door, "-o", "%S", TZ="Asia/Tokyo", **good),
        ask(door, "-j", "77", **good),
        ask(door, "--nothing", **good),
    ):
        assert list(told) == ["through"]
    assert door.answers == {("squeue", "served"): 2, ("squeue", "through"): 6}


def test_no_look_is_no_empty_queue():
    looks = Looks()
    looks.down = True
    told = ask(ShimDoor(looks, 5.0, environment={}), "-h")  # type: ignore[arg-type]
    assert told == {"through": "no look: away"}


def test_an_agent_of_all_serves_others_unless_slurm_hides_something():
    door = ShimDoor(Looks(), 15.0, shared=True, environment={})  # type: ignore[arg-type]
    assert ask(door, "-h", "-o", "%i", uid=12345)["out"] == "1\n"
    private = ShimDoor(Looks(CONFIG.replace("none", "jobs")), 15.0, shared=True, environment={})  # type: ignore[arg-type]
    assert "PrivateData" in str(ask(private, "-h", uid=12345)["through"])

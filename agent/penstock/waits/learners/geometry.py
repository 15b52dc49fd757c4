"""Classes of geometries: which jobs are learned of together, under which key, and which other classes are like one.

The ASA paper, section 4.3, learns per job geometry. Sizes, limits and memory fall into classes that double, fair
share into four bands. A class that nothing is known of starts from those that differ least (`neighbours`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from penstock.api import Geometry
from penstock.values.gres import asked_gres

__all__ = ["Class", "classify", "distance", "key_of", "neighbours", "parse"]

_QUARTER_HOUR: Final = 900.0
_LONGEST: Final = 12
_BANDS: Final = (0.25, 0.5, 0.75)
_NONE: Final = -1

_FAR: Final = 6.0
"""Classes that differ by more than this are no help to each other."""
_OTHER_PARTITION: Final = 5.0
_OTHER_GRES: Final = 5.0
_OTHER_FEATURES: Final = 4.0
_OTHER_QOS: Final = 3.0
_OTHER_ACCOUNT: Final = 1.0
_UNKNOWN: Final = 0.5
_STEPS: Final = {"size": 1.0, "limit": 0.5, "memory": 0.5, "band": 0.5, "gres_count": 1.0}


@dataclass(frozen=True, slots=True)
class Class:
    """A class of geometries. `size`, `limit`, `memory` and `gres_count` are exponents of two: nodes from 2^size on,
    limits up to 15 min * 2^limit, memory from 2^memory GB on; -1 stands for none or not known. `band` is 0 (below a
    quarter of the fair share) to 3."""

    cluster: str
    partition: str
    qos: str
    account: str
    user: str
    band: int
    size: int
    limit: int
    gres: str
    gres_count: int
    memory: int
    features: str

    @property
    def key(self) -> str:
        """A stable key, the fields in their order; "/" and "%" in texts are written as in a URL."""
        return "/".join(quote(str(field), safe=" :,&|*[]()=+@") for field in astuple(self))


def classify(geometry: Geometry, *, per_user: bool = True) -> Class:
    """The class of a geometry; not `per_user`: the same for all users."""
    limit = 0
    while geometry.time_limit > _QUARTER_HOUR * 2**limit and limit < _LONGEST:
        limit += 1
    gres, count = _gres(geometry.gres)
    return Class(
        geometry.cluster,
        geometry.partition,
        geometry.qos,
        geometry.account,
        geometry.user if per_user else "",
        _NONE if geometry.share is None else sum(geometry.share >= edge for edge in _BANDS),
        max(geometry.nodes, 1).bit_length() - 1,
        limit,
        gres,
        count.bit_length() - 1,
        _NONE if not geometry.memory else max(math.frexp(geometry.memory / 1024)[1] - 1, 0),
        geometry.features,
    )


def key_of(geometry: Geometry) -> str:
    """The key of the geometry's class."""
    return classify(geometry).key


def _gres(text: str) -> tuple[str, int]:
    """Types without their counts, and all counts together: "gpu:a100:2,lic" -> ("gpu:a100,lic", 3)."""
    try:
        asked = asked_gres(text)
    except ValueError:  # not for Slurm either
        return text, 1
    names = (f"{item.name}:{item.type}" if item.type else item.name for item in asked)
    return ",".join(sorted(names)), sum(item.number for item in asked)


@lru_cache(maxsize=8192)
def parse(key: str) -> Class | None:
    """The class that has this key; None for another text."""
    parts = [unquote(part) for part in key.split("/")]
    if len(parts) != len(Class.__dataclass_fields__):
        return None
    cluster, partition, qos, account, user, band, size, limit, gres, count, memory, features = parts
    try:
        numbers = int(band), int(size), int(limit), int(count), int(memory)
    except ValueError:
        return None
    return Class(cluster, partition, qos, account, user, *numbers[:3], gres, *numbers[3:], features)


def distance(one: Class, other: Class) -> float:
    """How much two classes differ; infinite between clusters. 0 for the same, and symmetric."""
    if one.cluster != other.cluster:
        return math.inf
    result = _OTHER_PARTITION * (one.partition != other.partition) + _OTHER_FEATURES * (one.features != other.features)
    result += _OTHER_GRES * (one.gres != other.gres) + _differ(one.qos, other.qos, _OTHER_QOS)
    result += _differ(one.account, other.account, _OTHER_ACCOUNT) + _differ(one.user, other.user, _OTHER_ACCOUNT)
    for name, weight in _STEPS.items():
        here, there = getattr(one, name), getattr(other, name)
        known = name == "size" or name == "limit" or _NONE not in (here, there)
        result += weight * abs(here - there) if known else _UNKNOWN * (here != there)
    return result


def _differ(one: str, other: str, weight: float) -> float:
    """A default that is not named may well be the very one that is."""
    if one == other:
        return 0.0
    return weight if one and other else min(weight, _UNKNOWN)


def neighbours(wanted: Class, keys: Iterable[str], most: int) -> list[tuple[float, str]]:
    """The (distance, key) of at most `most` of these that are like the class, itself included, nearest first."""
    found = []
    for key in keys:
        other = parse(key)
        if other is not None and (apart := distance(wanted, other)) <= _FAR:
            found.append((apart, key))
    return sorted(found)[:most]

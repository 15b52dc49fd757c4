"""What the site and the configuration say about resizes; the policy and the deadlines change with a reload."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.api import JointPolicy, ResizePolicy, SiteConfig
from penstock.resize.running.caps import Caps
from penstock.resize.running.ways import Preference
from penstock.resize.running.words import Deadlines
from penstock.values.merging import Version

__all__ = ["MalleableSettings"]


@dataclass(slots=True)
class MalleableSettings:
    """`preference` is `malleable.backend`; `merge_releases` and `extend` are the keys of those names. `site` is None
    until it has been looked at, and nothing grows before. `all`: jobs of all users are served."""

    policy: ResizePolicy | JointPolicy
    limits: Deadlines
    preference: Preference = "auto"
    site: SiteConfig | None = None
    all: bool = False
    caps: Caps = field(default_factory=Caps)
    merge_releases: tuple[Version, ...] = ()
    extend: bool = False

"""JupyterHub: `c.JupyterHub.spawner_class = "penstock"`.

batchspawner's SlurmSpawner, with profiles whose expected waits the user sees before choosing, and with the job's place
in the queue while it waits. Without an agent it is the same, and says nothing of waits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from batchspawner import SlurmSpawner
from traitlets import Dict, Float, List, Unicode, default, validate

from penstock_portals.asking import AgentRefusal, AgentSilent, find_socket
from penstock_portals.jobstates import PENDING_RE, RUNNING_RE, UNKNOWN_RE
from penstock_portals.profiles import WISHED, checked, chosen, form_html, pending_text, request_of, wish_of
from penstock_portals.shared import SharedAnswers

__all__ = ["PenstockSpawner"]

_LEAST_PROGRESS, _MOST_PROGRESS = 5, 90
_ANSWERS = SharedAnswers()
"""Of all users of this hub."""


class PenstockSpawner(SlurmSpawner):
    """Spawns servers as Slurm jobs of the profile that the user chooses."""

    profiles = List(
        Dict(),
        help="What users choose from, in this order. Each has a `name` of its own, a `title`, and what it asks of "
        "Slurm: partition, runtime, memory, nprocs, gres, options, and what else `batch_script` has.",
    ).tag(config=True)
    penstock_socket = Unicode(help="The agent's socket; default: that of the site's agent.").tag(config=True)
    penstock_patience = Float(
        1.0, help="Seconds that the agent's answer may take; the page is shown without waits then."
    ).tag(config=True)

    state_pending_re = Unicode(PENDING_RE).tag(config=True)
    state_running_re = Unicode(RUNNING_RE).tag(config=True)
    state_unknown_re = Unicode(UNKNOWN_RE).tag(config=True)

    _expected: Mapping[str, Any] | None = None
    _submitted = 0.0

    @validate("profiles")
    def _valid_profiles(self, proposal: Mapping[str, Any]) -> list[dict[str, str]]:
        names = (name[len("req_") :] for name in self.trait_names() if name.startswith("req_"))
        return checked(proposal["value"], sorted(names))

    @default("penstock_socket")
    def _site_socket(self) -> str:
        return find_socket(os.environ)

    @default("options_form")
    def _form_of_profiles(self) -> Any:  # noqa: ANN401
        return _waits_form if self.profiles else ""

    @default("apply_user_options")
    def _nothing_to_apply(self) -> Any:  # noqa: ANN401
        """The profile is looked up when its job is submitted: JupyterHub has nothing to warn of."""
        return lambda _spawner, _options: None

    def options_from_form(self, formdata: Mapping[str, list[str]]) -> dict[str, str]:
        """What of the form is kept: the name of the profile. ValueError where there is none such."""
        options = {"profile": formdata["profile"][0]} if formdata.get("profile") else {}
        return {"profile": chosen(self.profiles, options)["name"]} if self.profiles else {}

    def _request(self) -> dict[str, str]:
        """What the chosen profile asks of Slurm. ValueError where there is none such."""
        return request_of(chosen(self.profiles, self.user_options)) if self.profiles else {}

    def get_req_subvars(self) -> dict[str, Any]:
        """What is asked of Slurm, with the profile's part of it."""
        asked: dict[str, Any] = super().get_req_subvars()
        try:
            return {**asked, **self._request()}
        except ValueError:  # of a server that runs since before its profile was taken away: it can be stopped still
            return asked

    async def start(self) -> Any:  # noqa: ANN401
        """Submit the job and wait until its server runs. ValueError where the user's options name no profile."""
        self._submitted = time.monotonic()
        found = await self._told([self._wish(self._request())])
        self._expected = found["jobs"][0] if found else None
        return await super().start()

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What there is to say while the job waits, each time that it is something new."""
        said = ""
        while True:
            event = await self._event()
            if event["message"] != said:
                said = event["message"]
                yield event
            if self.state_isrunning():
                return
            await asyncio.sleep(1)

    async def _event(self) -> dict[str, Any]:
        if self.state_isrunning():
            return {"message": "The job runs; its server starts.", "progress": _MOST_PROGRESS}
        if not self.state_ispending():
            return {"message": "The job is being submitted."}
        waited = time.monotonic() - self._submitted
        text = pending_text(waited, self._expected, await self._turn())
        most = (self._expected or {}).get("p95")
        if most is None:
            return {"message": text}
        part = min(waited / max(most, 1.0), 1.0)
        return {"message": text, "progress": round(_LEAST_PROGRESS + (_MOST_PROGRESS - _LEAST_PROGRESS) * part)}

    def _wish(self, request: Mapping[str, str]) -> dict[str, Any]:
        """The job of a profile's request. Not by `get_req_subvars`: that fixes the server's environment too early."""
        return wish_of({**{name: getattr(self, f"req_{name}") for name in WISHED}, **request})

    async def _told(self, wishes: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What the agent expects of these; None where it does not say."""
        try:
            return await _ANSWERS.expect(self.penstock_socket, wishes, self.penstock_patience)
        except (AgentSilent, AgentRefusal) as e:
            self.log.warning("Expected waits are not known: %s", e)
            return None

    async def _turn(self) -> dict[str, Any] | None:
        try:
            return await _ANSWERS.turn(self.penstock_socket, int(self.job_id), self.penstock_patience)
        except (AgentSilent, AgentRefusal, ValueError) as e:  # it may not have seen the job yet
            self.log.debug("The place in the queue is not known: %s", e)
            return None


async def _waits_form(spawner: PenstockSpawner) -> str:
    """The form, with what the agent expects of each profile now."""
    wishes = [spawner._wish(request_of(profile)) for profile in spawner.profiles]
    return form_html(spawner.profiles, await spawner._told(wishes), spawner.start_timeout)

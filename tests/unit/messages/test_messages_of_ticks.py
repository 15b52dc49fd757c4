"""What `penstock tick` sends before it ends, where no agent runs."""

from __future__ import annotations

import json

FLOW = """
name: failing
stages:
  - {name: a, nodes: 1, time: 60, expect: 1, run: exit 3}
"""


def test_a_tick_sends_what_it_has_to_tell_and_the_next_one_does_not_repeat_it(site):
    heard, program = site.folder / "heard", site.folder / "hear"
    program.write_text(f"#!/bin/sh\ncat >> {heard}\necho >> {heard}\n")
    program.chmod(0o755)
    site.configure(messages={"command": [str(program)]})
    (site.folder / "w.yaml").write_text(FLOW)
    assert site.run("tick").returncode == 0
    assert site.run("submit", "w.yaml", "--tick", "--strategy", "perstage").returncode == 0

    def ended() -> bool:
        done = site.run("tick", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return heard.exists()

    site.until(ended, "the message of a tick")
    assert site.run("tick").returncode == 0
    (told,) = [json.loads(line) for line in heard.read_text().split("\n") if line]
    assert (told["kind"], told["details"]["stage"]) == ("stage-failed", "a")
    (row,) = json.loads(site.run("message", "list", "--json").stdout)["messages"]
    assert (row["key"], row["state"]) == (told["key"], "sent")

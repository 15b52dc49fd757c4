"""The app of a portal as Open OnDemand runs it: a copy of its folder, the system's Python, its address there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from places import PROJECT

PAGES = PROJECT / "docs" / "tools"
PORTALS = PROJECT / "plugins" / "portals"
WHERE = "/pun/sys/penstock"

# What Passenger hands over, as far as an app may look at it; and a dashboard's page beside the app.
_SERVER = """
import sys, importlib.util, wsgiref.simple_server as simple, wsgiref.util as util
folder, where, pages = sys.argv[1:]
spec = importlib.util.spec_from_file_location("passenger_wsgi", folder + "/passenger_wsgi.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

def portal(environ, start_response):
    if environ["PATH_INFO"].startswith(where):
        environ["PATH_INFO"] = environ["PATH_INFO"][len(where):]
        environ["SCRIPT_NAME"] = where
        return module.application(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
    with open(pages + environ["PATH_INFO"], "rb") as file:
        return [file.read()]

server = simple.make_server("127.0.0.1", 0, portal)
print(server.server_port, flush=True)
server.serve_forever()
"""


def example(page: str, language: str) -> str:
    """The first example in this language of a tool's page."""
    found = re.search(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, page
    return found[1]


class Portal:
    """One user's app; `pages` are files that lie beside it, by name."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        pages: Mapping[str, str] | None = None,
        start: Callable[..., subprocess.Popen[str]] = subprocess.Popen,
    ) -> None:
        app = folder / "app"
        commands = example("ondemand.md", "sh").replace("/var/www/ood/apps/sys/penstock", shlex.quote(str(app)))
        subprocess.run(["bash", "-euc", commands], cwd=PROJECT, check=True)
        for name, text in (pages or {}).items():
            (folder / name).write_text(text)
        words = ["/usr/bin/python3", "-IS", "-c", _SERVER, str(app), WHERE, str(folder)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHON", "XDG_"))}
        self.process = start(
            words, env={**clean, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.host = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.url = f"{self.host}{WHERE}"

    def get(self, where: str = "", method: str = "GET") -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of one answer."""
        request = urllib.request.Request(f"{self.url}{where}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, e.read().decode()

    def json(self, where: str) -> tuple[int, dict]:
        status, _, text = self.get(where)
        return status, json.loads(text)

    def down(self) -> None:
        self.process.kill()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

"""Runs inside a Python that has loaded the sanitizers: calls the plain part of libdmr, one task per line of stdin.

A task is a JSON list: a function's name and its arguments; the answer one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys

LIBRARY = ctypes.CDLL(sys.argv[1])
KINDS = ("done", "check", "failure")


class Request(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("too_long", ctypes.c_bool),
    ]


class Limits(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("size", "minimum", "maximum", "factor", "preferred", "per_node")),
        ("nodes", ctypes.POINTER(ctypes.c_char_p)),
        ("node_count", ctypes.c_int),
        ("companion", ctypes.c_bool),
    ]


class Reply(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("word", ctypes.c_char * 32),
        *((name, ctypes.c_int) for name in ("size", "epoch", "per_node", "companion")),
        ("nodes", ctypes.POINTER(ctypes.c_char_p)),
        ("node_count", ctypes.c_int),
        ("text", ctypes.c_char * 501),
        ("node_request", ctypes.c_char_p),
    ]


class Layout(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("worlds", "node_count", "size")),
        *((name, ctypes.POINTER(ctypes.c_int)) for name in ("jobs", "world_of", "places")),
    ]


class Worlds(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int),
        ("tickets", ctypes.POINTER(ctypes.c_char_p)),
        ("ports", ctypes.POINTER(ctypes.c_char_p)),
    ]


class Bounds(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("minimum", "maximum", "factor", "preferred")]


for name in ("check", "accept", "refuse", "finished"):
    getattr(LIBRARY, f"dmr_wire_{name}").restype = Request
LIBRARY.dmr_wire_line.restype = ctypes.c_void_p
LIBRARY.dmr_wire_reply.restype = ctypes.c_char_p
LIBRARY.dmr_credential.restype = ctypes.c_void_p
LIBRARY.dmr_client_new.restype = ctypes.c_void_p
LIBRARY.dmr_client_start.restype = ctypes.c_void_p
LIBRARY.dmr_client_start.argtypes = [ctypes.c_void_p, Request, ctypes.c_bool]
LIBRARY.dmr_client_finish.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Reply)]
LIBRARY.dmr_client_finish.restype = ctypes.c_bool
for name in ("layout_make", "line_start", "line_joined", "line_ready", "line_node_request"):
    getattr(LIBRARY, f"dmr_{name}").restype = ctypes.c_bool
for name in ("node", "reachable", "bounds_read"):
    getattr(LIBRARY, f"dmr_wire_{name}" if name == "node" else f"dmr_{name}").restype = ctypes.c_bool
FREE = ctypes.CDLL(None).free
FREE.argtypes = [ctypes.c_void_p]


def names(nodes: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(nodes))(*(node.encode() for node in nodes))


def owned(pointer: int | None) -> str | None:
    if not pointer:
        return None
    text = ctypes.string_at(pointer).decode()
    FREE(pointer)
    return text


def sha256(text: str, key: str | None) -> str:
    out, data = ctypes.create_string_buffer(65), text.encode()
    if key is None:
        LIBRARY.dmr_sha256_hex(data, ctypes.c_size_t(len(data)), out)
    else:
        secret = key.encode()
        LIBRARY.dmr_hmac_hex(secret, ctypes.c_size_t(len(secret)), data, ctypes.c_size_t(len(data)), out)
    return out.value.decode()


def make(kind: str, job: int, epoch: int, rest: dict[str, object]) -> Request:
    if kind == "check":
        nodes = rest.pop("nodes")
        limits = Limits(**rest, nodes=names(nodes), node_count=len(nodes))
        return LIBRARY.dmr_wire_check(job, epoch, ctypes.byref(limits))
    if kind == "refuse":
        return LIBRARY.dmr_wire_refuse(job, epoch, rest["why"].encode("utf-8", "surrogatepass"))
    if kind == "finished":
        nodes = rest["nodes"]
        seconds = (ctypes.c_double(rest["spawn"]), ctypes.c_double(rest["move"]))
        return LIBRARY.dmr_wire_finished(job, epoch, rest["size"], names(nodes), len(nodes), *seconds)
    return LIBRARY.dmr_wire_accept(job, epoch)


def request(kind: str, job: int, epoch: int, rest: dict[str, object]) -> list[object]:
    """The line to send, signed with what DMR_KEY_FILE names, or the problem."""
    made = make(kind, job, epoch, rest)
    digest, problem = ctypes.create_string_buffer(65), ctypes.create_string_buffer(400)
    LIBRARY.dmr_wire_digest(ctypes.byref(made), digest)
    auth = owned(LIBRARY.dmr_credential(digest, problem))
    line = None if auth is None else owned(LIBRARY.dmr_wire_line(ctypes.byref(made), auth.encode()))
    LIBRARY.dmr_request_free(ctypes.byref(made))
    return [line, problem.value.decode()]


def fields(it: Reply) -> dict[str, object]:
    nodes = [it.nodes[i].decode() for i in range(it.node_count)]
    out = {"kind": KINDS[it.kind], "word": it.word.decode(), "text": it.text.decode(), "nodes": nodes}
    out["node_request"] = json.loads(it.node_request) if it.node_request else None
    return out | {name: getattr(it, name) for name in ("size", "epoch", "per_node", "companion")}


def reply(line: str) -> object:
    """What a line (latin-1 for any bytes) says, or the problem."""
    # A block of its own of exactly this size, so that the sanitizer sees a read beyond it.
    raw, it = line.encode("latin-1"), Reply()
    block = (ctypes.c_char * len(raw)).from_buffer_copy(raw) if raw else ctypes.c_char_p(b"")
    problem = LIBRARY.dmr_wire_reply(block, ctypes.c_size_t(len(raw)), ctypes.byref(it))
    if problem is not None:
        return problem.decode()
    said = fields(it)
    LIBRARY.dmr_reply_free(ctypes.byref(it))
    return said


def node(name: str) -> bool:
    return LIBRARY.dmr_wire_node(name.encode())


def nearest(current: int, per_node: int, *bounds: int) -> int:
    return LIBRARY.dmr_nearest(current, ctypes.byref(Bounds(*bounds)), per_node)


def reachable(current: int, sizes: list[int], factor: int) -> list[int]:
    return [size for size in sizes if LIBRARY.dmr_reachable(current, size, factor)]


def read_sizes(text: str, factor: int) -> list[int] | None:
    bounds = Bounds(1, 1, factor, 0)
    read = LIBRARY.dmr_bounds_read(text.encode(), ctypes.byref(bounds))
    return [bounds.minimum, bounds.maximum, bounds.factor, bounds.preferred] if read else None


def made_layout(jobs: list[int], per_node: int) -> Layout:
    it = Layout()
    assert LIBRARY.dmr_layout_make(ctypes.byref(it), (ctypes.c_int * len(jobs))(*jobs), len(jobs), per_node)
    return it


def layout(jobs: list[int], per_node: int) -> object:
    """The job of each world, the world of each node, and the places of the new ranks."""
    it = made_layout(jobs, per_node)
    said = [it.jobs[: it.worlds], it.world_of[: it.node_count], it.places[: it.size]]
    LIBRARY.dmr_layout_free(ctypes.byref(it))
    return said


def start(nodes: list[str], jobs: list[int], per_node: int) -> object:
    """Tickets and ports of the worlds that the launcher starts, or its problem; then they join, or are abandoned."""
    it, worlds, problem = made_layout(jobs, per_node), Worlds(), ctypes.create_string_buffer(400)
    good = LIBRARY.dmr_line_start(ctypes.byref(it), names(nodes), per_node, ctypes.byref(worlds), problem)
    LIBRARY.dmr_layout_free(ctypes.byref(it))
    if not good:
        return problem.value.decode()
    said = [[worlds.tickets[i].decode(), worlds.ports[i].decode()] for i in range(worlds.count)]
    if not LIBRARY.dmr_line_joined(ctypes.byref(worlds), problem):
        said.append(problem.value.decode())
        LIBRARY.dmr_line_abandon(ctypes.byref(worlds))
    LIBRARY.dmr_worlds_free(ctypes.byref(worlds))
    return said


def ready(ticket: str, port: str) -> bool:
    return LIBRARY.dmr_line_ready(ticket.encode(), port.encode())


def node_request(request: str) -> str:
    problem = ctypes.create_string_buffer(400)
    return "" if LIBRARY.dmr_line_node_request(request.encode(), problem) else problem.value.decode()


_client: list[int | None] = []


def ask(kind: str, job: int, epoch: int, rest: dict[str, object], urgent: bool) -> object:
    """One request through the client to DMR_AGENT: the reply, or None."""
    if not _client:
        _client.append(LIBRARY.dmr_client_new())
    if not _client[0]:
        return "no client"
    it = Reply()
    pending = LIBRARY.dmr_client_start(_client[0], make(kind, job, epoch, rest), urgent)
    if not LIBRARY.dmr_client_finish(_client[0], pending, ctypes.byref(it)):
        return None
    said = fields(it)
    LIBRARY.dmr_reply_free(ctypes.byref(it))
    return said


for task in sys.stdin:
    function, *arguments = json.loads(task)
    print(json.dumps(globals()[function](*arguments)), flush=True)

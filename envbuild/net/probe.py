"""Probes: whether a place answers, without reading what it has. One request for each place, no retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.limits import LIMITS
from envbuild.net.miss import MissKind
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.net.urls import local_path

CONNECT, SECONDS = 5, 10  # for a connection; for a place in all: names, proxies, redirects and both requests
PARALLEL = 32
LOGIN = (MissKind.UNAUTHORIZED,)


@dataclass(frozen=True, slots=True)
class Probe:
    """An address or path to request. `exact`: it must exist; otherwise the host need only answer. `patient`: a snapshot
    service, which gets one request at a time."""

    place: str
    exact: bool = True
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a probe: whether the place answers, the reason as text, and the seconds that it took."""

    probe: Probe
    answers: bool
    detail: str
    seconds: float


def probe_all(site: Site, probes: Iterable[Probe]) -> dict[Probe, Answer]:
    """Return the answer of each probe: 32 at a time, those of snapshot services one after the other."""
    limits = replace(LIMITS, connect=CONNECT, silence=SECONDS, grace=SECONDS, failures=1 << 30)
    transport = Transport(site.network(), limits=limits)
    wanted = list(dict.fromkeys(probes))
    plain = [[probe] for probe in wanted if not probe.patient]
    slow = [probe for probe in wanted if probe.patient]
    with ThreadPoolExecutor(PARALLEL) as pool:
        groups = pool.map(lambda group: [probe_one(transport, probe) for probe in group], [*plain, slow])
    return {answer.probe: answer for group in groups for answer in group}


def probe_one(transport: Transport, probe: Probe) -> Answer:
    """Return the answer of one place, after at most `SECONDS`."""
    began = time.monotonic()
    request: Future[tuple[bool, str]] = Future()

    def send() -> None:
        try:
            request.set_result(_request(transport, probe))
        except BaseException as error:
            request.set_exception(error)

    # A thread that the end of the command does not wait for: a lookup of a name, a handshake or a mount has no limit.
    threading.Thread(target=send, daemon=True).start()
    try:
        answers, detail = request.result(SECONDS)
    except TimeoutError:
        answers, detail = False, "no answer in time"
    return Answer(probe, answers, detail, round(time.monotonic() - began, 2))


def _request(transport: Transport, probe: Probe) -> tuple[bool, str]:
    path = local_path(probe.place)
    if path is not None:
        return path.exists(), "exists" if path.exists() else "no such file or folder"
    last = "no answer"
    # Some servers refuse HEAD. A request without its body costs a server as little.
    for method in ("HEAD", "GET"):
        try:
            with transport.get(probe.place, method=method) as answer:
                return True, f"HTTP {answer.status_code}"
        except NotFoundError as error:
            last = str(error)
            if not probe.exact:
                return True, last
        except UnreachableError as error:
            last = str(error)
            if error.kind in LOGIN and not probe.exact:
                return True, f"{last} (it answers; a login may be necessary)"
            if not last.startswith("HTTP "):
                return False, last
            if not probe.exact:
                return error.kind is MissKind.REFUSED, last
    return False, last

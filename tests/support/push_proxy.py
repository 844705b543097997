"""A proxy in front of a registry that fails pushes: sizes that it refuses, connections that it cuts, busy answers.
It can also list the artifacts of an image, which Debian's docker-registry does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import Handler, serving
from tests.support.local_registry import INDEX


@dataclass
class PushProxy:
    """`most`: bytes of a body that are taken, more is answered with 413. `busy`: the next statuses of PUT, PATCH and
    POST requests, before anything is handed on. `dropped`: so many of the next chunks are handed on, and their answers
    replaced by 502. `patched`: the status of the answers to chunks that succeeded. `asked`: (method, path, bytes) of
    every request. `referrers`: artifacts by the digest of their image, if the registry lists them (OCI distribution
    spec 1.1, "Listing Referrers"); `page`: how many entries an answer has."""

    host: str
    url: str = ""
    most: int = 1 << 40
    busy: list[int] = field(default_factory=list)
    dropped: int = 0
    patched: int = 202
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    referrers: dict[str, list[dict[str, Any]]] | None = None
    page: int = 100

    def add(self, manifest: bytes) -> str:
        """List a manifest that was put; return the digest of its image, if it is an artifact of one."""
        value = json.loads(manifest)
        if self.referrers is None or "subject" not in value:
            return ""
        entry = {"mediaType": value["mediaType"], "size": len(manifest), "artifactType": value["artifactType"]}
        entry["digest"] = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        image = str(value["subject"]["digest"])
        self.referrers[image] = [*(item for item in self.referrers.get(image, []) if item != entry), entry]
        return image

    def list(self, path: str) -> tuple[bytes, str]:
        """Return one page of a list, and the path of the next; empty after the last."""
        parts, start = urlsplit(path), 0
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = (self.referrers or {}).get(parts.path.rpartition("/")[2], [])
        if kind := query.get("artifactType"):
            found = [item for item in found if item["artifactType"] == kind]
        start = int(query.get("from", 0))
        after = f"{parts.path}?artifactType={kind or ''}&from={start + self.page}"
        value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": found[start : start + self.page]}
        return json.dumps(value).encode(), after if start + self.page < len(found) else ""

    def sent(self, method: str) -> list[int]:
        """Return the sizes of the bodies of a method, in order, without empty ones."""
        return [size for name, _, size in self.asked if name == method and size]


@contextmanager
def pushing(host: str) -> Iterator[PushProxy]:
    """Yield a PushProxy before the registry `host` (with its port)."""
    proxy = PushProxy(host)

    class Answering(Handler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            proxy.asked.append((self.command, self.path, length))
            writing = self.command in ("PUT", "PATCH", "POST")
            if length > proxy.most:
                return self.empty(413)
            if writing and proxy.busy:
                return self.empty(proxy.busy.pop(0))
            if proxy.referrers is not None and "/referrers/" in self.path:
                return self.artifacts()
            there = HTTPConnection(proxy.host)
            there.request(self.command, self.path, body, dict(self.headers.items()))
            found = there.getresponse()
            content = found.read()
            there.close()
            if self.command == "PATCH" and proxy.dropped:
                proxy.dropped -= 1
                return self.empty(502)
            chunk = self.command == "PATCH" and found.status == 202
            self.send_response(proxy.patched if chunk else found.status)
            for name, value in found.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            if self.command == "PUT" and "/manifests/" in self.path and (image := proxy.add(body)):
                self.send_header("OCI-Subject", image)
            length = found.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def artifacts(self) -> None:
            content, after = proxy.list(self.path)
            self.send_response(200)
            self.send_header("Content-Type", INDEX)
            self.send_header("OCI-Filters-Applied", "artifactType")
            if after:
                self.send_header("Link", f'<{after}>; rel="next"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    with serving(Answering) as proxy.url:
        yield proxy

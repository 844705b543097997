"""The service that issues tokens for a registry: signs what the registry then checks for real (distribution, "Token
Authentication Implementation": a JWT with RS256 and the certificate in ``x5c``)."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import Handler, serving
from tests.support.tools import require_tools

SERVICE, ISSUER = "test registry", "test issuer"


@dataclass
class Tokens:
    """`asked`: (method, Authorization header, values) of every request. `allowed`: headers and refresh tokens that get
    a token. `public`: without a login there are tokens to pull."""

    folder: Path
    url: str = ""
    public: bool = False
    allowed: set[str] = field(default_factory=set)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def configuration(self) -> str:
        """Lines of the registry's configuration."""
        return (
            f"auth: {{token: {{realm: '{self.url}/token', service: {SERVICE}, issuer: {ISSUER}, "
            f"rootcertbundle: {self.folder}/cert.pem}}}}\n"
        )

    def sign(self, scopes: list[str]) -> str:
        """Return a token for ``repository:NAME:ACTIONS``, of one or more repositories."""
        now = int(time.time())
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        pem = (self.folder / "cert.pem").read_text().splitlines()
        header = {"typ": "JWT", "alg": "RS256", "x5c": ["".join(line for line in pem if "---" not in line)]}
        claims = {"iss": ISSUER, "sub": "x", "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now, "jti": "1"}
        text = f"{encoded(header)}.{encoded({**claims, 'access': access})}"
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.folder / "key.pem")]
        signature = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@contextmanager
def tokens(folder: Path) -> Iterator[Tokens]:
    """Yield the service on the loopback interface."""
    require_tools("openssl")
    folder.mkdir(parents=True)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    service = Tokens(folder)

    class Answering(Handler):
        def do_GET(self) -> None:
            self.give(urlsplit(self.path).query, "token", self.headers.get("Authorization", ""))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.give(body, "access_token", self.headers.get("Authorization", ""))

        def give(self, text: str, key: str, login: str) -> None:
            values = {name: " ".join(found) for name, found in parse_qs(text).items()}
            scopes = parse_qs(text).get("scope", [])
            service.asked.append((self.command, login, values))
            good = values.get("refresh_token", login) in service.allowed
            if service.public and not login and not good:
                good, scopes = True, [f"{scope.rpartition(':')[0]}:pull" for scope in scopes]
            body = json.dumps({key: service.sign(scopes)} if good else {"details": "no"}).encode()
            self.send_response(200 if good else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Answering) as service.url:
        yield service

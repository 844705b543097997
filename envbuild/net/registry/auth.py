"""Login to registries during reads: basic authentication, and tokens of the service that a registry names.

A registry answers 401 and specifies in WWW-Authenticate (RFC 9110, section 11) what it requires: ``Basic``, or
``Bearer`` with a realm, a service and a scope (distribution, "Token Authentication Specification" and "OAuth2 Token
Authentication"). A token is then requested, without a login when none exists, and cached for the requests that follow.
"""

from __future__ import annotations

import io
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from envbuild.core.json_text import json_value
from envbuild.core.text import printable
from envbuild.net.body import discard_body, read_body
from envbuild.net.failures import RefusedError, UnreachableError, describe_error
from envbuild.net.hidden_logins import hide_words, login_words
from envbuild.net.miss import MissKind
from envbuild.net.network_settings import is_own_network
from envbuild.net.registry.docker_config import Credential, CredentialError
from envbuild.net.registry.logins import find_credential, login_files
from envbuild.net.transport import Transport

if TYPE_CHECKING:
    import requests

CLIENT = "envbuild"
CHALLENGE = re.compile(r"(?:^|,)\s*(Basic|Bearer)\b", re.IGNORECASE)
MAX_CHALLENGE = 8192  # characters of the header
VALUE = re.compile(r'(?<![A-Za-z])([A-Za-z]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
REPOSITORY = re.compile(r"(.+)/(?:manifests|blobs|referrers|tags)/")  # behind the first /v2/


@dataclass(slots=True)
class Login:
    """The ``auth`` of a session: `requests` calls it for every request. `registry` is the registry's name in image
    references; a site may have its images on other hosts, each with a login of its own: `hosts` (``https://HOST:PORT``).
    `repository`: for requests whose address names none.

    Other hosts get no login, and neither does one of these without its https. A registry names addresses for uploads,
    and could name one of another registry, where the user's login would let it overwrite what it likes.
    """

    transport: Transport
    registry: str
    hosts: frozenset[str] = frozenset()
    repository: str = ""
    known: dict[tuple[str, str], str] = field(default_factory=dict)  # place, repository → Authorization header
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        place, repository = split_url(request.url)
        if place not in self.hosts:
            return request
        header = self.known.get((place, repository))
        if header:
            request.headers["Authorization"] = header
        request.register_hook("response", partial(self.handle_response, place))  # type: ignore[no-untyped-call]
        return request

    def handle_response(self, place: str, response: requests.Response, **options: Any) -> requests.Response:
        """Repeat the request with the login that the registry requires. Raises RefusedError, UnreachableError."""
        # Not for other hosts: a registry redirects to hosts that must not receive a login.
        if response.status_code != 401 or split_url(response.request.url)[0] != place:
            return response
        _, repository = split_url(response.request.url)
        host = place.partition("://")[2]
        for last in (False, True):
            used = response.request.headers.get("Authorization", "")
            challenge, url = response.headers.get("WWW-Authenticate", ""), str(response.request.url)
            with self.guard:
                header = self.known.get((place, repository), "")
                own = last or header in ("", used)
                if own:  # else another thread has a newer one, perhaps without the right for this request
                    header = self.known[place, repository] = self.header(host, challenge, url)
            response = self.repeat(response, header, **options)
            if response.status_code != 401:
                break
            if own:
                raise self.login_error(host, url, response.headers.get("WWW-Authenticate", ""))
        return response

    def repeat(self, response: requests.Response, header: str, **options: Any) -> requests.Response:
        """Send the request of an answer again, with the Authorization `header`."""
        repeated = response.request.copy()
        if isinstance(body := repeated.body, io.IOBase):  # what was sent of a file is sent again
            body.seek(0)
        repeated.headers["Authorization"] = header
        discard_body(response, self.transport.limits)  # so that the connection can be used again
        response.close()
        second: requests.Response = response.connection.send(repeated, **options)
        second.history.append(response)
        second.request = repeated
        return second

    def header(self, host: str, challenge: str, url: str) -> str:
        """Return the Authorization header that answers a challenge."""
        wanted = parse_challenges(challenge)
        login = self.credential(host, url)
        if "bearer" in wanted and wanted["bearer"].get("realm"):
            return "Bearer " + self.token(host, login, wanted["bearer"], url)
        if "basic" not in wanted:
            raise RefusedError(
                "HTTP 401, with an authentication scheme that envbuild does not support", kind=MissKind.UNAUTHORIZED
            )
        if login is None or login.token:
            raise self.login_error(host, url)
        return login.basic

    def token(self, host: str, login: Credential | None, wanted: dict[str, str], url: str) -> str:
        """Return a token of the service that the registry names."""
        from urllib3.exceptions import HTTPError

        session, realm = self.transport.session(), wanted["realm"]
        try:
            registry, service = urlsplit(url), urlsplit(realm)
        except ValueError:
            raise RefusedError("it names a malformed address of a token service") from None
        same = registry.scheme != "https" and service.hostname == registry.hostname
        if service.scheme != "https" and (registry.scheme == "https" or (login and not same)):
            raise RefusedError("it names a token service without https")
        if is_own_network(service.hostname or "") and not is_own_network(registry.hostname or ""):
            raise RefusedError("it names a token service of this machine")
        values = {key: wanted[key] for key in ("service", "scope") if wanted.get(key)}
        limits = self.transport.limits
        options: dict[str, Any] = {
            "timeout": (limits.connect, limits.silence),
            "stream": True,
            "proxies": self.transport.settings.proxies(realm),
            # The registry gets what it answers: another service could be one that only this machine reaches.
            "allow_redirects": False,
        }
        try:
            # Always with `auth`: requests would use a login of ~/.netrc otherwise.
            if login and login.token:
                form = {**values, "grant_type": "refresh_token", "client_id": CLIENT, "refresh_token": login.token}
                answer = session.post(realm, data=form, auth=partial(authorize, ""), **options)
            else:
                header = login.basic if login else ""
                # of two repositories (a blob that is taken from another one) the header has one text
                parts = (
                    [*values.items()]
                    if "scope" not in values
                    else [
                        *((key, text) for key, text in values.items() if key != "scope"),
                        *(("scope", scope) for scope in values["scope"].split()),
                    ]
                )
                answer = session.get(realm, params=parts, auth=partial(authorize, header), **options)
                for _ in range(limits.redirects):
                    following = next_address(session, answer)
                    if not following:
                        break
                    options["proxies"] = self.transport.settings.proxies(following)
                    answer = session.get(following, auth=partial(authorize, header), **options)
            with answer:
                body = b"".join(read_body(answer, limits.token, limits, decode=True)) if answer.ok else b"{}"
            status, value = answer.status_code, json_value(body)
        except ValueError:
            status, value = 200, {}
        except (HTTPError, OSError) as error:  # RequestException is one
            raise UnreachableError(f"its token service: {describe_error(error)}") from None
        token = (value.get("token") or value.get("access_token")) if isinstance(value, dict) else None
        if status in (400, 401, 403):
            raise self.login_error(host, url)
        if not isinstance(token, str) or not token:
            kind = MissKind.RATE_LIMITED if status == 429 else MissKind.UNREACHABLE
            raise UnreachableError(f"its token service answers without a token (HTTP {status})", kind=kind)
        if not (token.isascii() and token.isprintable()):  # it could begin a header of its own
            raise RefusedError("its token service answers with a token that is not printable ASCII")
        return token

    def credential(self, host: str, url: str) -> Credential | None:
        """Return the login for a host: of the address in the site, else of the user's files."""
        address = urlsplit(url)
        if address.username:
            return Credential(unquote(address.username), unquote(address.password or ""), source="the site's address")
        try:
            return find_credential(host, self.registry, split_url(url)[1] or self.repository)
        except CredentialError as error:
            raise RefusedError(str(error), kind=MissKind.UNAUTHORIZED) from None

    def login_error(self, host: str, url: str, challenge: str = "") -> RefusedError:
        """Return the error of a registry that requires a login, or another one; it contains nothing of the login.

        challenge: its answer to a token that was new (RFC 6750, 3.1)."""
        name = self.registry if host.endswith(f".{self.registry}") else host  # docker.io's images are on another host
        login, command = self.credential(host, url), f"docker login {name}"
        files = [str(path) for path in login_files()]
        none = f"{files[0]} has none" if len(files) == 1 else f"none of {', '.join(files)} has one"
        why = f"it requires a login, and {none} for it; run: {command}"
        if login:
            why = f"it does not accept the login that {login.source} has for it; run: {command}"
        answer = parse_challenges(challenge).get("bearer", {})
        if login and answer.get("error") == "insufficient_scope":
            words = (login.token, *login_words(login.user, login.password))
            right = printable(hide_words(answer.get("scope", ""), words)[:200])
            why = f"the login that {login.source} has for it may not do that ({right}); run: {command}"
        if answer.get("error") == "invalid_token":
            why = "it does not accept the token that its own token service has just issued"
            command = f"ask who runs {name} to compare the clocks and the keys of the registry and of its token service"
        return RefusedError(why, kind=MissKind.UNAUTHORIZED, hint=command)


def next_address(session: requests.Session, answer: requests.Response) -> str:
    """Return where a token service continues on its own host; empty for any other answer.

    Raises RefusedError for another host."""
    target = session.get_redirect_target(answer)
    if target is None:
        return ""
    answer.close()
    following = urljoin(answer.url, target)
    if split_url(following)[0] not in (place := split_url(answer.url)[0], place.replace("http://", "https://", 1)):
        raise RefusedError("its token service redirects to another host")
    return following


def authorize(header: str, request: requests.PreparedRequest) -> requests.PreparedRequest:
    if header:
        request.headers["Authorization"] = header
    return request


def split_url(url: str | None) -> tuple[str, str]:
    """Return (scheme and host with its port, repository) of an address of the distribution API."""
    parts = urlsplit(url or "")
    # One attempt: a server names addresses, and a search would try each place of a long one.
    found = REPOSITORY.match(parts.path.partition("/v2/")[2])
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower(), found[1] if found else ""


def parse_challenges(text: str) -> dict[str, dict[str, str]]:
    """Return the values of each kind (basic, bearer) of challenge in a WWW-Authenticate header.

    There are none in one that is too long.
    """
    if len(text) > MAX_CHALLENGE:
        return {}
    starts = [*CHALLENGE.finditer(text)]
    ends = [*(start.start() for start in starts), len(text)][1:]
    found = {}
    for start, end in zip(starts, ends, strict=True):
        values = VALUE.findall(text[start.end() : end])
        found[start[1].lower()] = {name.lower(): quoted or plain for name, quoted, plain in values}
    return found

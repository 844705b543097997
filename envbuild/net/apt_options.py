"""Options of apt that a site may set while locking (apt.conf(5), apt-transport-http(1), apt-transport-https(1)).

apt.conf can name programs that apt starts (``APT::Update::Pre-Invoke``, ``Acquire::http::Proxy-Auto-Detect``,
``Dir::Bin::*``) and can disable signatures, so a site may set only the options listed here, each with a value of its
type. A quotation mark in apt.conf ends a value and cannot be escaped, so no value may contain one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.core.yaml_nodes import Node, Scalar, Table, describe
from envbuild.core.yaml_reader import Reader, closest, short
from envbuild.net.trusted_file import check_trusted_file
from envbuild.net.urls import may_have_login, redact_written

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
ADDRESS = re.compile(r"(https?|socks5h?)://[^\s\"\\]+")
HOST_PROXY = re.compile(r"acquire::(https?)::proxy::([a-z0-9][a-z0-9.:-]*)")


@dataclass(frozen=True, slots=True)
class AptOption:
    """The values of an option, in words (`takes`) and as a pattern."""

    takes: str
    pattern: re.Pattern[str]


BOOL = AptOption("true or false", re.compile("|".join((*TRUE, *FALSE)), re.IGNORECASE))
NUMBER = AptOption("a whole number", re.compile(r"[0-9]{1,9}"))
PROXY = AptOption("an address (http://HOST:PORT) or DIRECT", re.compile(rf"{ADDRESS.pattern}|DIRECT|false"))
FILE = AptOption("the path of a file, from / on", re.compile(r"/[^\"\\]*"))
WORDS = AptOption("text without quotation marks and backslashes", re.compile(r"[^\"\\]*"))
BY_HASH = AptOption("yes, no or force", re.compile("|".join((*TRUE, *FALSE, "force")), re.IGNORECASE))
QUEUES = AptOption("host or access", re.compile("host|access"))

HTTP_OPTIONS = {
    "AllowRedirect": BOOL,
    "Dl-Limit": NUMBER,
    "Max-Age": NUMBER,
    "No-Cache": BOOL,
    "No-Store": BOOL,
    "Pipeline-Depth": NUMBER,
    "Proxy": PROXY,
    "Timeout": NUMBER,
    "User-Agent": WORDS,
}
TLS_OPTIONS = {"CaInfo": FILE, "SslCert": FILE, "SslKey": FILE, "Verify-Host": BOOL, "Verify-Peer": BOOL}
OPTIONS = {
    "Acquire::By-Hash": BY_HASH,
    "Acquire::Check-Date": BOOL,
    "Acquire::Check-Valid-Until": BOOL,
    "Acquire::ForceIPv4": BOOL,
    "Acquire::ForceIPv6": BOOL,
    "Acquire::Max-FutureTime": NUMBER,
    "Acquire::Max-ValidTime": NUMBER,
    "Acquire::Min-ValidTime": NUMBER,
    "Acquire::PDiffs": BOOL,
    "Acquire::Queue-Mode": QUEUES,
    "Acquire::Retries": NUMBER,
    **{f"Acquire::http::{name}": option for name, option in HTTP_OPTIONS.items()},
    **{f"Acquire::https::{name}": option for name, option in (HTTP_OPTIONS | TLS_OPTIONS).items()},
}
CANONICAL = {key.lower(): key for key in OPTIONS}  # apt ignores the case of names
# The beginnings of names (with "::" at the end of an option: also for single archives) with which the host would undo
# what a site turns on. Without Check-Date apt does not check Valid-Until either (apt.conf(5)).
UNDONE_BY = {
    "Acquire::Check-Date": ("acquire::max-futuretime::",),
    "Acquire::Check-Valid-Until": ("acquire::check-date::", "acquire::min-validtime::"),
}
# The beginnings of names → what apt does when they have a value that is not the default.
WEAKER = {
    "acquire::check-date::": "apt checks neither the date nor the age of Release files",
    "acquire::check-valid-until::": "apt does not check the age of Release files",
    "acquire::max-futuretime::": "apt accepts Release files with a date in the future",
    "acquire::min-validtime::": "apt accepts Release files after their end",
    "acquire::https::verify-host::": "apt does not check the host name of certificates",
    "acquire::https::verify-peer::": "apt does not check certificates",
    "acquire::http::verify-peer::": "apt does not check certificates",
    "acquire::allowreleaseinfochange::": "apt accepts that an archive changes its name",
}
WEAK_IF_TRUE = ("acquire::allowreleaseinfochange::",)
FUTURE = 10  # seconds: apt's default of Max-FutureTime


def read_apt_options(reader: Reader, node: Node) -> dict[str, str]:
    """Return the options of the table ``apt`` of a site, with the names as apt's manual writes them; report an unknown
    name and a value that is not of its type."""
    found: dict[str, str] = {}
    for name, (key, value) in reader.entries(node, "apt").items():
        canonical, option = find_option(name)
        if option is None:
            known = f"the options that a site may set: {', '.join(OPTIONS)}, Acquire::http::Proxy::HOST"
            hint = " ".join(filter(None, (closest(name, OPTIONS), known)))
            reader.wrong(key.where, f"'{short(name)}' is not an option of apt that a site may set", hint)
            continue
        if canonical in found:
            reader.wrong(key.where, f"'{canonical}' is set twice in apt", "keep one of the lines")
        text = _value_text(reader, value, canonical)
        if text is None:
            continue
        if not option.pattern.fullmatch(text) or (option is PROXY and may_have_login(text)):
            reader.wrong(value.where, f"'{canonical}' must be {option.takes}, not '{short(redact_written(text))}'")
        elif option is not FILE or check_trusted_file(reader, value.where, canonical, text):
            found[canonical] = text
    return found


def find_option(name: str) -> tuple[str, AptOption | None]:
    """Return an option by its name in any case: its name as apt's manual writes it, and its values (None: unknown)."""
    if match := HOST_PROXY.fullmatch(name.lower()):
        return f"Acquire::{match[1]}::Proxy::{match[2]}", PROXY
    canonical = CANONICAL.get(name.lower(), name)
    return canonical, OPTIONS.get(canonical)


def is_address(text: str) -> bool:
    """Return whether `text` can be the address of a proxy."""
    return ADDRESS.fullmatch(text) is not None


def merge_options(host: Mapping[str, str], site: Mapping[str, str]) -> dict[str, str]:
    """Return the options of apt: those of the site, and those of the host that the site neither sets nor needs to be
    off. A check that the site turns on is on: no option of the host undoes it."""
    undone = tuple(
        start for key, starts in UNDONE_BY.items() if key in site and site[key].lower() in TRUE for start in starts
    )
    own = {key.lower() for key in site}
    kept = {
        key: value
        for key, value in host.items()
        if key.lower() not in own and not f"{key.lower()}::".startswith(undone)
    }
    return kept | dict(site)


def weaker_checks(options: Mapping[str, str], site: Mapping[str, str]) -> list[str]:
    """Return one line for each of `options` that makes apt check less than it does by default, with the place where it
    is set: the site's, else the host's."""
    lines = []
    for key, value in options.items():
        start = next((start for start in WEAKER if f"{key.lower()}::".startswith(start)), "")
        if start and _is_weaker(start, value):
            place = "site.yaml" if key in site else "this machine's apt configuration"
            lines.append(f'{WEAKER[start]} ({key} "{value}" in {place})')
    return lines


def _is_weaker(start: str, value: str) -> bool:
    text = value.lower()
    if start.startswith(("acquire::max-futuretime", "acquire::min-validtime")):
        return text.isdigit() and int(text) > (FUTURE if "future" in start else 0)
    return text in ((*TRUE, "with", "enable") if start in WEAK_IF_TRUE else (*FALSE, "without", "disable"))


def _value_text(reader: Reader, node: Node, key: str) -> str | None:
    """Return a value as text; numbers and truth values may be written without quotes."""
    if isinstance(node, Scalar) and node.kind in ("number", "truth"):
        return node.value
    if isinstance(node, Table):
        reader.wrong(node.where, f"'{key}' must be one value, not {describe(node)}")
        return None
    return reader.text(node, key)

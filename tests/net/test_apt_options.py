"""Options of apt in a site file: a list of harmless ones, each with values of its type."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.net.apt_options import OPTIONS, merge_options, weaker_checks
from envbuild.net.site_file import read_site

pytestmark = pytest.mark.unit

REFUSED = (
    "APT::Update::Pre-Invoke",
    "APT::Update::Pre-Invoke::",
    "APT::Update::Post-Invoke::",
    "APT::Update::Post-Invoke-Success::",
    "apt::update::pre-invoke::",
    "Acquire::http::Proxy-Auto-Detect",
    "Acquire::http::ProxyAutoDetect",
    "Acquire::https::Proxy-Auto-Detect",
    "Acquire::ftp::ProxyLogin::",
    "Acquire::gpgv::Options::",
    "APT::Key::gpgvcommand",
    "Dir::Bin::gpg",
    "Dir::Bin::methods",
    "Dir::Bin::apt-key",
    "Dir::Etc::sourcelist",
    "DPkg::Pre-Invoke::",
    "APT::Compressor::x::Binary",
    "Acquire::AllowInsecureRepositories",
    "Acquire::AllowWeakRepositories",
    "Acquire::AllowDowngradeToInsecureRepositories",
    "acquire::allowinsecurerepositories",
    "Acquire::AllowReleaseInfoChange",
    "APT::Get::AllowUnauthenticated",
    "#include",
    'Acquire::Retries "1"; APT::Update::Pre-Invoke:: "id"; X',
    "Acquire::http::Proxy::a b",
)


def findings(folder: Path, text: str) -> list[tuple[str, str, str]]:
    path = folder / "site.yaml"
    path.write_text(f"schema: 1\n{text}\n")
    with pytest.raises(SpecError) as caught:
        read_site(path)
    assert caught.value.exit_code == 2
    return [(item.where.rsplit("site.yaml:", 1)[1], item.message, item.hint) for item in caught.value.findings]


@pytest.mark.parametrize("key", REFUSED)
def test_an_option_that_starts_programs_or_accepts_unsigned_archives_is_refused(key: str, tmp_path: Path) -> None:
    ((place, message, hint),) = findings(tmp_path, f"apt:\n  '{key}': \"true\"")
    assert place == "3:3" and f"'{key}' is not an option of apt" in message
    assert all(name in hint for name in OPTIONS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Acquire::Check-Valid-Until", 'false"; APT::Update::Pre-Invoke { "id"; }; X "'),
        ("Acquire::http::User-Agent", 'a"b'),
        ("Acquire::http::User-Agent", "a\\"),
        ("Acquire::http::Proxy", 'http://h:1"; X "'),
        ("Acquire::http::Proxy", "sh -c id"),
        ("Acquire::http::Proxy::repo.example", "id"),
        ("Acquire::Retries", "three"),
        ("Acquire::Retries", "-1"),
        ("Acquire::Check-Date", "maybe"),
        ("Acquire::Queue-Mode", "all"),
        ("Acquire::https::CaInfo", "/nonexistent/ca.pem"),
        ("Acquire::https::CaInfo", "ca.pem"),
    ],
)
def test_a_value_of_another_type_is_refused(key: str, value: str, tmp_path: Path) -> None:
    ((place, message, _),) = findings(tmp_path, f"apt:\n  '{key}': '{value}'")
    assert place.startswith("3:") and f"'{key}'" in message


def test_line_ends_and_tables_are_refused(tmp_path: Path) -> None:
    ((_, message, _),) = findings(tmp_path, 'apt: {"Acquire::http::User-Agent": "a\\nb"}')
    assert message == "'Acquire::http::User-Agent' holds a line end"
    ((_, message, _),) = findings(tmp_path, 'apt: {"Acquire::Retries": {a: b}}')
    assert "'Acquire::Retries' must be one value" in message


def test_all_mistakes_are_reported_at_once_with_the_nearest_option(tmp_path: Path) -> None:
    found = findings(
        tmp_path, "apt:\n  Acquire::Retry: 3\n  Acquire::Retries: many\n  acquire::retries: 2\n  ACQUIRE::retries: 1"
    )
    assert [(place, message) for place, message, _ in found] == [
        ("3:3", "'Acquire::Retry' is not an option of apt that a site may set"),
        ("4:21", "'Acquire::Retries' must be a whole number, not 'many'"),
        ("6:3", "'Acquire::Retries' is set twice in apt"),
    ]
    assert found[0][2].startswith("did you mean 'Acquire::Retries'?")


def test_the_proxy_of_a_site_is_an_address(tmp_path: Path) -> None:
    """It is written into apt's configuration too."""
    for value in ('http://h:1"; APT::Update::Pre-Invoke {"id"}; X "', "http://h 1", "h:3128"):
        ((place, message, _),) = findings(tmp_path, f"proxy: '{value}'")
        assert place == "2:8" and "'proxy': " in message


def test_values_that_sites_need(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    path = tmp_path / "site.yaml"
    path.write_text(
        "schema: 1\napt:\n  acquire::check-valid-until: false\n  Acquire::Check-Date: 'no'\n  Acquire::Retries: 5\n"
        "  Acquire::http::Timeout: '30'\n  Acquire::http::Proxy: http://me:pw@proxy.example:3128/\n"
        "  Acquire::http::proxy::Repo.Example: DIRECT\n  Acquire::http::Pipeline-Depth: 0\n"
        f"  Acquire::https::CaInfo: {tmp_path}/ca.pem\n  Acquire::http::User-Agent: a b/1\n"
    )
    assert read_site(path).apt == {
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Check-Date": "no",
        "Acquire::Retries": "5",
        "Acquire::http::Timeout": "30",
        "Acquire::http::Proxy": "http://me:pw@proxy.example:3128/",
        "Acquire::http::Proxy::repo.example": "DIRECT",
        "Acquire::http::Pipeline-Depth": "0",
        "Acquire::https::CaInfo": f"{tmp_path}/ca.pem",
        "Acquire::http::User-Agent": "a b/1",
    }


def test_a_check_that_the_site_turns_on_is_not_undone_by_the_host() -> None:
    host = {
        "Acquire::Check-Valid-Until": "false",
        "Acquire::check-date": "false",
        "Acquire::Min-ValidTime::Debian": "9",
        "Acquire::Max-FutureTime": "99",
        "Acquire::Retries": "2",
    }
    assert merge_options(host, {"Acquire::Check-Valid-Until": "true"}) == {
        "Acquire::Max-FutureTime": "99",
        "Acquire::Retries": "2",
        "Acquire::Check-Valid-Until": "true",
    }
    assert merge_options(host, {"Acquire::Check-Date": "yes", "Acquire::Retries": "3"}) == {
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Min-ValidTime::Debian": "9",
        "Acquire::Check-Date": "yes",
        "Acquire::Retries": "3",
    }
    assert merge_options(host, {"Acquire::Check-Valid-Until": "false"}) == host


def test_every_option_that_makes_apt_check_less_is_reported() -> None:
    weaker = {
        "Acquire::Check-Valid-Until": "false",
        "acquire::check-date": "0",
        "Acquire::Min-ValidTime::Debian": "86400",
        "Acquire::Max-FutureTime": "11",
        "Acquire::https::Verify-Peer": "no",
        "Acquire::https::Verify-Host": "without",
        "Acquire::AllowReleaseInfoChange::Suite": "true",
    }
    lines = weaker_checks(weaker, {"Acquire::Max-FutureTime": "11"})
    assert len(lines) == len(weaker)
    for line, (key, value) in zip(lines, weaker.items(), strict=True):
        place = "site.yaml" if "Future" in key else "this machine's apt configuration"
        assert line.endswith(f'({key} "{value}" in {place})')
    usual = {
        "Acquire::Check-Valid-Until": "true",
        "Acquire::Check-Date": "1",
        "Acquire::Max-FutureTime": "10",
        "Acquire::Max-ValidTime": "86400",
        "Acquire::AllowReleaseInfoChange::Suite": "false",
        "Acquire::Retries": "0",
    }
    assert weaker_checks(usual, {}) == []

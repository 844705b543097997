"""A site with an Ubuntu archive, and a vendor's key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.net.site import Site
from tests.support.debian_archive import RELEASED, Signer, publish, signer, stanza


@pytest.fixture(scope="session")
def vendor() -> Iterator[Signer]:
    with signer() as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    """Return a site whose Ubuntu has all suites in one archive, as Ubuntu's own."""
    main = (
        stanza("base-files", essential=True, Depends="usrmerge | usr-is-merged, libc6"),
        stanza("usrmerge", Depends="perl"),
        stanza("usr-is-merged"),
        stanza("perl"),
        stanza("libc6", "2.39"),
        stanza("apt", Depends="libc6"),
        stanza("openssl", "3.0-1"),
        stanza("curl", "8.5-1"),
        stanza("rdma-core", "50", Depends="libibverbs1 (= 50)"),
        stanza("libibverbs1", "50"),
    )
    restricted = [stanza("toolkit", "12.4", Depends="openssl")]
    noble = {"main": main, "universe": [stanza("pdsh", Depends="openssl")], "restricted": restricted}
    updates = {"main": [stanza("curl", "8.5-2", Phased_Update_Percentage="0")], "universe": []}
    security = {"main": [stanza("openssl", "3.0-2")], "universe": []}
    for suite, parts, days in (("noble", noble, 0), ("noble-updates", updates, 5), ("noble-security", security, 9)):
        publish(tmp_path / "ubuntu", suite, parts, key, released=RELEASED + days)
    return Site(
        tmp_path / "store",
        mirrors={"ubuntu:": (str(tmp_path / "ubuntu"),)},
        use_host=False,
        keyrings={"ubuntu:": key.keyring},
    )

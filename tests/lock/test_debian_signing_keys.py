"""The key of a vendor's repository is taken alone out of a file of keys."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.lock.debian import gpg as gpg_program
from envbuild.lock.debian.gpg import private_gpg
from envbuild.lock.debian.signing_keys import extract_key, repository_key
from envbuild.net.limits import LIMITS
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
from envbuild.spec.recipe import AptRepository
from tests.support.time_limit import ends_within
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit

VENDOR = "A11B3F24BFF79F763B2EDCCE1647A9EA259EF1EA"
OTHER = "30F0016D367023812708B5B27F8C0BDF804E0F7C"
# Two keys made for this test (RFC 9580): that of a vendor, and another one, whose owner has bound the vendor's public
# key to it as an encryption subkey. That takes no secret of the vendor.
ADOPTED = base64.b64decode(
    """
    mQENBGsEUzcBCAC1TjNKZGDofOXcDlQ18EhEkxGQ6Nwuf10Dviu0mvmMmhUVxsqYKG2Fti1GcJbp75uZXeYeccsUyV3ut49P+xCYIIYc2cKHCXD/
    VVEWv9KaqJAHs7cIxDEOLZk35Exp/X7FnmZdAkAtrfpbG1o+HaTD61leTuZS1THEGbAG0OZUSLR6G/7troGrY6Lbe+D2OQ+tN8Wjr+0niz7rYOYJ
    XfX4aFZwvYlV+8HA+n3ehb68cBj9eIZF3qSAE1QLP0fvUXzfQZ/JcjvlUfdADGbXXgeXX1OhDcZienSSdhaT8x/0/Vt2DWuFBEu+WIbK7FuXgjP0
    m1DsDlZN5sV3Xb9lMJdLABEBAAG0F3ZlbmRvciA8dmVuZG9yQGV4YW1wbGU+iQFOBBMBCgA4FiEEoRs/JL/3n3Y7LtzOFkep6iWe8eoFAmsEUzcC
    GwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQFkep6iWe8eqMDgf+PATU0c8deUoPh9eLNEOyHQKzs+qkDZwzOIovC+sD88f5dcrOncq8aTxp
    9htt4QF+MtipMj/PDN5edzT75hMjI+IB8ceaQUjE0ZZueTqZgxmwP8mJdEclle/fZoXrnYGnm8kYMrDxPOBNrPtANaf7ZyKnYHHWDdwLD6XToc2C
    hiJ8g4MhciuWeV7LYThQ0nQj+EWtGm2LLbn76N7H+qnJmxwM4njhUUIDR+hnmRS5eHpyMGf1ZBzQMXavyA3WRD15qTrZQgnyQwfJ0XrLKYZ19VZA
    oW4Cx6IkQuy/R+aYHDqAnobklqcniah4gkL3lYmcG9tP76NeHzO0L1lkTe/ymMb/AAABDQRq3MY4AQgAopT1DPUBiyQ8BwMHw1wFCdamKONiZjCA
    6NCXLd9N/iqBSk+TnUiDGfhZQsrAvTj6jw2AgNnK6+HNFmAibXMFVsjkP5Z8LOEA+CiBsyAsVwo3ClTArXBaEd8HMEz9HsoCNSiMAmbhcoYN1KwD
    H0qd5k+hf1mZOJUR7wmg4DSwo1qSPgxaMO7lIUj8rzEX/u6gFTTJDYCyIVEI9GUQ/gtbYzEA3LzXZ5MqEXcE/0B3XJG+qAQXqhLtgFpEZ3C0nAXK
    ZAl9k63c+Aoh+s3uRE2Cj7tP6QtJ+m+IrRefBhPp9RlpO5cQ6wbPpLsdcfo/YSUrmlxI/63OtZltHj3sp09USwARAQABzf8AAAA3RGViaWFuIEFy
    Y2hpdmUgQXV0b21hdGljIFNpZ25pbmcgS2V5IDxhdHRhY2tlckBleGFtcGxlPsL/AAABQAQTAQgAKgUCatzGOBYhBDDwAW02cCOBJwi1sn+MC9+A
    Tg98AhsDAgsJAxUICgIeAQAKCRB/jAvfgE4PfMZPB/4yrsrKq7IAMx/P32du+tm3sH2cWfJvGtT/jle0Rc/TQombIIGMoWlltG2Lc3gwH+AiW+yt
    vV0p+4ROR4tYItYeddl5wn1kvut+InnHAbuEY3gjpmYMCMD+PjeN+vSzF5ep2RUEzEEIK9lgGXUCq8jPHPfLeyKq2/afiqZWGG9f5Y61++guFYqt
    PjTbGQ3fWKsC2OUGN/rf/AVDnDtWOLaxfgcydSkNk9Cx2obD0gFOCgXrr2j21ElCHXqs1fkSOBq69xOPAxmN3iFk9gWi260i5u27dco0H2usDW0v
    T57Y6YBiiLGIQ+sUZqHpdpQFoT9YAqSOlpBaZqYPcS7rA49Czv8AAAENBGsEUzcBCAC1TjNKZGDofOXcDlQ18EhEkxGQ6Nwuf10Dviu0mvmMmhUV
    xsqYKG2Fti1GcJbp75uZXeYeccsUyV3ut49P+xCYIIYc2cKHCXD/VVEWv9KaqJAHs7cIxDEOLZk35Exp/X7FnmZdAkAtrfpbG1o+HaTD61leTuZS
    1THEGbAG0OZUSLR6G/7troGrY6Lbe+D2OQ+tN8Wjr+0niz7rYOYJXfX4aFZwvYlV+8HA+n3ehb68cBj9eIZF3qSAE1QLP0fvUXzfQZ/JcjvlUfdA
    DGbXXgeXX1OhDcZienSSdhaT8x/0/Vt2DWuFBEu+WIbK7FuXgjP0m1DsDlZN5sV3Xb9lMJdLABEBAAHC/wAAATYEGAEIACAFAmrcxjgWIQQw8AFt
    NnAjgScItbJ/jAvfgE4PfAIbDAAKCRB/jAvfgE4PfIiGB/4oY0SJ3wCBithCc3FeUBYklXhL62eaTVCewRH9PXMQ3vLRSPX2eM7HWIzkMc2PMnrn
    +qve6cMDgzJhLnuKmI4VLTdHLWFrb2D+wgjRHILE727qLxKX9HiLe03qKtj6zjiU7n35g7PmXqEvO2MKcmemnHnMobcH6utbkOkKqxVs2ZF6gFgy
    EAxhKrKGh7pDPuEE1o+wqzzDO1b/tsI48WPiMKr1xLS7uD2RRcBmMWt42/U2sLSrax3E8vztpP47pOkDsAyZ54Y5ZyM2ljhPEOdcS/dD4yAIggPX
    3pT83//NBGiTDeZDnDzXVLUamMowpIh0dyVTe2qeQVrVcJzXSGzG
    """
)


def test_a_key_that_has_the_fingerprint_as_a_subkey_is_not_taken() -> None:
    require_tools("gpg")
    key, found = extract_key(ADOPTED, VENDOR)
    assert sorted(found) == sorted([VENDOR, OTHER])
    with private_gpg() as gpg:
        (gpg.home / "key").write_bytes(key)
        assert gpg.primary_keys(gpg.home / "key") == [VENDOR]


def test_a_file_with_the_fingerprint_as_a_subkey_alone_has_no_key() -> None:
    require_tools("gpg")
    own, _ = extract_key(ADOPTED, VENDOR)
    alone = ADOPTED.removeprefix(own)
    assert alone != ADOPTED
    assert extract_key(alone, VENDOR) == (b"", [OTHER])


def test_a_key_that_gpg_does_not_read_in_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kilobytes can unpack to terabytes, of which gpg reads all. The next place is tried."""
    require_tools("gpg")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/gpg"
    program.write_text(
        f'#!/bin/sh\nfor last; do :; done\ngrep -qs endless "$last" && sleep 60\nexec {shutil.which("gpg")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(gpg_program, "LIMITS", replace(LIMITS, gpg=3))
    slow, good = tmp_path / "slow", tmp_path / "good"
    slow.write_bytes(b"endless")
    good.write_bytes(ADOPTED)
    repository = AptRepository("apt:maker/r", "./", (), VENDOR, "key")
    transport = Transport(NetworkSettings())
    with ends_within(40):
        assert repository_key(repository, [str(slow), str(good)], transport, tmp_path / "keys").stat().st_size
        with pytest.raises(InputError, match=f"{slow}: gpg did not read its keys within 3 s"):
            repository_key(repository, [str(slow)], transport, tmp_path / "none")

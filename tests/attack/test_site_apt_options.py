"""Random options of apt in site files, made of the parts that apt.conf has a meaning for: each is refused, or apt reads
exactly that option and no other. ENVBUILD_ATTACK_SEED and ENVBUILD_ATTACK_N choose other options, and more."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.lock.debian.apt import configuration
from envbuild.net.apt_options import OPTIONS
from envbuild.net.site_file import read_site

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-config"), reason="apt-config is not installed"),
]
SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "300"))
PARTS = (
    '"', "'", ";", "{", "}", "::", " ", "\t", "\n", "\\", "#", "//", "/*", "*/", "%22", "\u2028", "\x00", "é", "$(id)",
    "true", "false", "http://h:1", "DIRECT", "3", "APT::Update::Pre-Invoke", "Acquire::Retries", "#clear",
    "/etc/hostname",
)  # fmt: skip


def random_options(rng: random.Random) -> dict[str, str]:
    def text(most: int) -> str:
        return "".join(rng.choice(PARTS) for _ in range(rng.randint(0, most)))

    names = (*OPTIONS, "Acquire::http::Proxy::h.example")
    return {
        rng.choice(names) + (text(2) if rng.random() < 0.3 else ""): rng.choice(PARTS)
        + (text(3) if rng.random() < 0.7 else "")
        for _ in range(rng.randint(1, 3))
    }


@pytest.mark.slow_unit
def test_an_accepted_option_is_one_option_for_apt(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    own = set(settings(tmp_path, configuration(tmp_path, "amd64", {})))
    accepted: dict[str, str] = {}
    for _ in range(TRIALS):
        wanted = random_options(rng)
        (tmp_path / "site.yaml").write_text(f"schema: 1\napt: {json.dumps(wanted)}\n")
        try:
            found = dict(read_site(tmp_path / "site.yaml").apt)
        except SpecError as error:
            assert error.exit_code == 2
            continue
        assert set(found) <= {*OPTIONS, "Acquire::http::Proxy::h.example"}
        given = settings(tmp_path, configuration(tmp_path, "amd64", found))
        assert {key: value for key, value in given.items() if key not in own} == found, f"{wanted} (seed {SEED})"
        accepted |= found
    assert len(accepted) > TRIALS / 60


def settings(folder: Path, text: str) -> dict[str, str]:
    """Return the options with a value that apt reads from a configuration."""
    path = folder / "apt.conf"
    path.write_text(text)
    done = subprocess.run(
        ["apt-config", "dump", "--no-empty"],
        env={**os.environ, "APT_CONFIG": str(path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(re.findall(r'^(\S+) "(.*)";$', done.stdout, re.MULTILINE))

"""The uv program of this machine, and the environment of its processes."""

from __future__ import annotations

import os
import shutil
import sys

from envbuild.core.errors import InputError
from envbuild.core.programs import run_program
from envbuild.net.network_settings import direct_hosts

PRESERVED_VARIABLES = (
    "UV_CACHE_DIR",
    "UV_HTTP_TIMEOUT",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_KEYRING_PROVIDER",
    "UV_CONCURRENT_DOWNLOADS",
)


def uv_binary() -> str:
    """Return the uv program of this Python environment, else the one on PATH. Raises InputError."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise InputError("uv is not installed", hint=f"{sys.executable} -m pip install uv")
    return found


def uv_version() -> str:
    """Return the version of `uv_binary`."""
    text: str = run_program([uv_binary(), "--version"], text=True).stdout
    return text.split()[1]


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables that would change what uv does (its own ones, an active
    virtual environment), and with `direct_hosts`."""
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")
    own = {
        key: value
        for key, value in os.environ.items()
        if key not in dropped and (not key.startswith("UV_") or key in PRESERVED_VARIABLES)
    }
    return own | direct_hosts()

"""Call a function where owners read as root's own: here for root, for others in a fresh process in a user namespace.

Layers hold files of many owners; a user without privileges makes and reads them with subordinate ids
(user_namespaces(7)).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuild import errors
from envbuild.errors import EngineError, EnvbuildError
from envbuild.start import MODE

BOOT = """\
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["path"]
from envbuild.engines.asroot import main
main(job)
"""


def as_root(module: str, function: str, arguments: Mapping[str, Any]) -> Any:
    """Call ``module.function(**arguments)``; arguments and result are JSON. Raises what the function raises."""
    if os.geteuid() == 0:
        return getattr(importlib.import_module(module), function)(**arguments)
    root = str(Path(__file__).resolve().parents[2])
    path = [root, *(item for item in sys.path if item and item != root)]
    job = {"path": path, "module": module, "function": function, "arguments": arguments, "parent": os.getpid()}
    command = [sys.executable, *MODE, "-I", "-B", "-c", BOOT]
    done = subprocess.run(command, input=json.dumps(job).encode(), capture_output=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        reason = done.stderr.decode(errors="replace").strip()
        raise EngineError(f"a process in a user namespace failed ({done.returncode}): {reason}") from None
    if "error" in answer:
        name, message, hint, where = answer["error"]
        kind = getattr(errors, name, EngineError)
        raise kind(message, hint, where) if issubclass(kind, EnvbuildError) else EngineError(message, hint, where)
    if "errno" in answer:
        raise OSError(answer["errno"], answer["message"])
    return answer["result"]


def main(job: dict[str, Any]) -> None:
    """The other side: become root of a user namespace, call, print the answer."""
    from envbuild.core.userns.diagnose import fix_for
    from envbuild.core.userns.namespaces import SetupError, become_root

    answer: dict[str, Any]
    try:
        become_root(job["parent"])
        answer = {"result": getattr(importlib.import_module(job["module"]), job["function"])(**job["arguments"])}
    except SetupError as error:
        reason = f"no user namespace with subordinate ids: {error.step}: {error.reason}"
        answer = {"error": ["EngineError", reason, fix_for(error.step, error.reason), ""]}
    except EnvbuildError as error:
        finding = error.findings[0]
        answer = {"error": [type(error).__name__, finding.message, finding.hint, finding.where]}
    except OSError as error:
        answer = {"errno": error.errno, "message": str(error)}
    print(json.dumps(answer), flush=True)

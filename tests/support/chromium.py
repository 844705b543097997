"""A headless Chromium, driven by the DevTools protocol over two pipes (``--remote-debugging-pipe``).

Every message of the browser is recorded: what it requests, and what it prints to its console.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.tools import tool

OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds for one answer, on a busy machine


class Page:
    """A page of the browser: `call` sends a command and returns its answer; `events` are all messages so far."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers, self.session = commands, answers, ""
        self.rest, self.number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        wanted = self.number
        message: dict[str, Any] = {"id": wanted, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == wanted:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def receive(self) -> dict[str, Any]:
        """Return the next message of the browser."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else b""
            assert data, "Chromium does not answer"
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(line))

    def wait_for(self, event: str) -> None:
        """Wait until an event came."""
        while not any(item.get("method") == event for item in self.events):
            self.events.append(self.receive())

    def open(self, address: str) -> None:
        """Open an address, and wait until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")
        self.evaluate("document.readyState")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key: its name and its number in Windows."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def requests(self) -> list[str]:
        """Return the addresses that the page requested."""
        found = [item for item in self.events if item.get("method") == "Network.requestWillBeSent"]
        return [item["params"]["request"]["url"] for item in found]

    def console(self) -> list[Any]:
        """Return everything that went to the console: calls of scripts, exceptions, messages of the browser."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [item["params"] for item in self.events if item.get("method") in kinds]


@contextmanager
def browser(folder: Path, *, width: int = 1280, height: int = 900) -> Iterator[Page]:
    """Yield an empty page of a browser whose profile is in `folder`; skip the test where Chromium is missing."""
    program = tool("chromium")
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()

    def connect() -> None:
        os.dup2(read_commands, 198)
        os.dup2(write_answers, 199)
        os.dup2(198, 3)
        os.dup2(199, 4)

    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=connect,
        pass_fds=(3, 4),
        env={**os.environ, "HOME": str(folder)},
        start_new_session=True,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        page = Page(commands, answers)
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands)
        os.close(answers)

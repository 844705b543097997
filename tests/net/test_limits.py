"""Servers that claim what is wrong, never stop or never answer: what is read of them, and when they are given up."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.net.download import ATTEMPTS, DownloadError, Transfer
from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.limits import DownloadLimits
from envbuild.net.miss import MissKind
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import TRIES, Transport
from tests.support.http_server import Handler, serving
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

CONTENT = b"content " * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SMALL = DownloadLimits(page=4096, file=1 << 20, discarded=4096, redirects=3, failures=2)


@dataclass
class Trap:
    """State of a server with a fault at each path. `asked`: the requests; `sent`: bytes of endless bodies."""

    asked: list[str] = field(default_factory=list)
    sent: int = 0
    target: str = ""  # of /away
    url: str = ""


@contextmanager
def trap(tls: ssl.SSLContext | None = None) -> Iterator[Trap]:
    """Yield a server: /file has the content, /endless never stops, /circle redirects to itself, /away to the target,
    /flood redirects with an endless body, /broken answers 500, /cut ends early, /drip sends a byte at a time."""
    state = Trap()

    class Answering(Handler):
        def head(self, status: int, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def endless(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                while state.sent < 256 << 20:
                    self.wfile.write(CONTENT)
                    state.sent += len(CONTENT)

        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.path == "/file":
                self.head(200, Content_Length=str(len(CONTENT)))
                self.wfile.write(CONTENT)
            elif self.path == "/endless":
                self.head(200)
                self.endless()
            elif self.path == "/circle":
                self.head(302, Location="/circle", Content_Length="0")
            elif self.path == "/away":
                self.head(302, Location=state.target, Content_Length="0")
            elif self.path == "/flood":
                self.head(302, Location="/file")
                self.endless()
            elif self.path == "/cut":
                self.head(200, Content_Length=str(len(CONTENT)))
                self.wfile.write(CONTENT[:10])
                self.close_connection = True
            elif self.path == "/drip":
                self.head(200, Content_Length="100000")
                with suppress(OSError):
                    while True:
                        self.wfile.write(b"x")
                        self.wfile.flush()
                        time.sleep(0.01)  # without it a busy machine receives all of them at once
            else:
                self.head(500, Content_Length="0", Retry_After="0")

    with serving(Answering, tls) as state.url:
        yield state


def transport(limits: DownloadLimits = SMALL, certificates: str = "") -> Transport:
    return Transport(NetworkSettings(certificates=certificates), limits=limits)


def misses(
    store: Store, place: str, sha256: str = DIGEST, size: int = len(CONTENT), received: list[int] | None = None
) -> list[MissKind]:
    """Return why a place is refused; `received` gets the sizes of what was written."""
    progress = (received if received is not None else []).append
    with pytest.raises(DownloadError) as caught, ends_within(60):
        Transfer(transport(), store, progress, pause=0.001).obtain([place], sha256, size)
    return [miss.kind for miss in caught.value.misses]


@pytest.mark.slow_unit
def test_a_body_without_an_end_is_read_to_the_size_of_the_lock(store: Store) -> None:
    received: list[int] = []
    with trap() as server:
        work = Transfer(transport(), store, received.append, pause=0.001)
        places = [f"{server.url}/endless", f"{server.url}/file"]
        assert work.obtain(places, DIGEST, len(CONTENT)) == (DIGEST, len(CONTENT))
        assert server.asked == ["/endless", "/file"]
        assert misses(store, places[0], "0" * 64) == [MissKind.MISMATCH]
    assert sum(size for size in received if size > 0) <= 2 * len(CONTENT)
    assert server.sent < 64 << 20  # what the buffers between the two hold


def test_size_zero_is_a_size(store: Store) -> None:
    """A registry names the sizes of its blobs: zero must not mean that the size is unknown."""
    received: list[int] = []
    with trap() as server:
        for place in ("file", "endless"):
            assert misses(store, f"{server.url}/{place}", size=0, received=received) == [MissKind.MISMATCH]
            with pytest.raises(RefusedError, match="more than 0 bytes"):
                transport().read(f"{server.url}/{place}", limit=0)
    (store.root / "file").write_bytes(CONTENT)
    assert misses(store, str(store.root / "file"), size=0, received=received) == [MissKind.MISMATCH]
    with pytest.raises(RefusedError, match="more than 0 bytes"):
        transport().read(str(store.root / "file"), limit=0)
    assert sum(size for size in received if size > 0) <= 2


def test_a_length_beyond_the_size_of_the_lock_is_not_read(store: Store) -> None:
    received: list[int] = []
    with trap() as server:
        assert misses(store, f"{server.url}/file", "0" * 64, 100, received) == [MissKind.MISMATCH]
    assert not store.part("0" * 64).exists() and not any(received)


def test_a_longer_file_of_a_folder_is_refused(store: Store, tmp_path: Path) -> None:
    received: list[int] = []
    (tmp_path / "file").write_bytes(CONTENT * 100)
    assert misses(store, str(tmp_path / "file"), received=received) == [MissKind.MISMATCH]
    assert sum(size for size in received if size > 0) <= len(CONTENT) + 1


def test_a_file_of_unknown_size_has_the_limit_of_its_kind(store: Store) -> None:
    with trap() as server:
        assert misses(store, f"{server.url}/endless", "", 0) == [MissKind.MISMATCH]
    assert server.sent < 64 << 20


def test_a_page_without_an_end_is_refused() -> None:
    with trap() as server, pytest.raises(RefusedError, match="more than 4096 bytes"):
        transport().read(f"{server.url}/endless")
    assert server.asked == ["/endless"] and server.sent < 64 << 20


def test_a_circle_of_redirects_is_left_after_a_few(store: Store) -> None:
    with trap() as server:
        assert misses(store, f"{server.url}/circle") == [MissKind.REFUSED]
        assert len(server.asked) == SMALL.redirects + 1
        with pytest.raises(RefusedError, match="redirects more than 3 times"):
            transport().read(f"{server.url}/circle")


def test_the_body_of_a_redirect_is_not_read_to_its_end() -> None:
    with trap() as server:
        with pytest.raises(RefusedError):
            transport().read(f"{server.url}/flood")
        assert server.sent < 64 << 20


@pytest.mark.parametrize("path", ["broken", "cut"])
def test_a_place_that_fails_is_requested_a_few_times(path: str, store: Store) -> None:
    with trap() as server:
        assert misses(store, f"{server.url}/{path}") == [MissKind.UNREACHABLE]
        assert len(server.asked) == ATTEMPTS


@pytest.mark.parametrize("path", ["broken", "cut"])
def test_a_host_that_fails_again_and_again_is_not_requested_any_more(path: str, store: Store) -> None:
    with trap() as server:
        common = transport()
        work = Transfer(common, store, pause=0.001)
        for number in range(5):
            with pytest.raises(DownloadError):
                work.obtain([f"{server.url}/{path}"], f"{number}" * 64, 1 << 20)
        assert len(server.asked) == SMALL.failures * ATTEMPTS
        with pytest.raises(RefusedError, match="given up"):
            common.read(f"{server.url}/page")
        assert (
            common.read(f"{server.url.replace('127.0.0.1', 'localhost')}/file", limit=len(CONTENT)).content == CONTENT
        )


def test_an_answer_ends_the_count_of_failures() -> None:
    with trap() as server:
        common = transport(DownloadLimits(failures=2))
        for _ in range(2):
            with pytest.raises(UnreachableError):
                common.read(f"{server.url}/broken")
            common.read(f"{server.url}/file")
        assert server.asked.count("/broken") == 2 * TRIES and server.asked.count("/file") == 2


def test_a_body_that_is_too_slow_is_left() -> None:
    slow = DownloadLimits(grace=0.2, slowest=1 << 40)  # the head has this time, too
    with trap() as server, pytest.raises(UnreachableError, match=r"bytes per second|in time"):
        transport(slow).read(f"{server.url}/drip")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate for the loopback interface."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", f"{path}.key", "-out", str(path)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return path


def context(certificate: Path) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, f"{certificate}.key")
    return tls


def test_a_redirect_from_https_to_http_is_refused(certificate: Path, store: Store) -> None:
    with trap() as plain, trap(context(certificate)) as secure:
        secure.target = f"{plain.url}/file"
        reader = transport(certificates=str(certificate))
        with pytest.raises(RefusedError, match="https to http"):
            reader.read(f"{secure.url}/away")
        with pytest.raises(DownloadError) as caught:
            Transfer(reader, store, pause=0.001).obtain([f"{secure.url}/away"], DIGEST, len(CONTENT))
        assert [miss.kind for miss in caught.value.misses] == [MissKind.REFUSED]
        assert plain.asked == []
        plain.target = f"{secure.url}/file"  # the other direction
        assert reader.read(f"{plain.url}/away", limit=len(CONTENT)).content == CONTENT


def test_a_redirect_is_checked_as_its_own_host_requires(certificate: Path) -> None:
    with trap(context(certificate)) as server:
        server.target = server.url.replace("127.0.0.1", "localhost") + "/file"
        reader = Transport(NetworkSettings(insecure=frozenset({"127.0.0.1"})))
        with pytest.raises(RefusedError, match="certificate is not trusted"):
            reader.read(f"{server.url}/away")
        assert reader.settings.unchecked.names == {"127.0.0.1"} and server.asked == ["/away"]
        with pytest.raises(RefusedError, match="certificate is not trusted"):
            transport(certificates="").read(f"{server.url}/file")


CLOCK = """
import sys, datetime
import urllib3.connection
urllib3.connection.RECENT_DATE = datetime.date(2999, 1, 1)  # as if this machine's clock were far back
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
print(len(Transport(NetworkSettings(certificates=sys.argv[1])).read(sys.argv[2]).content))
"""


@pytest.mark.slow_unit
def test_a_wrong_clock_causes_no_warning_of_a_library(certificate: Path) -> None:
    with trap(context(certificate)) as server:
        command = [sys.executable, "-c", CLOCK, str(certificate), f"{server.url}/file"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{len(CONTENT)}\n", "")


FULL = """
import sys
from pathlib import Path
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store
from envbuild.net.download import Transfer
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
try:
    Transfer(Transport(NetworkSettings()), Store.open(Path(sys.argv[1]))).obtain([sys.argv[2]], *eval(sys.argv[3]))
except EngineError as error:
    print(error.exit_code)
"""


@pytest.mark.slow_unit
@pytest.mark.parametrize("known", [("0" * 64, 1 << 40), ()])
def test_a_full_disk_ends_a_download_at_once(known: tuple[object, ...], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    (tmp_path / "store").mkdir()
    script = 'mount -t tmpfs -o size=2m none "$1" && shift && exec "$@"'
    with trap() as server:
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path / "store"), sys.executable, "-c", FULL]
        command += [str(tmp_path / "store"), f"{server.url}/endless", repr(known)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert (done.stdout, len(server.asked)) == ("5\n", 1)


def test_a_fifo_in_a_mirror_is_refused_at_once(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    assert misses(store, str(tmp_path / "file")) == [MissKind.REFUSED]
    with pytest.raises(RefusedError, match="not a regular file"), ends_within(60):
        transport().read(str(tmp_path / "file"))

"""A certificate authority and a certificate of it for the loopback interface, as a site has them."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

EXTENSIONS = """basicConstraints=CA:FALSE
subjectAltName=IP:127.0.0.1,DNS:localhost
extendedKeyUsage=serverAuth
"""
CA = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file with the authority, for `ca_bundle`, and the server's side of TLS."""
    folder.mkdir()
    (folder / "extensions").write_text(EXTENSIONS)
    for command in (
        ("req", "-x509", *EC, "-subj", "/CN=test authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"),
        ("req", *EC, "-subj", "/CN=test", "-keyout", "key.pem", "-out", "request.pem"),
        ("x509", "-req", "-in", "request.pem", "-days", "2", "-extfile", "extensions", *CA, "-out", "certificate.pem"),
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return folder / "ca.pem", context

"""Certificates for tests."""

import subprocess
from pathlib import Path

from fairlead.cluster.front.transport import Tls


def certificate(folder: Path) -> Tls:
    """One for localhost that signs itself."""
    pair = Tls(folder / "key.pem", folder / "certificate.pem")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    command = [*make.split(" "), *names.split(" "), *files]
    subprocess.run(command, check=True, capture_output=True)
    return pair

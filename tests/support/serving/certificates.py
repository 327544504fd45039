"""Certificates for tests of TLS."""

import shutil
import subprocess

import pytest


def self_signed(folder, name="localhost"):
    """Makes a key and a certificate of a name; returns their PEM files.

    The test is skipped if there is no `openssl`.
    """
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates.")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", key, "-out", certificate),
            *("-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name}"),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate

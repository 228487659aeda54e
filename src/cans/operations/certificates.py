"""A private certificate authority in one folder, and the certificates it signs.

`ca.pem` goes to every machine; `ca.key` stays where it was made. A folder that has an authority
already keeps it, so that devices can be added later; what exists is never written over.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cans.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS = 3650
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Written:
    """A certificate, its key, and whether they are new."""

    name: str
    certificate: Path
    key: Path
    new: bool


class Authority:
    """Signs certificates for one fleet."""

    def __init__(self, folder: Path) -> None:
        _need_cryptography()
        self._folder = folder
        self.files = Written("ca", folder / "ca.pem", folder / "ca.key", _absent(folder, "ca"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
        if self.files.new:
            self._key = _new_key()
            self._name = _named("CANS private authority")
            _write(self.files, self._sign(self._name, self._key, AUTHORITY_DAYS, None), self._key)
        else:
            self._key, self._name = _read_authority(self.files)

    def issue(self, name: str, hosts: Sequence[str], days: int) -> Written:
        """A certificate of this name; one that exists already stays as it is."""
        if not _NAME.fullmatch(name) or name == "ca":
            raise InputError(
                f"a certificate cannot be called {name!r}: letters, digits, '.', '_' and '-'"
            )
        files = Written(
            name, self._folder / f"{name}.pem", self._folder / f"{name}.key",
            _absent(self._folder, name),
        )  # fmt: skip
        if files.new:
            key = _new_key()
            _write(files, self._sign(_named(name), key, days, hosts), key)
        return files

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        days: int,
        hosts: Sequence[str] | None,
    ) -> x509.Certificate:
        """Hosts None: the authority itself."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of devices differ
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(hosts is None, None), critical=True)
        )
        if hosts is not None:
            uses = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InputError(
            "making certificates needs more packages; pip install 'cans-edge[certs]'"
        ) from None


def _absent(folder: Path, name: str) -> bool:
    there = [(folder / f"{name}{ending}").exists() for ending in (".pem", ".key")]
    if there[0] != there[1]:
        raise InputError(f"{folder} has only one of {name}.pem and {name}.key; remove it first")
    return not there[0]


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> Any:
    """An address or a host name, as a certificate writes it."""
    from cryptography import x509

    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    if not re.fullmatch(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?", text):
        raise InputError(f"{text!r} is neither a host name nor an address")
    return x509.DNSName(text)


def _read_authority(files: Written) -> tuple[Any, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot use {files.certificate} and {files.key}: {error}") from None
    if certificate.public_key() != key.public_key():
        raise InputError(f"{files.certificate} and {files.key} do not belong together")
    return key, certificate.subject


def _write(files: Written, certificate: x509.Certificate, key: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        _create(files.key, private, 0o600)
        _create(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}") from None


def _create(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(data)

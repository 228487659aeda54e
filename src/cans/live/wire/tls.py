"""TLS from files, checked when the program starts and not at the first handshake."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from cans.errors import InputError


@dataclass(frozen=True)
class ServerTls:
    """A server's certificate, and the authority of its clients if it asks for theirs."""

    certificate: Path
    key: Path
    client_authority: Path | None = None  # mutual TLS

    def credentials(self) -> Any:
        _check_pair(self.certificate, self.key)
        pair = (_read(self.key), _read(self.certificate))
        if self.client_authority is None:
            return grpc.ssl_server_credentials([pair])
        _check_authority(self.client_authority)
        return grpc.ssl_server_credentials([pair], _read(self.client_authority), True)


@dataclass(frozen=True)
class ClientTls:
    """Whom a device trusts, and its own certificate for mutual TLS."""

    ca: Path | None = None  # None: the system's
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> Any:
        if (self.cert is None) != (self.key is None):
            raise InputError("a client certificate needs its key, and the key its certificate")
        if self.ca is not None:
            _check_authority(self.ca)
        if self.cert is not None and self.key is not None:
            _check_pair(self.cert, self.key)
        return grpc.ssl_channel_credentials(
            *(None if path is None else _read(path) for path in
              (self.ca, self.key, self.cert))
        )  # fmt: skip


def trouble(server: str, tls: ClientTls | None, seconds: float = 2.0) -> str:
    """What is wrong between the encryption of a device and of a server that does not answer it;
    empty: nothing that one handshake shows. gRPC says "unavailable" in all these cases."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as plain:
            if tls is None:
                plain.sendall(_HTTP2)
                heard = plain.recv(1)
                return _SERVER_ENCRYPTS if heard in (b"", _TLS_ALERT) else ""
            context = ssl.create_default_context(cafile=tls.ca)
            context.set_alpn_protocols(["h2"])
            if tls.cert is not None:
                context.load_cert_chain(tls.cert, tls.key)
            with context.wrap_socket(plain, server_hostname=host.strip("[]")):
                return ""
    except ssl.SSLCertVerificationError as error:
        return f"the server's certificate is not accepted: {error.verify_message} (--tls-ca)"
    except ssl.SSLError:
        return "the server does not speak TLS: leave out --tls here, or give it --tls-cert there"
    except (OSError, ValueError):
        return ""


_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"  # how every gRPC client begins
_TLS_ALERT = b"\x15"
_SERVER_ENCRYPTS = "the server speaks TLS only: give --tls, or --tls-ca with its authority"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _check_pair(certificate: Path, key: Path) -> None:
    _read(certificate), _read(key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise InputError(
            f"{certificate} and {key} are no certificate with its key: "
            f"{error.reason or 'they must be PEM files'}"
        ) from None


def _check_authority(path: Path) -> None:
    _read(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise InputError(f"{path} holds no certificate: {error.reason}") from None

"""SCRAM credentials (RFC 5802): what is stored of a password, and the records that carry it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord

MAX_ITERATIONS: Final = 16384  # Kafka's: more would let a client keep a broker busy
DEFAULT_ITERATIONS: Final = 4096


class Mechanism(NamedTuple):
    name: str
    number: int
    hash_name: str
    min_iterations: int = 4096


SHA_256: Final = Mechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512: Final = Mechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Final = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
MECHANISM_NUMBERS: Final = {mechanism.number: mechanism for mechanism in (SHA_256, SHA_512)}


class ScramError(Exception):
    """A credential that was not given as it has to be; the message says how."""


def random_salt() -> bytes:
    return secrets.token_hex(16).encode()


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential(
    mechanism: Mechanism, name: str, salt: bytes, iterations: int, salted: bytes
) -> UserScramCredentialRecord:
    """Keys from which the password cannot be had back, nor a login be made."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


def parse_argument(argument: str) -> UserScramCredentialRecord:
    """``SCRAM-SHA-256=[name=alice,password=secret]``, or with iterations, salt and saltedpassword, in base64."""
    name, equals, rest = argument.strip().partition("=")
    if not equals:
        raise ScramError(f"Failed to find equals sign in SCRAM argument '{argument.strip()}'")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ScramError(f"The add-scram mechanism {name} is not supported.")
    if not rest.startswith("["):
        raise ScramError("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise ScramError("Expected configuration string to end with ]")
    given: dict[str, str] = {}
    for component in rest[1:-1].split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise ScramError(f"No equals sign found in SCRAM component: {component}")
        given[key.strip()] = value.strip().removeprefix('"').removesuffix('"')
    return _from_parts(mechanism, given)


def _from_parts(mechanism: Mechanism, given: dict[str, str]) -> UserScramCredentialRecord:
    name = given.pop("name", None)
    if name is None:
        raise ScramError("You must supply 'name' to add-scram")
    salt = _decoded("salt", given.pop("salt", None))
    count = given.pop("iterations", None)
    try:
        iterations = DEFAULT_ITERATIONS if count is None else int(count)
    except ValueError:
        raise ScramError(f"Failed to parse iterations count: {count}") from None
    password, salted_text = given.pop("password", None), given.pop("saltedpassword", None)
    salted = None
    if password is None:
        if salted_text is None:
            raise ScramError("You must supply one of 'password' or 'saltedpassword' to add-scram")
        if salt is None:
            raise ScramError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _decoded("saltedPassword", salted_text)
    if given:
        raise ScramError(f"Unknown SCRAM configurations: {', '.join(sorted(given))}")
    check = f"for add-scram using {mechanism.name.replace('-', '_')}"
    if iterations < mechanism.min_iterations:
        raise ScramError(f"The 'iterations' value must be >= {mechanism.min_iterations} {check}")
    if iterations > MAX_ITERATIONS:
        raise ScramError(f"The 'iterations' value must be <= {MAX_ITERATIONS} {check}")
    salt = random_salt() if salt is None else salt
    if salted is None:
        assert password is not None
        salted = salted_password(mechanism, password, salt, iterations)
    return credential(mechanism, name, salt, iterations, salted)


def _decoded(what: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError(f"Failed to decode given {what}: {text}") from None

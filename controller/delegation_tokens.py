"""Delegation tokens over the image: created, renewed, expired, swept away (KIP-48, KIP-900).

A token's hmac is made of its id and the cluster's secret key, so it is not stored, and who shows it proves to have been
given the token. Time and ids are passed in. Tokens are kept as records; logging in with them is the brokers' business.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from controller.image import DelegationTokenImage, MetadataImage
from controller.outcome import Outcome
from controller.record_versions import DELEGATION_TOKENS_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from protocol.metadata.delegation_token_record import DelegationTokenRecord
from protocol.metadata.remove_delegation_token_record import RemoveDelegationTokenRecord
from protocol.schema import Message

USER_TYPE: Final = "User"
MAX_SWEPT: Final = 1_000  # Kafka's limit for one step of periodic work
_FOREVER: Final = (1 << 63) - 1


class TokenSettings(NamedTuple):
    """delegation.token.*: without a secret key there are no tokens."""

    secret_key: str | None
    max_lifetime_ms: int
    expiry_time_ms: int


def token_hmac(token_id: str, secret_key: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), hashlib.sha512)


def create_delegation_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    *,
    settings: TokenSettings,
    principal: str,
    now_ms: int,
    token_id: str,
) -> Outcome[CreateDelegationTokenResponse]:
    """``principal`` is who asks ("User:alice"); the token may be for someone else, if the request names an owner."""
    requester_type, _, requester_name = principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    response = CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )
    try:
        secret_key = _enabled(image, settings)
        if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except ApiError as error:
        response.error_code = error.code
        return Outcome([], response)
    lifetime = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    max_timestamp = _later(now_ms, lifetime)
    token = DelegationTokenRecord(
        owner=f"{owner_type}:{owner_name}",
        requester=principal,
        renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, _later(now_ms, settings.expiry_time_ms)),
        token_id=token_id,
    )
    response.issue_timestamp_ms = now_ms
    response.expiry_timestamp_ms = token.expiration_timestamp
    response.max_timestamp_ms = max_timestamp
    response.token_id = token_id
    response.hmac = token_hmac(token_id, secret_key)
    return Outcome([token], response)


def renew_delegation_token(
    image: MetadataImage,
    request: RenewDelegationTokenRequest,
    *,
    settings: TokenSettings,
    principal: str,
    now_ms: int,
) -> Outcome[RenewDelegationTokenResponse]:
    """The token lives for the period from now on, but never beyond the day it was made to end at the latest."""
    try:
        token = _token(image, settings, request.hmac)
        if _is_expired(token, now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_may_renew(token, principal)
    except ApiError as error:
        return Outcome([], RenewDelegationTokenResponse(error_code=error.code))
    period = settings.expiry_time_ms
    if request.renew_period_ms > 0:
        period = min(period, request.renew_period_ms)
    expiry = min(token.max_timestamp, _later(now_ms, period))
    return Outcome([_with_expiry(token, expiry)], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry))


def expire_delegation_token(
    image: MetadataImage,
    request: ExpireDelegationTokenRequest,
    *,
    settings: TokenSettings,
    principal: str,
    now_ms: int,
) -> Outcome[ExpireDelegationTokenResponse]:
    """A negative period ends the token at once."""
    try:
        token = _token(image, settings, request.hmac)
        _check_may_renew(token, principal)
        if request.expiry_time_period_ms < 0:
            removed: Message = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Outcome([removed], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
        if _is_expired(token, now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    except ApiError as error:
        return Outcome([], ExpireDelegationTokenResponse(error_code=error.code))
    expiry = min(token.max_timestamp, _later(now_ms, request.expiry_time_period_ms))
    return Outcome([_with_expiry(token, expiry)], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry))


def sweep_expired_tokens(image: MetadataImage, *, now_ms: int, limit: int = MAX_SWEPT) -> Outcome[bool]:
    """Every delegation.token.expiry.check.interval.ms. The answer says whether there may be more to do at once."""
    expired = [token for token in image.delegation_tokens.values() if _is_expired(token, now_ms)]
    records: list[Message] = [RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired[:limit]]
    return Outcome(records, len(expired) >= limit)


def _enabled(image: MetadataImage, settings: TokenSettings) -> str:
    if settings.secret_key is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if image.features.metadata_version < DELEGATION_TOKENS_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    return settings.secret_key


def _token(image: MetadataImage, settings: TokenSettings, shown: bytes) -> DelegationTokenImage:
    secret_key = _enabled(image, settings)
    for token in image.delegation_tokens.values():
        if hmac.compare_digest(token_hmac(token.token_id, secret_key), shown):
            return token
    raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _is_expired(token: DelegationTokenImage, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _check_may_renew(token: DelegationTokenImage, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _with_expiry(token: DelegationTokenImage, expiry_ms: int) -> Message:
    return DelegationTokenRecord(
        **{**token._asdict(), "renewers": list(token.renewers), "expiration_timestamp": expiry_ms}
    )


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _FOREVER)

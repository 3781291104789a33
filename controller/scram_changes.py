"""AlterUserScramCredentials over the image: what is stored of a user's password, by mechanism (KIP-554).

A user may be named once in a request, so that the order of its changes does not matter; named twice, nothing of it
changes.
"""

from __future__ import annotations

from collections import Counter

from controller.image import MetadataImage
from controller.outcome import Outcome
from controller.record_versions import SCRAM_LEVEL
from controller.scram_credentials import MAX_ITERATIONS, MECHANISM_NUMBERS, credential
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from protocol.schema import Message


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Outcome[AlterUserScramCredentialsResponse]:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    records: list[Message] = []
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        result = results[change.name] = AlterUserScramCredentialsResult(user=change.name, error_message=None)
        try:
            if times[change.name] > 1:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            if image.features.metadata_version < SCRAM_LEVEL:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
            records.append(_record(image, change))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
    return Outcome(records, AlterUserScramCredentialsResponse(results=list(results.values())))


def _record(image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Message:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.mechanism, change.name) not in image.scram_credentials:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if change.iterations < mechanism.min_iterations:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return credential(mechanism, change.name, change.salt, change.iterations, change.salted_password)

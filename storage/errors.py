"""What can go wrong below a log, apart from the errors that clients earn with their own bytes (`ApiError`)."""

from __future__ import annotations

from protocol.errors import ApiError, ErrorCode


class StorageError(Exception):
    """The disk refused. Clients are told KAFKA_STORAGE_ERROR; readers see nothing of the failed operation."""

    def __init__(self, message: str, directory: str | None = None) -> None:
        super().__init__(message)
        self.directory = directory


class CorruptLog(StorageError):
    """Bytes on disk that no writer of this format leaves behind; recovery decides what of them survives."""


class OffsetOutOfRange(Exception):
    """An offset below the log start or above the log end; carries both so that the answer can name them."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"Offset {offset} is outside the log, which spans [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class UnexpectedAppendOffset(Exception):
    """A follower or the Raft leader was given a batch that does not continue its log."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"A batch at offset {offset} cannot be appended to a log that ends at {expected}")
        self.offset = offset
        self.expected = expected


class InvalidRecords(ApiError):
    """A batch refused because of single records; a produce response (v8 and later) names each of them.

    `record_errors` holds (index in the batch, message) and never more than the first few: a batch of a hundred
    thousand bad records must not earn a response of megabytes.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors

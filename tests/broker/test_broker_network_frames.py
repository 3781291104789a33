"""The frame reader without any socket: fed whole, byte by byte, in random pieces, and with lies."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.network.buffers import BufferPool
from broker.network.frames import PARK_LIMIT, SCRATCH_SIZE, FrameError, FrameReader

MAX = 1024 * 1024


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Feeder:
    """Plays the transport: gives bytes in pieces, and dirties the shared scratch buffer in between."""

    def __init__(self, max_size: int = MAX) -> None:
        self.scratch = bytearray(SCRATCH_SIZE)
        self.reader = FrameReader(self.scratch, max_size, BufferPool())
        self.max_held = 0

    def feed(self, data: bytes, at_most: int | None = None) -> list[bytes]:
        """All frames that `data` completes; `at_most` frames are taken per receive if given."""
        taken: list[bytes] = []
        position = 0
        while position < len(data):
            room = self.reader.writable()
            assert len(room) > 0
            piece = data[position : position + len(room)]
            room[: len(piece)] = piece
            position += len(piece)
            self.reader.received(len(piece))
            taken += self.take(at_most)
            while at_most is not None and (more := self.resume(at_most)):
                taken += more
        return taken

    def take(self, at_most: int | None) -> list[bytes]:
        taken: list[bytes] = []
        while at_most is None or len(taken) < at_most:
            found = self.reader.next_frame()
            if found is None:
                break
            taken.append(bytes(found))
        self.reader.park()
        self.scratch[:] = b"\xaa" * SCRATCH_SIZE  # another connection's bytes
        self.max_held = max(self.max_held, self.reader.held_bytes)
        return taken

    def resume(self, at_most: int) -> list[bytes]:
        self.reader.unpark()
        return self.take(at_most)


BODIES = [b"", b"x", b"hello", bytes(range(256)) * 300, b"z" * (PARK_LIMIT + 17), b"end"]


def test_whole() -> None:
    feeder = Feeder()
    assert feeder.feed(b"".join(map(frame, BODIES))) == BODIES
    assert not feeder.reader.has_partial


def test_byte_by_byte() -> None:
    bodies = [b"", b"abc", b"q" * 300]
    feeder = Feeder()
    got: list[bytes] = []
    for byte in b"".join(map(frame, bodies)):
        got += feeder.feed(bytes([byte]))
    assert got == bodies


def test_trailing_bytes_stay_for_later() -> None:
    feeder = Feeder()
    assert feeder.feed(frame(b"one") + frame(b"two")[:5]) == [b"one"]
    assert feeder.reader.has_partial
    assert feeder.reader.held_bytes == 5
    assert feeder.feed(frame(b"two")[5:]) == [b"two"]
    assert feeder.reader.held_bytes == 0


def test_taker_that_wants_one_frame_at_a_time_gets_all() -> None:
    feeder = Feeder()
    bodies = [b"%d" % i * 50 for i in range(5000)]
    assert feeder.feed(b"".join(map(frame, bodies)), at_most=1) == bodies


def check_any_pieces(sizes: list[int], cuts: list[int], at_most: int | None) -> None:
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    feeder = Feeder()
    stream = b"".join(map(frame, bodies))
    got: list[bytes] = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        got += feeder.feed(stream[:cut], at_most)
        stream = stream[cut:]
        turn += 1
    assert got == bodies
    assert not feeder.reader.has_partial


@given(
    sizes=st.lists(st.integers(0, 300), max_size=6),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    at_most=st.none() | st.integers(1, 3),
)
@settings(deadline=None)
def test_small_frames_in_any_pieces(sizes: list[int], cuts: list[int], at_most: int | None) -> None:
    check_any_pieces(sizes, cuts, at_most)


@given(
    sizes=st.lists(st.integers(0, 4 * PARK_LIMIT), max_size=5),
    cuts=st.lists(st.integers(PARK_LIMIT // 4, 2 * PARK_LIMIT), min_size=1, max_size=6),
    at_most=st.none() | st.integers(1, 3),
)
@settings(deadline=None)
def test_large_frames_in_any_pieces(sizes: list[int], cuts: list[int], at_most: int | None) -> None:
    check_any_pieces(sizes, cuts, at_most)


def test_a_claim_costs_nothing_until_bytes_arrive() -> None:
    """A peer that announces 100 MB and sends ten bytes must not make us hold more than those."""
    feeder = Feeder(max_size=100 * 1024 * 1024)
    feeder.feed(struct.pack(">i", 100 * 1024 * 1024) + b"abcdef")
    assert feeder.reader.held_bytes == 10
    feeder.feed(b"x" * 200_000)
    assert feeder.reader.held_bytes <= 2 * 200_010


def test_a_huge_frame_leaves_no_huge_buffer_behind() -> None:
    feeder = Feeder()
    body = b"y" * MAX
    assert feeder.feed(frame(body) + b"\0\0") == [body]
    assert feeder.max_held <= MAX + 4
    assert feeder.reader.held_bytes == 2


def test_a_frame_of_exactly_the_limit_is_taken_and_one_more_byte_is_not() -> None:
    assert Feeder(max_size=64).feed(frame(b"a" * 64)) == [b"a" * 64]
    with pytest.raises(FrameError, match=r"65 bytes is larger than socket\.request\.max\.bytes=64"):
        Feeder(max_size=64).feed(frame(b"a" * 65))


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_negative_length(length: int) -> None:
    with pytest.raises(FrameError, match=f"negative frame length {length}"):
        Feeder().feed(struct.pack(">i", length))


@pytest.mark.parametrize("max_size", [MAX, 2**31 - 1])
@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n"])
def test_http_is_recognised_whatever_the_limit(request_line: bytes, max_size: int) -> None:
    with pytest.raises(FrameError, match="looks like an HTTP request"):
        Feeder(max_size=max_size).feed(request_line)


@pytest.mark.parametrize("max_size", [MAX, 2**31 - 1])
def test_tls_hello_is_recognised_whatever_the_limit(max_size: int) -> None:
    with pytest.raises(FrameError, match="looks like a TLS handshake"):
        Feeder(max_size=max_size).feed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


def test_a_bad_length_behind_frames_that_wait_is_still_refused() -> None:
    """The reader is left with complete frames and a lie behind them; the lie must be found when it is its turn."""
    feeder = Feeder()
    stream = frame(b"a" * 70_000) + struct.pack(">i", 2**31 - 1) + b"b" * 40_000
    room = feeder.reader.writable()
    room[: len(stream)] = stream
    feeder.reader.received(len(stream))
    assert feeder.take(at_most=0) == []
    assert feeder.resume(1) == [b"a" * 70_000]
    with pytest.raises(FrameError):
        feeder.resume(1)


def test_a_lie_alone_in_the_buffer_is_refused_after_parking() -> None:
    feeder = Feeder()
    stream = struct.pack(">i", MAX + 1) + b"b" * (PARK_LIMIT + 1)
    feeder.reader.writable()[: len(stream)] = stream
    feeder.reader.received(len(stream))
    assert feeder.take(at_most=0) == []
    assert not feeder.reader.is_large
    with pytest.raises(FrameError):
        feeder.resume(1)


@pytest.mark.parametrize("partial", [b"\0", frame(b"abc")[:6], frame(b"x" * 300_000)[:200_000]])
def test_a_receive_that_brings_nothing_loses_nothing(partial: bytes) -> None:
    """A spurious wake-up asks for room and then has no bytes; what was parked was once lost with that."""
    feeder = Feeder()
    feeder.feed(partial)
    feeder.reader.writable()
    feeder.scratch[:] = bytes(SCRATCH_SIZE)
    assert feeder.reader.has_partial
    whole = {1: b"", 6: b"abc"}.get(len(partial), b"x" * 300_000)
    assert feeder.feed(frame(whole)[len(partial) :]) == [whole]


def test_clear_frees_everything() -> None:
    feeder = Feeder()
    feeder.feed(struct.pack(">i", MAX) + b"x" * 300_000)
    assert feeder.reader.held_bytes > 0
    feeder.reader.clear()
    assert feeder.reader.held_bytes == 0
    assert feeder.feed(frame(b"new")) == [b"new"]

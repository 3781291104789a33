"""Codecs: round trips, every cut, damage, tails and bombs. Nothing but a DecodeError comes out."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.compression import LEVELS, Compression, compress, decompress
from protocol.errors import DecodeError, EncodeError

CODECS = [codec for codec in Compression if codec != Compression.NONE]
LIMIT = 1 << 20
SAMPLE = b"".join(b"record %d of a batch;" % (number % 37) for number in range(200)) + bytes(range(256))
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.config_name)

data_strategy = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda chunk, times: chunk * times, st.binary(min_size=1, max_size=9), st.integers(0, 20_000)),
)


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.config_name)
@given(data=data_strategy)
def test_round_trip(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@each_codec
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Compression, kind: type) -> None:
    assert decompress(codec, kind(compress(codec, kind(SAMPLE))), LIMIT) == SAMPLE


@each_codec
def test_cut_at_every_byte(codec: Compression) -> None:
    """Snappy's framing has no end mark: a cut between blocks is a shorter stream, as for Kafka's reader."""
    data = SAMPLE if codec != Compression.SNAPPY else SAMPLE * 30
    whole = compress(codec, data)
    block_ends = set(snappy_block_ends(whole)) if codec == Compression.SNAPPY else set()
    step = 1 if codec != Compression.SNAPPY else 7
    for size in sorted({*range(0, len(whole), step), *block_ends} - {len(whole)}):
        if size in block_ends:
            assert data.startswith(decompress(codec, whole[:size], LIMIT))
        else:
            with pytest.raises(DecodeError):
                decompress(codec, whole[:size], LIMIT)


def snappy_block_ends(stream: bytes) -> list[int]:
    ends = [16]
    while ends[-1] < len(stream):
        ends.append(ends[-1] + 4 + struct.unpack_from(">i", stream, ends[-1])[0])
    return ends


@each_codec
@pytest.mark.parametrize("tail", [b"\0", b"tail", b"\0" * 64], ids=["zero", "text", "zeros"])
def test_trailing_bytes(codec: Compression, tail: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, SAMPLE) + tail, LIMIT)


@each_codec
def test_damage_raises_nothing_but_decode_error(codec: Compression) -> None:
    rng = random.Random(codec)
    whole = compress(codec, SAMPLE)
    for attempt in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(32 if attempt % 2 else len(damaged))] = rng.randrange(256)
        with suppress(DecodeError):
            assert len(decompress(codec, damaged, LIMIT)) <= LIMIT


@each_codec
@given(data=st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_decode_error(codec: Compression, data: bytes) -> None:
    with suppress(DecodeError):
        assert len(decompress(codec, data, LIMIT)) <= LIMIT


@each_codec
def test_the_limit_is_exact(codec: Compression) -> None:
    whole = compress(codec, SAMPLE)
    assert decompress(codec, whole, len(SAMPLE)) == SAMPLE
    with pytest.raises(DecodeError):
        decompress(codec, whole, len(SAMPLE) - 1)


@each_codec
def test_a_bomb_is_noticed_before_it_goes_off(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * LIMIT


def test_a_snappy_block_that_merely_claims_a_size_is_refused() -> None:
    claim = b"\xff\xff\xff\x2f" + b"\0" * 8  # 100 million bytes: below the limit, but not in 12 bytes of snappy
    with pytest.raises(DecodeError, match="claims"):
        decompress(Compression.SNAPPY, claim, 1 << 30)


def test_snappy_framing_is_xerials() -> None:
    stream = compress(Compression.SNAPPY, bytes(70_000))
    assert stream[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    sizes = []
    start = 16
    for end in snappy_block_ends(stream)[1:]:
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(stream[start + 4 : end]))))
        start = end
    assert sizes == [32768, 32768, 70_000 - 65_536]


def test_raw_snappy_without_framing_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLE)), LIMIT) == SAMPLE


def test_concatenated_snappy_streams_are_read() -> None:
    stream = compress(Compression.SNAPPY, SAMPLE) + compress(Compression.SNAPPY, b"more")
    assert decompress(Compression.SNAPPY, stream, LIMIT) == SAMPLE + b"more"


def test_concatenated_gzip_members_are_read_in_linear_time() -> None:
    member = compress(Compression.GZIP, b"")
    stream = member * 20_000 + compress(Compression.GZIP, SAMPLE)
    assert decompress(Compression.GZIP, stream, LIMIT) == SAMPLE


def test_gzip_is_what_zlib_reads() -> None:
    assert zlib.decompress(compress(Compression.GZIP, SAMPLE), 31) == SAMPLE


def test_several_zstd_frames_and_frames_without_size_are_read() -> None:
    streaming = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frame = streaming.compress(SAMPLE) + streaming.flush()
    assert zstandard.frame_content_size(frame) == -1
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    stream = frame + skippable + compress(Compression.ZSTD, b"more")
    assert decompress(Compression.ZSTD, stream, LIMIT) == SAMPLE + b"more"


def test_lz4_frames_are_what_kafkas_reader_insists_on() -> None:
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, SAMPLE))
    assert (info["block_size"], info["block_linked"], info["content_checksum"]) == (64 * 1024, False, False)
    assert info["content_size"] == 0


def test_linked_lz4_blocks_with_checksums_are_read() -> None:
    data = SAMPLE * 40
    frame = lz4.frame.compress(data, block_linked=True, content_checksum=True, block_checksum=True)
    assert decompress(Compression.LZ4, frame, LIMIT) == data


@each_codec
def test_levels(codec: Compression) -> None:
    allowed = LEVELS.get(codec, range(0))
    for level in {*allowed[:12], *allowed[-8:]} - ({0} if codec == Compression.GZIP else set()):
        assert decompress(codec, compress(codec, SAMPLE, level), LIMIT) == SAMPLE
    for level in (allowed.start - 1, allowed.stop, *((0,) if codec == Compression.GZIP else ())):
        with pytest.raises(EncodeError):
            compress(codec, SAMPLE, level)


def test_names() -> None:
    assert [codec.config_name for codec in Compression] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(Compression.from_name(codec.config_name) is codec for codec in Compression)
    with pytest.raises(ValueError, match="producer"):
        Compression.from_name("producer")


def test_codec_libraries_are_loaded_on_first_use() -> None:
    """A start that needs no codec must not pay for one in time or memory."""
    script = (
        "import sys, protocol.records, protocol.compression;"
        "assert not {'lz4', 'zstandard', 'cramjam', 'protocol.compression.gzip_codec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])

"""The frames between a worker and a supervisor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_sandbox import wire


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_fields_survive_packing(fields):
    assert wire.unpack(wire.pack(*fields)) == fields


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_fields_or_a_value_error(payload):
    try:
        fields = wire.unpack(payload)
    except ValueError:
        return
    assert wire.pack(*fields) == payload


def test_a_field_longer_than_its_frame_is_an_error():
    with pytest.raises(ValueError, match="longer"):
        wire.unpack(b"\0\0\0\5abcd")
    with pytest.raises(ValueError, match="longer"):
        wire.unpack(b"\0\0")


def test_a_header_says_length_kind_and_call():
    frame = wire.frame(wire.EXEC, 7, b"payload")
    assert wire.parse_header(frame[: wire.HEADER_BYTES]) == (7, wire.EXEC, 7)
    assert frame[wire.HEADER_BYTES :] == b"payload"


def test_a_frame_of_a_gigabyte_is_refused_by_its_header():
    header = (1 << 30).to_bytes(4, "big") + bytes(5)
    with pytest.raises(ValueError, match="over"):
        wire.parse_header(header)


@given(st.lists(st.binary(max_size=400_000), max_size=4))
def test_a_body_is_cut_into_full_chunks_and_one_end(pieces):
    kinds, received = [], b""
    for frame in wire.body_frames(9, pieces):
        length, kind, call = wire.parse_header(frame[: wire.HEADER_BYTES])
        assert (call, len(frame)) == (9, wire.HEADER_BYTES + length)
        kinds.append((kind, length))
        received += frame[wire.HEADER_BYTES :]
    assert received == b"".join(pieces)
    *chunks, end = kinds
    assert end == (wire.END, 0)
    assert all(chunk == (wire.CHUNK, wire.CHUNK_BYTES) for chunk in chunks[:-1])

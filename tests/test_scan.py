"""Both searches for line ends against the naive one, at every density and every seam."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore import scan
from mmapstore.scan import LineFinder, ends_by_comparison, ends_by_search

STRIDE = scan._STRIDE_NBYTES


def naive_ends(data: bytes, start: int, stop: int) -> list[int]:
    """Return one past each line feed of [start, stop), by splitting."""
    ends = []
    at = start
    for piece in data[start:stop].split(b"\n")[:-1]:
        at += len(piece) + 1
        ends.append(at)
    return ends


def by_comparison(data: bytes, start: int, stop: int, stride: int = STRIDE) -> list[int]:
    octets = np.frombuffer(data, dtype=np.uint8)
    return ends_by_comparison(octets, start, stop, np.empty(stride, np.bool_)).tolist()


def check_both(data: bytes, start: int, stop: int, stride: int = STRIDE) -> None:
    expected = naive_ends(data, start, stop)
    assert ends_by_search(data, start, stop).tolist() == expected
    assert by_comparison(data, start, stop, stride) == expected


def with_newlines(nbytes: int, at: list[int]) -> bytes:
    data = bytearray(b"x" * nbytes)
    for offset in at:
        data[offset] = 0x0A
    return bytes(data)


@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 200)), max_size=60),
    before=st.integers(0, 70),
    behind=st.integers(0, 70),
    stride=st.sampled_from([8, 64, 72, 128, 4096]),
)
def test_any_lengths_of_lines(lengths: list[int], before: int, behind: int, stride: int) -> None:
    body = b"".join(b"x" * length + b"\n" for length in lengths)
    data = b"\n" * before + body + b"\n" * behind
    # nothing outside [start, stop) counts
    check_both(data, before, before + len(body), stride)
    check_both(data, 0, len(data), stride)


@given(
    data=st.binary(max_size=400).map(lambda raw: raw.replace(b"\x01", b"\n")),
    edges=st.tuples(st.integers(0, 400), st.integers(0, 400)),
)
def test_any_range_of_any_bytes(data: bytes, edges: tuple[int, int]) -> None:
    start, stop = sorted(min(edge, len(data)) for edge in edges)
    check_both(data, start, stop, 64)


@pytest.mark.parametrize("start", [0, 1, 7, 8, 63, 64, 65])
def test_one_newline_at_every_place_of_three_words(start: int) -> None:
    for at in range(3 * 64):
        check_both(with_newlines(3 * 64 + 70, [start + at]), start, start + 3 * 64, 64)


@pytest.mark.parametrize("stride", [8, 64, 256])
def test_pairs_of_newlines_around_every_seam(stride: int) -> None:
    nbytes = 4 * stride + 5
    seams = [seam for unit in (8, 64, stride) for seam in range(0, nbytes, unit)]
    places = sorted({at for seam in seams for at in (seam - 1, seam, seam + 1) if 0 <= at < nbytes})
    for one, other in pairwise(places):
        check_both(with_newlines(nbytes, [one, other]), 0, nbytes, stride)


def test_seams_of_the_stride_in_use() -> None:
    places = [STRIDE * n + d for n in (1, 2) for d in (-65, -64, -1, 0, 1, 63, 64)]
    data = with_newlines(2 * STRIDE + 100, places)
    for start in (0, 1, 63):
        check_both(data, start, len(data))


@pytest.mark.parametrize("nbytes", [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 1000])
def test_nothing_but_newlines(nbytes: int) -> None:
    check_both(b"\n" * nbytes, 0, nbytes, 64)


def test_every_pattern_of_newlines_in_one_byte() -> None:
    for pattern in range(256):
        data = with_newlines(80, [37 + bit for bit in range(8) if pattern >> bit & 1])
        check_both(data, 0, 80, 64)
        check_both(data, 37, 45, 64)


def test_only_a_line_feed_ends_a_line() -> None:
    others = bytes(octet for octet in range(256) if octet != 0x0A)
    separators = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029".encode()
    data = others + separators + b"\n" + others
    check_both(data, 0, len(data), 64)
    assert naive_ends(data, 0, len(data)) == [len(others + separators) + 1]


def test_an_empty_range_has_no_ends() -> None:
    for at in (0, 1, 3):
        check_both(b"\n\n\n", at, at)
    check_both(b"", 0, 0)


def test_ends_are_sixty_four_bit_integers() -> None:
    octets = np.frombuffer(b"a\nb\n", dtype=np.uint8)
    assert ends_by_search(b"a\nb\n", 0, 4).dtype == np.int64
    assert ends_by_comparison(octets, 0, 4, np.empty(64, np.bool_)).dtype == np.int64
    assert ends_by_search(b"ab", 0, 2).dtype == np.int64
    assert ends_by_comparison(octets, 0, 1, np.empty(64, np.bool_)).dtype == np.int64


def test_every_memory_that_is_scanned(tmp_path: Path) -> None:
    data = b'{"a":1}\n\n{"b":2}\ntorn'
    path = tmp_path / "t"
    path.write_bytes(data)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for buffer in (data, bytearray(data), mapped):
        octets = np.frombuffer(buffer, dtype=np.uint8)
        finder = LineFinder()
        assert finder.ends(buffer, octets, 0, len(data)).tolist() == naive_ends(data, 0, len(data))
        assert ends_by_search(buffer, 0, len(data)).tolist() == naive_ends(data, 0, len(data))


class Watched(bytes):
    """Counts how often it is searched."""

    searches = 0

    def find(self, *args: object) -> int:
        type(self).searches += 1
        return super().find(*args)  # type: ignore[arg-type]


def test_the_search_follows_the_density_seen_last() -> None:
    """On short lines no call a line, on long ones no comparison of every byte."""
    # parts long enough to tell from, of short lines and of long ones
    short, long = b"x" * 9 + b"\n", b"x" * 9999 + b"\n"
    part = 100_000
    data = Watched((short * (part // 10) * 2 + long * (part // 10_000) * 2) * 2)
    octets = np.frombuffer(data, dtype=np.uint8)
    seams = range(0, len(data) + 1, part)
    finder = LineFinder()
    searches = []
    for start, stop in pairwise(seams):
        Watched.searches = 0
        assert finder.ends(data, octets, start, stop).tolist() == naive_ends(data, start, stop)
        searches.append(Watched.searches > 0)
    # the first lines are looked at before; a change of density is noticed one call late
    assert searches == [False, False, False, True, True, False, False, True]


@pytest.mark.parametrize(("nbytes", "searched"), [(10, False), (10_000, True)])
def test_a_short_part_does_not_change_the_search(nbytes: int, searched: bool) -> None:
    line = b"x" * (nbytes - 1) + b"\n"
    lines = line * (200_000 // nbytes)
    other = b"\n" * 50 if searched else b"x" * 500
    data = Watched(lines + other + lines)
    octets = np.frombuffer(data, dtype=np.uint8)
    seams = [0, len(lines), len(lines) + len(other), len(data)]
    finder = LineFinder()
    for start, stop in pairwise(seams):
        Watched.searches = 0
        assert finder.ends(data, octets, start, stop).tolist() == naive_ends(data, start, stop)
        assert (Watched.searches > 0) == searched


@given(
    parts=st.lists(
        st.tuples(st.sampled_from([1, 30, 500, 3600, 9000]), st.integers(1, 12)), max_size=8
    ),
    cuts=st.lists(st.integers(0, 60_000), max_size=10),
)
def test_parts_of_a_pass_add_up(parts: list[tuple[int, int]], cuts: list[int]) -> None:
    data = b"".join((b"x" * (nbytes - 1) + b"\n") * count for nbytes, count in parts) + b"torn"
    seams = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    octets = np.frombuffer(data, dtype=np.uint8)
    finder = LineFinder()
    found: list[int] = []
    for start, stop in pairwise(seams):
        found += finder.ends(data, octets, start, stop).tolist()
    assert found == naive_ends(data, 0, len(data))

"""Probes only ever return what a parser would say, and only because of the line's own bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmapstore import probe
from mmapstore.dialect import Probe
from mmapstore.probe import Block, blocks, plain_values, string_values
from tests.strategies import damaged_lines, seeds, spelled, texts, values, whole_lines

HEAD, TAIL, VALUE = probe._HEAD_NBYTES, probe._TAIL_NBYTES, probe.VALUE_NBYTES
MARGIN = probe._MARGIN_NBYTES
#: stands for the value looked for; nothing else in a line holds it
VALUE_TEXT = "<the value>"
OPENING = b'"type":"'
#: what may stand right before a value that a probe has found
OPENINGS = (OPENING, b'"type": "')
#: bytes that would answer the question, were they looked at
TEMPTING = [
    b'{"type":"wrong"}\n',
    b'"type":"wrong","x":1}\n',
    b'","type":"wrong"}\n',
    b',"type":"wrong"\n',
    b'type":"wrong"}\n',
    b'":"wrong","type":"wrong"}\n',
    b"\n",
    b"}\n",
    b'"\n',
    b'{"a":[]}\n',
    b"\\\n",
    b"\0\0\0\n",
]
EVERY = (Probe.FIRST, Probe.HEAD, Probe.TAIL)


def ends_of(lines: list[bytes]) -> tuple[Any, Any]:
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    ends = np.cumsum(lengths)
    return ends - lengths, ends


def values_found(lines: list[bytes], probes: tuple[Probe, ...] = EVERY) -> list[int]:
    """Return for each line where its value starts, counted from the line's start, or -1."""
    buffer = b"".join(lines)
    starts, ends = ends_of(lines)
    found = np.full(len(lines), -2, dtype=np.int64)
    for places, block in blocks(buffer, starts, ends):
        at = string_values(block, b"type", probes, np.arange(len(block.starts)))
        found[places] = np.where(at < 0, -1, at - block.starts)
    return found.tolist()


def found_alone(line: bytes, probes: tuple[Probe, ...] = EVERY) -> int:
    (found,) = values_found([line], probes)
    return found


records = st.dictionaries(st.sampled_from(["id", "k", "}", "é", "blocks"]), values, max_size=4)


@given(record=records, index=st.integers(0, 4), seed=seeds, end=st.sampled_from([b"\n", b"\r\n"]))
def test_a_value_found_is_the_parsers(
    record: dict[str, Any], index: int, seed: int, end: bytes
) -> None:
    items = list(record.items())
    items.insert(index, ("type", VALUE_TEXT))
    line = spelled(dict(items), seed) + end
    at = line.find(VALUE_TEXT.encode())  # -1 where the value is spelled with an escape
    for probes in (*((one,) for one in Probe), EVERY):
        found = found_alone(line, probes)
        if at >= 0:
            assert found in (-1, at)
        elif found >= 0:
            string = json.loads(line[found - 1 :].split(b'"', 2)[1].join([b'"', b'"']))
            assert string == VALUE_TEXT


@given(record=st.dictionaries(st.sampled_from(["id", "k", "a"]), values, max_size=4), seed=seeds)
def test_nothing_is_found_where_no_such_key_is(record: dict[str, Any], seed: int) -> None:
    line = spelled(record, seed) + b"\n"
    for one in Probe:
        assert found_alone(line, (one,)) == -1


@given(value=st.one_of(values.filter(lambda value: not isinstance(value, str))), seed=seeds)
def test_a_value_that_is_no_string_is_not_found(value: Any, seed: int) -> None:
    for record in ({"type": value, "a": 1}, {"a": 1, "type": value}):
        line = spelled(record, seed) + b"\n"
        for one in Probe:
            assert found_alone(line, (one,)) == -1


@given(text=texts, before=st.booleans())
def test_no_text_is_taken_for_the_key(text: str, before: bool) -> None:
    tricky = {"k": text, "l": text * 2}
    record = {**tricky, "type": VALUE_TEXT} if before else {"type": VALUE_TEXT, **tricky}
    line = spelled(record, 0) + b"\n"
    at = line.index(VALUE_TEXT.encode())
    for one in Probe:
        assert found_alone(line, (one,)) in (-1, at)


# -- where each probe reaches ---------------------------------------------------------


def test_first_reads_the_key_that_opens_the_line() -> None:
    assert found_alone(b'{"type":"x"}\n', (Probe.FIRST,)) == 9
    assert found_alone(b'{"type": "x"}\n', (Probe.FIRST,)) == 10
    for line in (
        b'{ "type":"x"}\n',
        b'{"type" :"x"}\n',
        b'{"type":1}\n',
        b'{"types":"x"}\n',
        b' {"type":"x"}\n',
        b'["type":"x"]\n',
        b'{"typ\n',
        b"\n",
    ):
        assert found_alone(line, (Probe.FIRST,)) == -1


def test_a_literal_at_every_place_around_the_end_of_the_head() -> None:
    for pad in range(HEAD - 40, HEAD + 20):
        line = b'{"k":"' + b"x" * pad + b'","type":"value","blocks":[1]}\n'
        at = line.index(b"value")
        expected = at if at <= HEAD else -1
        assert found_alone(line, (Probe.HEAD,)) == expected
        assert values_found([line] * 8, (Probe.HEAD,)) == [expected] * 8


def test_a_literal_at_every_place_around_the_start_of_the_tail() -> None:
    for pad in range(TAIL - 60, TAIL + 20):
        line = b'{"blocks":[1],"type":"value","k":"' + b"x" * pad + b'"}\n'
        at = line.index(b"value")
        # the window ends before the closing brace; a byte before the literal must be in it
        expected = at if len(line) - 2 - TAIL < at - len(OPENING) else -1
        assert found_alone(line, (Probe.TAIL,)) == expected
        assert values_found([line] * 8, (Probe.TAIL,)) == [expected] * 8


@pytest.mark.parametrize("nbytes", [*range(12, 40), *range(TAIL - 4, TAIL + 5)])
def test_lines_as_long_as_the_tail_and_nearly(nbytes: int) -> None:
    pad = nbytes - len(b'{"a":"","type":""}\n')
    for line in (
        b'{"a":"' + b"x" * pad + b'","type":""}\n',
        b'{"type":"","a":"' + b"x" * pad + b'"}\n',
        b'{"type":"' + b"x" * (nbytes - 12) + b'"}\n',
    ):
        at = line.index(OPENING) + len(OPENING)
        for company in ([line], [line] * 9, [*TEMPTING, *([line, *TEMPTING] * 40)]):
            for one in Probe:
                for each, found in zip(company, values_found(company, (one,)), strict=True):
                    assert each != line or found in (-1, at)
                    assert found != -2


@pytest.mark.parametrize("nbytes", range(HEAD - 4, HEAD + 5))
def test_lines_as_long_as_the_head_and_nearly(nbytes: int) -> None:
    shell = b'{"a":"%s","type":"v","b":[]}\n'
    line = shell % (b"x" * (nbytes - len(shell) + 2))
    assert len(line) == nbytes
    expected = line.index(b'v"')
    for company in ([line], [line] * 5):
        assert values_found(company, (Probe.HEAD,)) == [expected] * len(company)


@pytest.mark.parametrize(
    ("line", "found_by"),
    [
        # a container before the key: the head proves nothing, the tail may
        (b'{"a":{},"type":"v"}\n', {Probe.TAIL}),
        (b'{"a":[],"type":"v"}\n', {Probe.TAIL}),
        (b'{"a":"{","type":"v"}\n', {Probe.TAIL}),
        # one behind it: the other way round
        (b'{"a":1,"type":"v","b":{}}\n', {Probe.HEAD}),
        (b'{"a":1,"type":"v","b":[]}\n', {Probe.HEAD}),
        (b'{"a":1,"type":"v","b":"}"}\n', {Probe.HEAD}),
        (b'{"a":1,"type":"v]"}\n', {Probe.HEAD}),
        (b'{"a":[],"type":"v","b":[]}\n', set()),
        # inside a container
        (b'{"a":{"type":"no"}}\n', set()),
        (b'{"a":[{"type":"no"}]}\n', set()),
        (b'{"a":{"b":1,"type":"no"}}\n', set()),
        # inside a string
        (b'{"a":"\\"type\\":\\"no\\""}\n', set()),
        (b'{"a":"x","b":"\\"type\\":\\"no"}\n', set()),
        # at the end of another key
        (b'{"a\\"type":"no"}\n', set()),
        (b'{"k":1,"a\\"type":"no","b":2}\n', set()),
        (b'{"k":1,"a\\\\\\"type":"no","b":2}\n', set()),
        # behind a backslash: dismissed, whatever a search further back would find
        (b'{"a":"\\\\","type":"v"}\n', {Probe.HEAD, Probe.TAIL}),
        # no object, or an object that does not end the line
        (b'["a","type":"v"}\n', set()),
        (b'{"a":1,"type":"v"} \n', {Probe.HEAD}),
        (b'{"a":1,"type":"v"}\r\n', {Probe.HEAD, Probe.TAIL}),
        # spelled loosely: one space behind the colon is all that is looked for
        (b'{"a":1,"type": "v"}\n', {Probe.HEAD, Probe.TAIL}),
        (b'{"a":1,"type" :"v"}\n', set()),
        (b'{"a":1,"type":  "v"}\n', set()),
    ],
)
def test_what_each_probe_proves(line: bytes, found_by: set[Probe]) -> None:
    for one in (Probe.HEAD, Probe.TAIL):
        expected = line.index(b'v"') if one in found_by and b'v"' in line else -1
        if b"v]" in line and one in found_by:
            expected = line.index(b"v]")
        assert found_alone(line, (one,)) == expected


def test_probes_are_asked_in_order_and_each_only_for_what_is_left() -> None:
    line = b'{"type":"first","type":"last"}\n'
    assert line[found_alone(line, (Probe.FIRST, Probe.TAIL)) :].startswith(b"first")
    assert line[found_alone(line, (Probe.TAIL, Probe.FIRST)) :].startswith(b"last")
    assert line[found_alone(line, (Probe.HEAD,)) :].startswith(b"last")
    assert found_alone(line, ()) == -1


def one_block(lines: list[bytes]) -> Block:
    """Return lines as one block with room around them."""
    room = b"\0" * MARGIN
    starts, ends = ends_of(lines)
    return Block(room + b"".join(lines) + room, starts + MARGIN, ends + MARGIN)


def test_only_the_lines_asked_for_are_looked_at() -> None:
    lines = [b'{"type":"%d"}\n' % index for index in range(9)]
    block = one_block(lines)
    todo = np.array([7, 2, 3])
    found = string_values(block, b"type", EVERY, todo)
    assert (found - block.starts[todo]).tolist() == [9, 9, 9]
    assert len(string_values(block, b"type", EVERY, todo[:0])) == 0


NESTED = [
    (b'{"a":1,"payload":{"type":"v"}}\n', b'v"'),
    (b'{"a":1,"payload":{"type":"v","b":[{}]},"c":{}}\n', b'v"'),
]
NOT_NESTED = [
    b'{"a":{},"payload":{"type":"v"}}\n',
    b'{"a":{"payload":{"type":"v"}}}\n',
    b'{"a":"\\"payload\\":{\\"type\\":\\"v"}\n',
    b'{"payload":{"b":{},"type":"v"}}\n',
    b'{"payload":[{"type":"v"}]}\n',
]


@pytest.mark.parametrize(("line", "rest"), NESTED)
def test_the_first_key_of_a_first_nested_object_is_proven(line: bytes, rest: bytes) -> None:
    block = one_block([line])
    (found,) = string_values(block, b'payload":{"type', (Probe.HEAD,), np.array([0])).tolist()
    assert found - MARGIN == line.index(rest)


@pytest.mark.parametrize("line", NOT_NESTED)
def test_what_is_not_the_first_key_of_a_first_nested_object(line: bytes) -> None:
    block = one_block([line])
    assert string_values(block, b'payload":{"type', (Probe.HEAD,), np.array([0])).tolist() == [-1]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (b'message","x"', 7),
        (b'"', 0),
        (b'mess\\u0061ge"', -1),
        (b'a\\"b"', -1),
        (b'a","b\\"c"', 1),
        (b"x" * (VALUE - 1) + b'"', VALUE - 1),
        (b"x" * VALUE + b'"', -1),
        (b'a\0b"', 3),
    ],
)
def test_plain_values_end_at_their_quote(text: bytes, nbytes: int) -> None:
    block = one_block([text + b"\n", text + b"\n"])
    rows, lengths = plain_values(block, block.starts, np.arange(2))
    assert lengths.tolist() == [nbytes] * 2
    if nbytes >= 0:
        assert [row[:nbytes] for row in rows.tolist()] == [text[:nbytes]] * 2


# -- the line's own bytes -------------------------------------------------------------

any_line = st.one_of(
    whole_lines, whole_lines, damaged_lines(), st.sampled_from([line[:-1] for line in TEMPTING])
).map(lambda line: line.replace(b"\n", b" ") + b"\n")


@given(line=any_line, before=st.sampled_from(TEMPTING), behind=st.sampled_from(TEMPTING))
def test_no_probe_answers_out_of_another_line(line: bytes, before: bytes, behind: bytes) -> None:
    far = b'{"k":"' + b"x" * MARGIN + b'"}\n'
    for one in Probe:
        _, _, found, *_ = values_found([far, before, line, behind, far, far], (one,))
        if found != -1:
            assert found > 0
            assert line[:found].endswith(OPENINGS)
            assert found < len(line)


@given(line=any_line, before=st.sampled_from(TEMPTING), behind=st.sampled_from(TEMPTING))
@example(line=b'{"a":1,"type":"v"}\n', before=TEMPTING[0], behind=b'"type":"wrong","x":1}\n').via(
    "a neighbour that does not begin with a brace"
)
def test_the_answer_does_not_depend_on_the_neighbours(
    line: bytes, before: bytes, behind: bytes
) -> None:
    far = b'{"k":"' + b"x" * MARGIN + b'"}\n'
    for probes in (*((one,) for one in Probe), EVERY, EVERY[::-1]):
        alone = found_alone(line, probes)
        for company in ([line, behind], [before, line], [far, before, line, behind, far, far]):
            found = values_found(company, probes)
            assert found[company.index(line)] == alone


@pytest.mark.parametrize("nbytes", [*range(60), *range(MARGIN - 70, MARGIN + 30)])
def test_lines_at_every_distance_from_the_ends_of_the_buffer(nbytes: int) -> None:
    """The copies at the edges say what the lines inside say."""
    line = b'{"a":[1],"b":"x","type":"v"}\n'
    edge = b"x" * nbytes + b"\n"
    expected = line.index(b'v"')
    for company in ([edge, line, edge], [edge, line], [line, edge], [line, edge, line]):
        for each, found in zip(company, values_found(company), strict=True):
            assert found == (expected if each == line else -1)


@given(lengths=st.lists(st.one_of(st.integers(1, 20), st.integers(1, 700)), max_size=30))
def test_blocks_hold_every_line_once(lengths: list[int]) -> None:
    lines = [
        bytes([65 + index % 26]) * (length - 1) + b"\n" for index, length in enumerate(lengths)
    ]
    buffer = b"".join(lines)
    starts, ends = ends_of(lines)
    seen: list[int] = []
    for places, block in blocks(buffer, starts, ends):
        indices = list(range(len(lines)))[places]
        assert len(indices) == len(block.starts) == len(block.ends) > 0
        for index, place in enumerate(indices):
            assert block.line(index) == lines[place]
        # every window that a probe may look at is there to be read
        assert block.ends.min() - 2 - TAIL >= 0
        block.texts(block.starts, HEAD + VALUE)
        block.texts(block.ends - 2 - TAIL, TAIL)
        block.texts(block.ends, VALUE)
        seen += indices
    assert sorted(seen) == list(range(len(lines)))


def test_blocks_of_a_part_of_a_buffer() -> None:
    """What a reader keeps in front of and behind the new lines is no line of the block."""
    lines = [b'{"k":"%d","type":"v"}\n' % index for index in range(200)]
    buffer = bytearray(b"".join(lines))
    starts, ends = ends_of(lines)
    for part in (slice(0, 3), slice(50, 60), slice(197, 200), slice(80, 80)):
        found = [
            block.line(index)
            for _, block in blocks(buffer, starts[part], ends[part])
            for index in range(len(block.starts))
        ]
        assert sorted(found) == sorted(lines[part])

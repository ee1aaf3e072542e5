"""One line to one object: the verdict of two decoders, whatever the line is reached by."""

from __future__ import annotations

import json
import locale
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore.decode import (
    Undecodable,
    UndecodableError,
    decode_distinct,
    decode_each,
    decode_object,
    decode_value,
)
from tests.oracle import same_json
from tests.strategies import damaged_lines, whole_lines


def naive(line: bytes) -> dict[str, Any] | None:
    """Return the object, or None: the standard library over strict UTF-8 text."""
    try:
        value = json.loads(line.decode("utf-8", "strict"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def decoded(line: bytes | memoryview) -> dict[str, Any] | None:
    try:
        return decode_object(line)
    except UndecodableError as error:
        assert str(error)
        return None


@given(line=st.one_of(whole_lines, damaged_lines(), st.binary(max_size=30)))
def test_whole_and_damaged_lines_as_the_standard_library_reads_them(line: bytes) -> None:
    expected = naive(line)
    for text in (line, line + b"\n", line + b"\r\n", memoryview(line), memoryview(line + b"\n")):
        found = decoded(text)
        assert (found is None) == (expected is None)
        assert found is None or same_json(found, expected)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"{}", {}),
        (b' \t{"a":1}\r\n', {"a": 1}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":"\\udc00\\ud83d"}', {"a": "\udc00\ud83d"}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"\\ud800":1}', {"\ud800": 1}),
        (b'{"a":Infinity,"b":-Infinity}', {"a": math.inf, "b": -math.inf}),
        (b'{"a":1e400}', {"a": math.inf}),
        (b'{"a":18446744073709551615}', {"a": 2**64 - 1}),
        (b'{"a":-9223372036854775808}', {"a": -(2**63)}),
        ('{"a":"\u2028\x85"}'.encode(), {"a": "\u2028\x85"}),
        (b'{"a":"\\u0000"}', {"a": "\0"}),
        (b'{"a":"\x7f"}', {"a": "\x7f"}),
    ],
)
def test_what_decodes(line: bytes, value: dict[str, Any]) -> None:
    assert decode_object(line) == value
    assert decode_object(memoryview(b"xx" + line + b"xx")[2:-2]) == value


def test_not_a_number_decodes_to_itself() -> None:
    assert math.isnan(decode_object(b'{"a":NaN}')["a"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "Expecting value at character 0"),
        (b"\n", "Expecting value"),
        (b"[]", "a JSON array, not an object"),
        (b'"type"', "a JSON string, not an object"),
        (b"12", "a JSON number, not an object"),
        (b"1.5", "a JSON number, not an object"),
        (b"NaN", "a JSON number, not an object"),
        (b"true", "a JSON boolean, not an object"),
        (b"null", "a JSON null, not an object"),
        (b'{"a":1}{"b":2}', "Extra data at character 7"),
        (b'{"a":1} x', "Extra data at character 8"),
        (b'{"a":1', "at character 6"),
        (b'{"a":1,}', "at character"),
        (b'{"a":"\x01"}', "Invalid control character at"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xc0\x80"}', "not UTF-8 at byte 6"),
        (b'{"a":"x\xe8\xa1', "not UTF-8 at byte 7"),
        (b'{"a":"x"}\0', "a NUL byte at byte 9"),
        (b'{"a":"\0"}', "a NUL byte at byte 6"),
        (b"\0" * 4096, "a NUL byte at byte 0"),
        (b'\xef\xbb\xbf{"a":1}', "BOM"),
        ('{"a":1}'.encode("utf-16"), "a NUL byte"),
        ('{"a":1}'.encode("utf-16-le"), "a NUL byte"),
        ('{"a":1}'.encode("utf-32-be"), "a NUL byte"),
        (b"{'a':1}", "at character 1"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 900 deep"),
        (b'{"a":NaN,"b":' + b"7" * 5000 + b"}", "digits"),
    ],
)
def test_what_does_not_decode_and_why(line: bytes, reason: str) -> None:
    with pytest.raises(UndecodableError) as caught:
        decode_object(line)
    assert reason in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_value_may_be_anything() -> None:
    assert decode_value(b'"a"') == "a"
    assert decode_value(memoryview(b"[1]")) == [1]
    assert decode_value(b"null") is None
    with pytest.raises(UndecodableError):
        decode_value(b"")


lists_of_lines = st.lists(st.one_of(whole_lines, whole_lines, damaged_lines()), max_size=8)


@given(lines=lists_of_lines)
def test_lines_together_as_each_alone(lines: list[bytes]) -> None:
    found = decode_each([memoryview(line) for line in lines])
    assert len(found) == len(lines)
    for line, record in zip(lines, found, strict=True):
        expected = naive(line)
        if expected is None:
            assert isinstance(record, Undecodable)
            with pytest.raises(UndecodableError) as caught:
                decode_object(line)
            assert record.reason == str(caught.value)
        else:
            assert same_json(record, expected)


def test_one_line_that_is_no_object_among_objects() -> None:
    found = decode_each([memoryview(line) for line in (b'{"a":1}', b"[2]", b'{"b":3}')])
    assert found == [{"a": 1}, Undecodable("a JSON array, not an object"), {"b": 3}]
    assert decode_each([]) == []


def naive_distinct(lines: list[bytes], key: str) -> dict[str, dict[str, Any]] | None:
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        record = naive(line)
        value = None if record is None else record.get(key)
        if not isinstance(value, str) or not value or value in found:
            return None
        found[value] = record or {}
    return found


keyed = st.sampled_from(["a", "b", "c", "d", "e", "é", ""])
objects_with_ids = st.builds(
    lambda value: json.dumps({"id": value, "k": [1]}).encode(),
    st.one_of(keyed, keyed, keyed, st.sampled_from([1, None, True, ["a"], {"a": 1}])),
)


@given(lines=st.one_of(lists_of_lines, st.lists(objects_with_ids, max_size=5, unique=True)))
def test_objects_of_distinct_ids_come_by_their_ids_or_not_at_all(lines: list[bytes]) -> None:
    found = decode_distinct([memoryview(line) for line in lines], "id")
    expected = naive_distinct(lines, "id")
    if found is None:
        # what orjson refuses may be left to the slow way
        lenient = any(b"\\ud" in line.lower() for line in lines)
        assert expected is None or lenient
        return
    assert expected is not None
    assert list(found) == list(expected)
    assert same_json(found, expected)


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b'"id"',
        b"1",
        b"null",
        b"{}",
        b'{"id":1}',
        b'{"id":""}',
        b'{"id":["a"]}',
        b'{"id":"a"',
        b"",
    ],
)
def test_one_line_without_a_string_of_its_own_is_enough(line: bytes) -> None:
    whole = [memoryview(b'{"id":"x"}'), memoryview(b'{"id":"y"}')]
    assert decode_distinct(whole, "id") == {"x": {"id": "x"}, "y": {"id": "y"}}
    for at in range(3):
        assert decode_distinct([*whole[:at], memoryview(line), *whole[at:]], "id") is None
    assert decode_distinct([*whole, whole[0]], "id") is None
    assert decode_distinct([], "id") == {}


def test_the_locale_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "getpreferredencoding", lambda *args: "ascii")
    monkeypatch.setattr(locale, "getencoding", lambda: "ascii")
    assert decode_object('{"é":"\\ud800"}'.encode()) == {"é": "\ud800"}


def at_depth(depth: int, line: bytes) -> dict[str, Any] | None:
    return decoded(line) if depth == 0 else at_depth(depth - 1, line)


def test_the_verdict_does_not_depend_on_the_depth_of_the_stack() -> None:
    # what orjson refuses for its lone surrogate, and json counts against the caller's stack
    line = b'{"a":"\\ud800","b":' + b"[" * 600 + b"]" * 600 + b"}"
    verdicts = {at_depth(depth, line) is None for depth in range(0, 700, 50)}
    assert len(verdicts) == 1


def test_orjson_is_asked_first() -> None:
    # where the two differ the contract names the first: integers beyond 64 bits
    line = b'{"a":18446744073709551616}'
    assert decode_object(line) == orjson.loads(line)
    assert type(decode_object(line)["a"]) is float

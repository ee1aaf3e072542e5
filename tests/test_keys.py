"""The depth-aware scan against a parser that notes where every value starts."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mmapstore.keys import find_path, find_value, nesting, object_start, token_at
from tests.strategies import seeds, spelled, values

_DECODER = json.JSONDecoder()
_WHITE = " \t\r\n"


def members(text: str, at: int) -> list[tuple[str, int]]:
    """Return (key as it is spelled, offset of its value) of the object at an offset."""

    def past_white(at: int) -> int:
        while text[at] in _WHITE:
            at += 1
        return at

    found = []
    assert text[at] == "{"
    at = past_white(at + 1)
    while text[at] != "}":
        _, end = _DECODER.raw_decode(text, at)
        key = text[at + 1 : end - 1]
        at = past_white(end)
        assert text[at] == ":"
        value = past_white(at + 1)
        found.append((key, value))
        _, end = _DECODER.raw_decode(text, value)
        at = past_white(end)
        if text[at] == ",":
            at = past_white(at + 1)
    return found


def naive_value(line: bytes, at: int, key: bytes) -> int:
    """Return what find_value has to return, by parsing one character a byte."""
    spelled_key = key.decode("latin-1")
    places = [value for name, value in members(line.decode("latin-1"), at) if name == spelled_key]
    return places[0] if places else -1


def naive_path(line: bytes, path: tuple[bytes, ...]) -> int:
    text = line.decode("latin-1")
    at = len(text) - len(text.lstrip(_WHITE))
    for key in path:
        if key:
            at = naive_value(line, at, key) if text[at] == "{" else -1
        elif text[at] == "[":
            at += 1
            at += len(text[at:]) - len(text[at:].lstrip(_WHITE))
            at = -1 if text[at] == "]" else at
        else:
            at = -1
        if at < 0:
            return -1
    return at


KEYS = ["type", "id", "k", "}", "subtype", "é", ""]
records = st.dictionaries(st.sampled_from(KEYS), values, max_size=5)
texts = st.builds(spelled, records, seeds)


@given(line=texts, key=st.sampled_from(["type", "id", "k", "subtype", "é"]))
def test_a_value_is_where_a_parser_finds_it(line: bytes, key: str) -> None:
    brace = object_start(line)
    assert line[brace] == 0x7B
    assert find_value(line, brace, key.encode()) == naive_value(line, brace, key.encode())


@given(
    line=st.builds(
        spelled,
        st.recursive(
            st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2),
            lambda inner: st.dictionaries(
                st.sampled_from(["a", "b"]),
                st.one_of(inner, st.lists(inner, max_size=2)),
                max_size=2,
            ),
        ),
        seeds,
    ),
    path=st.lists(st.sampled_from([b"a", b"a", b"b", b""]), max_size=4).map(tuple),
)
def test_a_path_leads_where_a_parser_goes(line: bytes, path: tuple[bytes, ...]) -> None:
    expected = naive_path(line, path)
    assume(expected >= 0 or not path or path[-1])  # the end of an empty array: see below
    assert find_path(line, path) == expected


@pytest.mark.parametrize("line", [b'{"a":[]}', b'{"a":[ \t]}'])
def test_an_empty_array_has_no_first_element(line: bytes) -> None:
    assert find_path(line, (b"a", b"")) == naive_path(line, (b"a", b"")) == -1


@given(
    members=st.lists(
        st.tuples(
            st.sampled_from(['"type"', '"k"', '"\\u0074ype"', '"\\"type"', '"type\\\\"']),
            st.sampled_from(['"type"', "1", '{"type":0}', '["type",{"type":2}]', '"\\"type\\":"']),
        ),
        max_size=5,
    ),
    colon=st.sampled_from([":", " :", ": ", "\t:\r"]),
)
def test_of_a_repeated_key_the_first_literal_counts(
    members: list[tuple[str, str]], colon: str
) -> None:
    text = "{" + ",".join(key + colon + value for key, value in members) + "}"
    literal = [index for index, (key, _) in enumerate(members) if key == '"type"']
    found = find_value(text.encode(), 0, b"type")
    assert found == naive_value(text.encode(), 0, b"type")
    if literal:
        assert text[found:].startswith(members[literal[0]][1])
    else:
        assert found == -1


@pytest.mark.parametrize("count", range(10))
@pytest.mark.parametrize("quoted", ['"type":"no"', '"', '"type"', '{"type":"no"}'])
def test_backslash_runs_of_every_length_before_a_quote(count: int, quoted: str) -> None:
    for record in (
        {"a": "\\" * count + quoted, "type": "yes"},
        {"a": {"b": "\\" * count + quoted}, "type": "yes"},
        {"a": ["\\" * count, quoted], "b": {"c": "\\" * count}, "type": "yes"},
        {"\\" * count + quoted: 1, "type": "yes"},
    ):
        line = json.dumps(record).encode()
        found = find_value(line, 0, b"type")
        assert line[found:] == b'"yes"}'


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"type","b":1}',
        '{"a":"type" , "b":1}',
        '{"a":["type"],"b":["type",":"]}',
        '{"a":{"type":1}}',
        '{"a":[{"type":1}]}',
        '{"a":[[],{"b":{},"type":1}]}',
        '{"a":"\\"type\\":1"}',
        '{"a":"{","b":{"type":1},"c":"}"}',
        '{"a":"}","b":{"type":"}"}}',
        '{"typ":1,"types":2,"xtype":3,"TYPE":4," type":5}',
        '{"\\u0074ype":1}',
        "{}",
    ],
)
def test_what_is_not_the_key(text: str) -> None:
    assert find_value(text.encode(), 0, b"type") == -1


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"type","type":1}',
        '{"a":"type" ,"type":1}',
        '{"a":{"type":0},"type":1}',
        '{"a":[{"type":0}],"type":1}',
        '{"a":"{[","type":1}',
        '{"a":"}]}]","type":1}',
        '{"a":{"b":"}}}","c":[[[]]]},"type":1}',
        '{ \t"type"\r : \t1}',
        '{"a":"\\\\","type":1}',
        '{"a":"\\\\\\"{","type":1}',
    ],
)
def test_what_is_the_key(text: str) -> None:
    found = find_value(text.encode(), 0, b"type")
    assert text[found:] == "1}"


def test_nothing_behind_the_object_belongs_to_it() -> None:
    assert find_value(b'{"a":1},"type":2', 0, b"type") == -1
    assert find_value(b'{"a":{"b":1}},"type":2}', 0, b"type") == -1
    # not even where another object of the same depth opens
    assert find_value(b'{"a":1}{"type":2}', 0, b"type") == -1
    assert find_value(b'[{"a":1},{"type":2}]', 1, b"type") == -1


def test_an_inner_object_is_searched_from_its_own_brace() -> None:
    line = b'{"type":0,"a":{"b":{"type":1},"type":2},"c":{"type":3}}'
    assert line[find_value(line, line.index(b'{"b"'), b"type")] == ord("2")
    assert line[find_value(line, line.index(b'{"type":1'), b"type")] == ord("1")
    assert line[find_value(line, line.rindex(b"{"), b"type")] == ord("3")


# -- nesting --------------------------------------------------------------------------


def naive_nesting(text: bytes) -> tuple[int, int]:
    """Return the change of level and the lowest level, one byte after the other."""
    level = lowest = 0
    inside = escaped = False
    for octet in text:
        char = chr(octet)
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "{[":
            level += 1
        elif char in "}]":
            level -= 1
            lowest = min(lowest, level)
    return level, lowest


strings = st.text(alphabet='{}[]"\\a:', max_size=8).map(lambda text: json.dumps(text))


@given(parts=st.lists(st.one_of(st.sampled_from("{}[],:1 "), strings), max_size=30))
@example(parts=[])
@example(parts=["}", "{"])
@example(parts=["{", "}", "}", "{", "{"])
def test_nesting_is_counted_as_a_parser_counts_it(parts: list[str]) -> None:
    text = "".join(parts).encode()
    assert nesting(text) == naive_nesting(text)


@pytest.mark.parametrize("count", range(9))
def test_nesting_pairs_backslashes_from_the_left(count: int) -> None:
    string = '"' + "\\\\" * count + '\\"}]" , {"' + "\\\\" * count + '" : ['
    text = string.encode()
    assert nesting(text) == naive_nesting(text) == (2, 0)


def test_nesting_of_random_structure() -> None:
    rng = random.Random(5)
    for _ in range(300):
        text = "".join(rng.choices("{}[]", k=rng.randrange(40))).encode()
        assert nesting(text) == naive_nesting(text)
    # deeper than what a few rounds over the text take away
    for _ in range(300):
        runs = [rng.choice("{}[]") * rng.randrange(30) for _ in range(rng.randrange(7))]
        text = "".join(runs).encode()
        assert nesting(text) == naive_nesting(text)


def calls_made(function: Any, *args: Any) -> int:
    """Return how many calls into C a function makes."""
    count = 0

    def watch(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "c_call"

    sys.setprofile(watch)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


def test_passes_over_a_text_do_not_grow_with_its_depth() -> None:
    flat, deep = b"[]" * 3000, b"[" * 3000 + b"]" * 3000
    assert nesting(deep) == (0, 0)
    assert calls_made(nesting, deep) <= calls_made(nesting, flat) + 100


# -- the small ones -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", 0),
        (b" \t\r\n{}", 4),
        (b"", -1),
        (b"  ", -1),
        (b"[{", -1),
        (b'"{', -1),
        (b"x{", -1),
        (b"\x0b{", -1),
        (b"\xc2\xa0{", -1),
        (b"\xef\xbb\xbf{", -1),
        (b"\0{", -1),
    ],
)
def test_an_object_starts_behind_json_white_space_alone(line: bytes, expected: int) -> None:
    assert object_start(line) == expected


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (b'"message","id"', b'"message"'),
        (b'""', b'""'),
        (b'"a\\"b"}', b'"a\\"b"'),
        (b'"a\\\\"b"}', b'"a\\\\"'),
        (b'"\\u006d"}', b'"\\u006d"'),
        (b'"a\nb"', b'"a\nb"'),
        (b'"open', b""),
        (b'"open\\"', b""),
        (b'"open\\', b""),
        (b"true}", b"true"),
        (b"null,", b"null"),
        (b"-1.5e+3 }", b"-1.5e+3"),
        (b"12]", b"12"),
        (b"{}", b"{"),
        (b"[1]", b"["),
        (b"}", b""),
        (b",", b""),
        (b"", b""),
    ],
)
def test_the_scalar_at_an_offset(text: bytes, token: bytes) -> None:
    assert token_at(text, 0) == token
    assert token_at(b'{"k": ' + text, 6) == token
    assert token_at(text, len(text)) == b""


@given(value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)))
def test_every_json_scalar_is_one_token(value: Any) -> None:
    text = json.dumps(value).encode()
    for behind in (b",", b"}", b"]", b" ", b"\n", b""):
        assert token_at(text + behind, 0) == text


@pytest.mark.parametrize(
    ("line", "path", "rest"),
    [
        (b' {"a":1}', (), b'{"a":1}'),
        (b'{"a": {"b" :\t7}}', (b"a", b"b"), b"7}}"),
        (b'{"a":[ {"b":7},{"b":8}]}', (b"a", b"", b"b"), b'7},{"b":8}]}'),
        (b'{"a":[[5]]}', (b"a", b"", b""), b"5]]}"),
        (b'{"a":[{"c":1},{"b":8}]}', (b"a", b"", b"b"), None),
        (b'{"a":[1,{"b":8}]}', (b"a", b"", b"b"), None),
        (b'{"a":{"b":1}}', (b"a", b""), None),
        (b'{"a":"b"}', (b"a", b"b"), None),
        (b'{"a":[{"b":1}]}', (b"a", b"b"), None),
        (b'{"a":null}', (b"a", b"b"), None),
        (b'{"a":{"a":{"b":1}},"b":2}', (b"a", b"b"), None),
        (b'{"x":{"a":{"b":1}},"a":{"b":2}}', (b"a", b"b"), b"2}}"),
        (b"[1]", (b"a",), None),
        (b"", (b"a",), None),
        (b"", (), None),
    ],
)
def test_paths(line: bytes, path: tuple[bytes, ...], rest: bytes | None) -> None:
    found = find_path(line, path)
    assert (line[found:] if found >= 0 else None) == rest

"""What the format allows, spelled so that it is read back as it was given."""

from __future__ import annotations

import locale
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore.decode import decode_object, decode_value
from mmapstore.errors import InvalidRecordError, InvalidSessionIdError
from mmapstore.host import jsonvalue, records
from tests import strategies
from tests.host_support import AT, compaction, message


@given(value=strategies.values)
def test_what_is_encoded_is_read_back(value: Any) -> None:
    text = jsonvalue.encode(value)
    assert jsonvalue.same_value(decode_value(text), value)
    assert b"\n" not in text


@given(one=strategies.values, other=strategies.values)
def test_equality_is_that_of_json_values(one: Any, other: Any) -> None:
    def tagged(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tagged(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [tagged(inner) for inner in value]
        return (isinstance(value, bool), value)

    assert jsonvalue.same_value(one, other) == (tagged(one) == tagged(other))
    assert jsonvalue.same_value(one, one)


def test_values_that_python_takes_for_equal() -> None:
    assert jsonvalue.same_value([1, float("nan")], [1.0, float("nan")])
    assert not jsonvalue.same_value({"a": True}, {"a": 1})
    assert not jsonvalue.same_value([0], [False])
    assert not jsonvalue.same_value([None], [False])
    deep: Any = []
    other: Any = []
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert jsonvalue.same_value(deep, other)
    while deep:  # taken apart by hand: the interpreter would nest as deep
        deep, other = deep[0], other[0]


@pytest.mark.parametrize("depth", [200, 300, 600])
def test_nesting_that_one_encoder_does_not_enter(depth: int) -> None:
    value: Any = []
    for _ in range(depth):
        value = [value]
    assert decode_value(jsonvalue.encode(value)) == value


def test_type_comes_first_and_id_second() -> None:
    line = records.message_line({"blocks": [], "role": "user", "id": "m", "type": "message"}, None)
    assert list(decode_object(line)) == ["type", "id", "blocks", "role", "createdAt"]
    line = records.message_line({"role": "user", "id": "m", "blocks": [], "turnId": "a"}, "b")
    assert decode_object(line)["turnId"] == "b"
    line = records.compaction_line({"summary": "s", **compaction("c", "m")})
    assert list(decode_object(line))[:2] == ["type", "id"]
    header = records.header_line("s", AT, None, more=1)
    assert list(decode_object(header)) == ["type", "schema", "sessionId", "createdAt", "more"]


def test_a_time_that_is_given_stays_and_one_that_is_not_is_now() -> None:
    line = records.message_line(message("m"), None)
    assert decode_object(line)["createdAt"] == AT
    assert records.instant(records.now()) is not None
    assert (
        decode_object(records.message_line({"id": "m", "role": "user", "blocks": 1}, None))[
            "createdAt"
        ]
        >= "2026"
    )


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2026-01-02T03:04:05Z", True),
        ("2026-01-02T03:04:05.123456789+05:30", True),
        ("2026-01-02t03:04:05z", True),
        ("2026-01-02", False),
        ("2026-13-02T03:04:05Z", False),
        ("2026-01-02T24:04:05Z", False),
        ("٢٠٢٦-01-02T03:04:05Z", False),
        ("2026-01-02T03:04:05Z\n", False),
        (5, False),
    ],
)
def test_times(text: object, valid: bool) -> None:
    assert (records.instant(text) is not None) == valid
    if not valid:
        with pytest.raises(InvalidRecordError):
            records.check_message({**message("m"), "createdAt": text})


def test_a_field_that_keeps_its_value_keeps_its_bytes() -> None:
    old = (
        b'{"blocks":[1e400,1.0,{"b":2,"a":1}],"n" : 123456789012345678901 ,"type":"message",'
        b'"role":"user","id":"m","turnId":"t","createdAt":"x"}'
    )
    stored = decode_object(old)
    changed = {key: value for key, value in stored.items() if key not in ("turnId", "createdAt")}
    line = records.changed_line({**changed, "meta": {"k": 1}}, old, stored)
    assert line == (
        b'{"type":"message","id":"m","blocks":[1e400,1.0,{"b":2,"a":1}],"n":123456789012345678901,'
        b'"role":"user","meta":{"k":1},"turnId":"t","createdAt":"x"}\n'
    )


@given(name=st.text(max_size=5))
def test_session_ids(name: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    if name and set(name) <= allowed:
        assert records.check_session_id(name) == name
    else:
        with pytest.raises(InvalidSessionIdError):
            records.check_session_id(name)


def test_nothing_depends_on_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "getpreferredencoding", lambda *_: "ascii")
    assert "é".encode() in records.message_line(message("é"), "é")

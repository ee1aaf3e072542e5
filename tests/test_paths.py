"""Path expressions against a naive walk that lists every path of a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore.paths import Path

KEYS = ["a", "b", "c"]
scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.sampled_from(["x", "y", ""]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=12,
)
records = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)
steps = st.lists(st.sampled_from(["a", "b", "c", "a[]", "b[]"]), min_size=1, max_size=3)
alternatives = steps.map(".".join)


def paths_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every path into a value, spelled as an expression, with what is there."""
    yield path, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths_of(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for part in value:
            yield from paths_of(part, f"{path}[]")


def naive_every(record: dict[str, Any], alternative: str) -> list[Any]:
    return [value for path, value in paths_of(record) if path == alternative]


@given(record=records, parts=st.lists(alternatives, min_size=1, max_size=3))
def test_what_paths_lead_to(record: dict[str, Any], parts: list[str]) -> None:
    path = Path("|".join(parts))
    found = [naive_every(record, part) for part in parts]
    assert list(path.every(record)) == [value for each in found for value in each]
    there = [value for each in found for value in each if value is not None]
    assert path.first(record) == (there[0] if there else None)
    texts = [[value for value in each if isinstance(value, str)] for each in found]
    assert path.strings(record) == next(filter(None, texts), [])


def test_a_constant_counts_where_nothing_else_is() -> None:
    path = Path("a.b|=fixed")
    assert path.first({"a": {"b": "x"}}) == "x"
    assert path.first({"a": {"b": None}}) == "fixed"
    assert path.first({}) == "fixed"
    assert path.strings({}) == []
    assert list(path.every({})) == []
    # it stands for the alternatives' end, wherever it is written
    assert Path("=fixed|a").first({"a": 1}) == 1


def test_an_empty_expression_leads_nowhere() -> None:
    path = Path("")
    assert path.first({"": 1, "a": 2}) is None
    assert path.strings({"": "x"}) == []
    assert list(path.every({"a": 1})) == []
    assert (path.keys, path.key) == ([], None)


def test_false_and_empty_values_are_values() -> None:
    for value in (False, 0, "", [], {}):
        assert Path("a|b").first({"a": value, "b": 1}) == value
    # a text may be empty: the alternative has led to one
    assert Path("a|b").strings({"a": "", "b": "x"}) == [""]
    assert Path("a|b").strings({"a": 1, "b": "x"}) == ["x"]


def test_strings_come_from_one_alternative() -> None:
    path = Path("content|content[].text")
    assert path.strings({"content": "x"}) == ["x"]
    blocks = [{"text": "x"}, {"image": 1}, {"text": None}, {"text": "y"}, "z"]
    assert path.strings({"content": blocks}) == ["x", "y"]


@pytest.mark.parametrize(
    ("expression", "keys", "key"),
    [
        ("id", [(b"id",)], "id"),
        ("é", [("é".encode(),)], "é"),
        ("a.b", [(b"a", b"b")], None),
        ("a|b.c", [(b"a",), (b"b", b"c")], None),
        ("a|=x", [(b"a",)], None),
        ("a[].b", [(b"a", b"[]", b"b")], None),
    ],
)
def test_keys_for_a_scan(expression: str, keys: list[tuple[bytes, ...]], key: str | None) -> None:
    path = Path(expression)
    assert path.keys == keys
    assert path.key == key
    assert path.expression == expression


def test_lists_of_lists() -> None:
    record = {"a": [[1, 2], [], [3]]}
    assert list(Path("a[]").every(record)) == [[1, 2], [], [3]]
    assert list(Path("a[][]").every(record)) == [1, 2, 3]
    assert list(Path("a").every(record)) == [record["a"]]
    assert list(Path("a[].b").every(record)) == []

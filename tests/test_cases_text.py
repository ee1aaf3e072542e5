"""Splitting and encoding: bytes are split at 0x0A and nowhere else, and no codec takes part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from tests.agreement import check_all, layout_facts, native_oracle
from tests.oracle import BOM
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]
Unchanged = Callable[[Path], Any]

ROOT = Path(__file__).parent.parent


def check_file(path: Path, data: bytes, access: str, unchanged: Unchanged) -> None:
    path.write_bytes(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert t.dialect.name == "native"
        check_all(t, native_oracle(data))


#: characters at which one or another text reader ends a line
SEPARATORS = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x7f",
    "\xa0",
    "\ufeff",
    "\u000b",
    "\u000c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x1f",
]


@pytest.mark.parametrize("char", SEPARATORS, ids=[f"U+{ord(char):04X}" for char in SEPARATORS])
def test_no_character_splits_a_line(
    write: Write, access: str, unchanged: Unchanged, char: str
) -> None:
    """A7.1: one record each, raw and escaped; controls that JSON forbids damage one line."""
    raw = M("a", f"x{char}y")
    raw = raw.replace(json.dumps(char)[1:-1].encode(), char.encode())
    assert char.encode() in raw
    data = (
        HEADER
        + raw
        + M("b")
        + raw
        + b'{"type":"message","id":"c","blocks":"\\u%04x"}\n' % ord(char)
    )
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 4
        assert t.layout.line_count == 5
        assert bytes(t.line(0)) == raw
        assert len(t.window().damaged) == (2 if ord(char) < 0x20 else 0)
        assert t[3]["blocks"] == char


@pytest.mark.parametrize("end", [b"\r\n", b"\r\r\n", b" \r\n", b"\t \n"])
def test_line_ends_of_other_systems(
    write: Write, access: str, unchanged: Unchanged, end: bytes
) -> None:
    """A7.2: what stands before the newline belongs to the line, and to the bytes served."""
    lines = [HEADER, M("a"), C("x"), M("b"), R("b", "s", "x"), b"{}\n", M("c")]
    lines = [line.rstrip(b"\n") + end for line in lines]
    path = write(b"".join(lines))
    check_file(path, b"".join(lines), access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert [bytes(line) for line in t.window().lines] == [lines[1], lines[3], lines[6]]
        assert list(t.verify()) == []
        assert t.position("b") == 1


def test_mixed_line_ends_and_lone_returns(write: Write, access: str, unchanged: Unchanged) -> None:
    """A7.2: a return is white space between tokens, damage in a string, and never an end."""
    loose = b'{\r"type"\r:\r"message"\r,\r"id":"cr"\r}\r\n'
    data = (
        HEADER[:-1]
        + b"\r\n"
        + M("a")
        + loose
        + M("b")[:-1]
        + b"\r\n"
        + M("c", "x").replace(b"x", b"\r")
    )
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert list(t.window().message_ids) == ["a", "cr", "b"]
        assert [d.position for d in t.window().damaged] == [3]
        assert bytes(t.line(1)) == loose


@pytest.mark.parametrize("first", [HEADER, M("a"), C("x"), R("b", "s", "x"), b"\n", b" \r\n"])
def test_a_mark_before_the_first_line(
    write: Write, access: str, unchanged: Unchanged, first: bytes
) -> None:
    """A7.3: the first record is served with its mark; a mark before any other line is damage."""
    data = BOM + first + M("b") + BOM + M("c") + M("d")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        (finding,) = t.verify()
        assert finding.offset == len(BOM + first + M("b"))
        if first == M("a"):
            assert bytes(t.line(0)) == BOM + M("a")
            assert t[0]["id"] == "a"
            assert t.position("a") == 0
            assert t.message("a")["id"] == "a"
            assert t.message_id(0) == "a"


def test_a_mark_that_arrives_in_pieces(write: Write, access: str) -> None:
    """A7.3: cold or grown, the mark is seen for what it is."""
    data = BOM + M("a") + M("b")
    with mmapstore.open(write(data), access=access) as t:
        cold = layout_facts(t)
    for trust in ("none", "append-only"):
        for cut in range(len(BOM), len(BOM + M("a")) + 1):
            path = write(data[:cut])
            with mmapstore.open(path, dialect="native", access=access, trust=trust) as t:
                path.write_bytes(data)
                assert t.refresh()
                assert layout_facts(t) == cold


def test_characters_of_every_width(write: Write, access: str, unchanged: Unchanged) -> None:
    """A7.4: offsets count bytes: every slice begins with a brace and ends with its newline."""
    lines = [M(f"{index}", char * (index % 7 + 1)) for index, char in enumerate("aé行😀" * 30)]
    data = HEADER + b"".join(lines)
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        for start in range(0, 120, 7):
            w = t.window(after=start, limit=13)
            assert [bytes(line) for line in w.lines] == lines[start : start + 13]
            for line in w.lines:
                assert bytes(line[:1]) == b"{"
                assert bytes(line).find(b"\n") == len(line) - 1


@pytest.mark.parametrize("edge", [1 << 16, 1 << 18, 1 << 20, 1 << 22])
def test_a_character_across_an_edge(write: Write, access: str, edge: int) -> None:
    """A7.5: a character, and a key, that lie across the edge of whatever is read at once."""
    fill = b'{"type":"sleep","pad":"' + b"p" * 999 + b'"}\n'
    head = HEADER + fill * ((edge - 4096) // len(fill))
    line = M("x", "😀行é" * 12)
    text = line.index("😀".encode())
    # from the key in front of the text on, each byte of each width of character once
    for shift in [*range(0, text, 7), *range(text - 2, text + 10)]:
        pad = edge - len(head) - shift - len(b'{"p":""}\n')
        data = head + b'{"p":"' + b"p" * pad + b'"}\n' + line + M("b")
        assert data.index(line) == edge - shift
        with mmapstore.open(write(data), access=access) as t:
            w = t.window()
            assert [bytes(served) for served in w.lines] == [line, M("b")]
            assert w.message_ids == ["x", "b"]


SURROGATES = [
    rb"\ud83d",
    rb"x\ud83d",
    rb"\udc00\ud83d",
    rb"\udfff",
    rb"\uD83D\u0041",
    rb"\ud83d\ud83d\ude00",
]


@pytest.mark.parametrize("escape", SURROGATES)
def test_lone_surrogates(write: Write, access: str, unchanged: Unchanged, escape: bytes) -> None:
    """A7.6: in text and in an id; the bytes are served as they are, look-ups do not die of them."""
    in_text = b'{"type":"message","id":"a","role":"user","blocks":[{"text":"%s"}]}\n' % escape
    in_id = b'{"type":"message","id":"%s","role":"user"}\n' % escape
    review = (
        b'{"type":"tool_review_state","messageId":"%s","snapshotId":"s","state":"x"}\n' % escape
    )
    data = HEADER + in_text + in_id + review + M("b")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert [bytes(line) for line in t.window().lines] == [in_text, in_id, M("b")]
        value = json.loads(b'"%s"' % escape)
        assert t[0]["blocks"][0]["text"] == value
        assert t.dialect.text(t[0]) == value
        assert t.position(value) == 1
        assert t.message(value)["id"] == value
        assert t.window(around=value).message_ids == ["a", value, "b"]
        assert list(t.verify()) == []
        with pytest.raises(mmapstore.MessageNotFoundError):
            t.message(value + "\ud800")
        with pytest.raises(mmapstore.MessageNotFoundError):
            t.tool_parent(value)


_UNDER_ANY_LOCALE = """
import sys, mmapstore
with mmapstore.open(sys.argv[1]) as t:
    w = t.window()
    print(ascii([t.dialect.name, list(w.message_ids), [d.position for d in w.damaged],
                 [m["blocks"][0]["text"] for m in w.messages],
                 [(f.offset, f.line_number, f.reason) for f in t.verify()]]))
"""


def test_no_locale_takes_part(write: Write) -> None:
    """A7.7: one bad byte costs one line, under C and without UTF-8 mode alike."""
    data = HEADER + M("é", "行") + M("b", "x").replace(b"x", b"\xe9") + M("c", "😀")
    path = write(data, "é行.jsonl")
    with mmapstore.open(path) as t:
        assert t.window().message_ids == ["é", "c"]
        assert [d.position for d in t.window().damaged] == [1]
    said = set()
    for locale in ("C", "C.UTF-8", "POSIX", "no_SUCH.ISO-8859-1"):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
        env |= {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        env["PYTHONPATH"] = str(ROOT)
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", _UNDER_ANY_LOCALE, os.fsencode(path)],
            env=env,
            capture_output=True,
            timeout=60,
            check=True,
        )
        said.add(result.stdout)
    (text,) = said
    assert rb"['native', ['\xe9', 'c'], [1], ['\u884c', '\U0001f600']" in text


# -- A8: parsing ---------------------------------------------------------------------

NUMBERS = {
    "NaN": ("NaN", True),
    "Infinity": ("-Infinity", True),
    "1e400": ("1e400", True),
    "-1e400": ("-1e400", True),
    "1e-400": ("1e-400", True),
    "20 digits": ("12345678901234567890", True),
    "30 digits": ("9" * 30, True),
    "4300 digits": ("9" * 4300, True),
    "4301 digits": ("9" * 4301, False),
    "100000 digits": ("9" * 100_000, False),
    "long fraction": ("0." + "1" * 5000, True),
}


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize(("number", "decodes"), NUMBERS.values(), ids=NUMBERS.keys())
def test_numbers_of_any_size(
    write: Write, access: str, unchanged: Unchanged, number: str, decodes: bool, where: str
) -> None:
    """A8.2: the index never needs the value; bytes are served; at worst one line is damaged."""
    line = f'{{"type":"message","id":"n","n":{number}}}\n'
    if where == "before":
        line = f'{{"n":{number},"type":"message","id":"n"}}\n'
    data = HEADER + M("a") + line.encode() + M("b")
    path = write(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert [bytes(served) for served in t.window().lines] == [M("a"), line.encode(), M("b")]
        w = t.window()
        assert list(w.message_ids) == (["a", "n", "b"] if decodes else ["a", "b"])
        assert len(list(t.verify())) == len(w.damaged) == (not decodes)
        if decodes:
            assert t.position("n") == 1
            assert isinstance(t[1]["n"], int | float)
        else:
            with pytest.raises(mmapstore.LineDecodeError):
                t[1]


@pytest.mark.parametrize(
    ("depth", "decodes"), [(900, True), (1100, None), (100_000, False)], ids=str
)
@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_deep_nesting(
    write: Write,
    access: str,
    unchanged: Unchanged,
    depth: int,
    decodes: bool | None,
    bracket: str,
) -> None:
    """A8.3: what is nested too deeply for the parsers is one damaged line, and no crash."""
    opening, closing = ("[", "]") if bracket == "[]" else ('{"type":', "}")
    nest = opening * depth + "1" + closing * depth
    for line in (
        f'{{"type":"message","id":"n","n":{nest}}}\n'.encode(),
        f'{{"n":{nest},"id":"n","type":"message"}}\n'.encode(),
    ):
        data = HEADER + M("a") + line + M("b") + C("x")
        path = write(data)
        with unchanged(path), mmapstore.open(path, access=access) as t:
            assert t.message_count == 3
            w = t.window()
            assert [bytes(served) for served in w.lines] == [M("a"), line, M("b")]
            found = list(t.verify())
            assert len(found) == len(w.damaged) == 3 - len(w.messages)
            assert "n" in w.message_ids or decodes is not True
            assert "n" not in w.message_ids or decodes is not False
            assert {"a", "b"} <= set(w.message_ids)
            assert len(w.compactions) == 1


def test_nesting_that_is_never_closed(write: Write, access: str) -> None:
    """A8.3: a bracket for every byte costs no more than its line."""
    lines = [
        b"[" * 300_000,
        b'{"a":' * 60_000,
        b'{"type":"message","a":' + b"[" * 300_000,
        b'"' * 99_999,
    ]
    data = HEADER + b"".join(line + b"\n" + M("a") for line in lines)
    with mmapstore.open(write(data), access=access) as t:
        check_all(t, native_oracle(data))
        assert len(list(t.verify())) == len(lines)


# -- review states over their messages ---------------------------------------------------


def tool(message_id: str, *details: dict[str, Any], role: str = "tool") -> bytes:
    blocks = [
        {"type": "tool_call", "callId": f"call-{message_id}", "result": {"details": d}}
        for d in details
    ]
    record = {"type": "message", "id": message_id, "role": role, "blocks": blocks}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def test_the_last_state_in_file_order_is_in_force(
    write: Write, access: str, unchanged: Unchanged
) -> None:
    """States of one or many snapshots, before and behind their message; damaged ones count not."""
    one = {"review": {"snapshotId": "s1", "state": "active", "path": "p"}}
    many = {
        "reviews": [{"snapshotId": "s1", "state": "active"}, {"snapshotId": "s2"}, "no review", {}]
    }
    lines = [
        R("a", "s1", "early"),
        tool("a", one),
        tool("b", one, many),
        R("a", "s1", "rolledBack"),
        R("b", "s1", "x"),
        R("b", "s2", "y"),
        R("b", "s1", "rolledBack"),
        tool("u", one, role="user"),
        R("u", "s1", "not of a tool message"),
        R("gone", "s1", "of no message"),
        R("a", "s9", "of no snapshot"),
        R("a", "s1", ""),
        b'{"type":"tool_review_state","messageId":"a","snapshotId":"s1"}\n',
        b'{"type":"tool_review_state","messageId":"a","snapshotId":"s1","state":}\n',
        b'{"type":"tool_review_state","messageId":"a","snapshotId":"s1","state":"torn"}',
    ]
    data = HEADER + b"".join(lines)
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        a, b, u = t.window().messages
        assert a["blocks"][0]["result"]["details"]["review"] == {
            "snapshotId": "s1",
            "state": "rolledBack",
            "path": "p",
        }
        assert b["blocks"][0]["result"]["details"]["review"]["state"] == "rolledBack"
        assert [r.get("state") for r in b["blocks"][1]["result"]["details"]["reviews"][:2]] == [
            "rolledBack",
            "y",
        ]
        assert u["blocks"][0]["result"]["details"]["review"]["state"] == "active"
        assert t.message("a") == t[0] == next(t.iter()) == t.window(limit=3).messages[0] == a
        assert t.tool_parent("call-b") == b
        assert [d.position for d in t.window().damaged] == [None]
        # the physical line is what it was
        assert bytes(t.line(0)) == tool("a", one)
        with path.open("ab") as file:
            file.write(b"\n")
        assert t.refresh()
        assert t[0]["blocks"][0]["result"]["details"]["review"]["state"] == "torn"

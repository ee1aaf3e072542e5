"""What the command line may never let through: characters that break lines, or a terminal."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

from mmapstore.cli import main
from mmapstore.cli.bar import PATIENCE, Bar
from mmapstore.cli.visible import as_text, clipped, on_one_line
from mmapstore.jsonline import encode

#: controls, line ends of all sorts, what turns text around, surrogates that make no pair
AWKWARD = "\0\a\b\x0b\x0c\r\x1b\x1c\x7f\x80\x85\x9b\u2028\u2029\u202e\u2066\udc00\udcff"

texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(AWKWARD + "\n\t"))
)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
    )
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_json_is_the_same_value_on_one_safe_line(value):
    data = encode(value)
    text = data.decode("utf-8", "strict")
    assert json.loads(text) == value
    assert not set(text) & set(AWKWARD + "\n\t")
    assert len(text.splitlines()) <= 1


@given(values)
def test_json_for_people_is_the_same_value(value):
    assert json.loads(encode(value, indent=True)) == value


def test_json_has_no_word_for_what_is_not_a_number():
    assert encode([math.nan, math.inf, -math.inf]) == b"[null,null,null]"
    # on the slow way as well, which a lone surrogate takes
    assert encode([math.nan, "\ud83d", {"k": math.inf}]) == b'[null,"\\ud83d",{"k":null}]'


def test_json_is_spelled_at_any_depth():
    value = deep = []
    for _ in range(100_000):
        deep.append([])
        deep = deep[0]
    assert encode(value) == b"[" * 100_001 + b"]" * 100_001


@given(texts)
def test_text_for_people_obeys_nobody(text):
    shown = as_text(text)
    shown.encode("utf-8", "strict")
    assert not set(shown) & set(AWKWARD)
    assert shown.count("\n") == text.count("\n")
    assert len(on_one_line(text).splitlines()) <= 1
    assert not set(on_one_line(text)) & set(AWKWARD + "\n\t")


@given(texts, st.integers(1, 20), st.integers(1, 5))
def test_a_clipped_text_is_its_beginning(text, characters, lines):
    shown = clipped(text, characters=characters, lines=lines)
    assert text.startswith(shown)
    assert len(shown) <= characters
    assert shown.count("\n") < lines
    if len(text) <= characters and text.count("\n") < lines:
        assert shown == text


def _transcript(text):
    record = {
        "type": "message",
        "id": f"i{text}",
        "role": f"r{text}",
        "blocks": [{"type": "text", "text": text}, {"type": f"t{text}", "input": text}],
        "createdAt": f"c{text}",
    }
    # raw, not escaped, where JSON allows it
    line = json.dumps(record, ensure_ascii=False)
    spelled = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in line)
    return b'{"type":"session","schema":2,"sessionId":"s"}\n' + spelled.encode() + b"\n"


@pytest.mark.parametrize("arguments", [["tail"], ["tail", "--full"], ["show"], ["tail", "--json"]])
def test_no_field_of_a_message_gets_through_raw(write, capsysbinary, arguments):
    path = write(_transcript(f"one\n{AWKWARD}\n[2J"))
    verb, *options = arguments
    reference = ["0"] if verb == "show" else []
    assert main([verb, str(path), *reference, *options]) == 0
    out, err = capsysbinary.readouterr()
    shown = out.decode("utf-8", "strict")
    assert not set(shown) & set(AWKWARD)
    assert err == b""


def test_json_of_a_message_is_the_message(write, capsysbinary):
    text = f"one\n{AWKWARD}"
    assert main(["tail", str(write(_transcript(text))), "--json"]) == 0
    out = capsysbinary.readouterr().out
    (line,) = out.decode("utf-8", "strict").splitlines()
    row = json.loads(line)
    assert row["text"] == row["message"]["blocks"][0]["text"] == text
    assert row["id"] == f"i{text}"


def test_values_that_json_cannot_say_come_as_null(write, capsysbinary):
    line = b'{"type":"message","id":"m","blocks":[NaN,1e400,{"deep":%s}]}\n' % (
        b"[" * 500 + b"]" * 500
    )
    path = write(b'{"type":"session","schema":2,"sessionId":"s"}\n' + line)
    assert main(["show", str(path), "m", "--json"]) == 0
    assert b'"blocks":[null,null,{"deep":[[[' in capsysbinary.readouterr().out


# -- progress -----------------------------------------------------------------------------


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _told(monkeypatch, stream, times, term="xterm"):
    """Return what a bar writes to `stream` when called at these times."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    clock = iter([0.0, *times])
    with Bar("reading", clock=lambda: next(clock)) as bar:
        for done, _ in enumerate(times):
            bar(done, len(times))
    return stream.getvalue()


def test_a_bar_appears_where_work_takes_long(monkeypatch):
    late = PATIENCE + 1
    assert "reading" in _told(monkeypatch, _Terminal(), [0.0, late, late + 1])


def test_no_bar_appears_where_it_does_not(monkeypatch):
    assert _told(monkeypatch, _Terminal(), [0.0, PATIENCE / 2]) == ""


def test_no_bar_appears_where_nobody_looks(monkeypatch):
    assert _told(monkeypatch, io.StringIO(), [PATIENCE + 1]) == ""
    assert _told(monkeypatch, _Terminal(), [PATIENCE + 1], term="dumb") == ""


def test_a_bar_makes_room_and_comes_back(monkeypatch):
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    now = [0.0]
    with Bar("verifying", clock=lambda: now[0]) as bar:
        bar.pause()
        assert stream.getvalue() == ""
        now[0] = 1.0
        bar(1, 2)
        bar.pause()
        gone = stream.getvalue()
        assert "verifying" in gone
        now[0] = 2.0
        bar(2, 2)
        assert "verifying" in stream.getvalue()[len(gone) :]


@pytest.mark.parametrize("verb", ["info", "verify"])
def test_reading_and_verifying_report_progress(write, monkeypatch, capsysbinary, verb):
    calls = []
    monkeypatch.setattr(Bar, "__call__", lambda self, done, total: calls.append((done, total)))
    path = write(_transcript("x"))
    assert main([verb, str(path)]) == 0
    nbytes = path.stat().st_size
    assert calls == [(nbytes, nbytes)] * (2 if verb == "verify" else 1)

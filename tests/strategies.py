"""Native transcripts as bytes, as writers, crashes and careless tools leave them.

A line's content is drawn by Hypothesis, so that it shrinks; how it is spelled (white
space between tokens, escapes, order of keys) follows from one seed a line, of which
0 is the compact spelling that shrinking ends at. What is never generated is a
discriminator key that is spelled with an escape or repeated at the top level: for
those two forms alone the contract does not ask for the parser's answer.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

from hypothesis import strategies as st

from tests.oracle import BOM

IDS = ["a", "b", "c", "m-1", 'q"uote', "back\\slash", "é", "行", "id with space", "x" * 120]
SNAPSHOTS = ["s1", "s2", "s\u2028"]

_TRICKY_TEXT = [
    "",
    "plain words",
    '{"type":"compaction","id":"x"}',
    '"type":"message"',
    '\\"type\\":\\"message\\"',
    "}]}]{[{[",
    "ends in a backslash \\",
    'ends in an escaped quote \\"',
    "type",
    "a\nb\r\nc\td",
    "\u2028 \u2029 \x85 \x0b \x0c \x1c",
    "\0 and \x01",
    "\ud83d",
    "\udc00\ud83d",
    "é 行 😀",
    '"',
    "x" * 400,
    "{" * 200,
    '":"' * 70,
]

texts = st.one_of(st.sampled_from(_TRICKY_TEXT), st.text(max_size=12))
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
#: keys among which the discriminator's own name is common
keys = st.sampled_from(["type", "id", "role", "k", "é", "}", '"type"', "", "subtype", "blocks"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)
seeds = st.one_of(st.just(0), st.integers(1, 2**16))


def spelled(record: dict[str, Any], seed: int, *, escape_keys: bool = True) -> bytes:
    """Return one JSON text of a record; seed 0 is the compact one, in the record's own order.

    Keys of nested objects are spelled with escapes only if `escape_keys` is true, those of
    the record itself never.
    """
    if seed == 0:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    else:
        rng = random.Random(seed)
        items = list(record.items())
        if rng.random() < 0.7:
            rng.shuffle(items)
        loose = rng.random() < 0.5
        text = _object(items, rng, loose, escape_keys, top=True)
        if loose:
            text = _white(rng) + text + _white(rng)
    # what UTF-8 cannot spell can only be written as an escape
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


_SURROGATE = re.compile("[\ud800-\udfff]")


def _white(rng: random.Random) -> str:
    return "".join(rng.choices(" \t\r", k=rng.choice((0, 0, 0, 1, 2))))


def _object(
    items: list[tuple[str, Any]],
    rng: random.Random,
    loose: bool,
    escape_keys: bool,
    *,
    top: bool = False,
) -> str:
    def white() -> str:
        return _white(rng) if loose else ""

    members = [
        f"{white()}{_string(key, rng) if escape_keys and not top else json.dumps(key)}{white()}:"
        f"{white()}{_value(value, rng, loose, escape_keys)}{white()}"
        for key, value in items
    ]
    return "{" + (",".join(members) or white()) + "}"


def _value(value: Any, rng: random.Random, loose: bool, escape_keys: bool) -> str:
    if isinstance(value, dict):
        return _object(list(value.items()), rng, loose, escape_keys)
    if isinstance(value, list):
        white = _white(rng) if loose else ""
        parts = [white + _value(part, rng, loose, escape_keys) for part in value]
        return "[" + ",".join(parts) + "]"
    if isinstance(value, str):
        return _string(value, rng)
    return json.dumps(value)


def _string(value: str, rng: random.Random) -> str:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.3)
    if value and rng.random() < 0.15:
        at = rng.randrange(len(value))
        before, after = json.dumps(value[:at])[:-1], json.dumps(value[at + 1 :])[1:]
        if ord(value[at]) < 0x10000:
            text = f"{before}\\u{ord(value[at]):04X}{after}"
    return text


# -- lines --------------------------------------------------------------------------

own_ids = st.one_of(st.sampled_from(IDS), st.sampled_from(IDS[:3]), st.integers(0, 3), st.just("0"))
#: what stands where an id should: none of it is one
no_ids = st.sampled_from([None, True, [], {"id": "a"}, 1.5, ""])


def _reviews() -> st.SearchStrategy[Any]:
    review = st.fixed_dictionaries(
        {}, optional={"snapshotId": st.sampled_from([*SNAPSHOTS, 7]), "state": texts, "path": texts}
    )
    details = st.fixed_dictionaries(
        {}, optional={"review": st.one_of(review, values), "reviews": st.lists(review, max_size=3)}
    )
    block = st.fixed_dictionaries(
        {"type": st.just("tool_call"), "result": st.fixed_dictionaries({"details": details})},
        optional={"callId": texts},
    )
    return st.lists(st.one_of(block, values), max_size=3)


@st.composite
def message_records(draw: st.DrawFn) -> dict[str, Any]:
    record: dict[str, Any] = {"type": "message"}
    if draw(st.integers(0, 9)):
        record["id"] = draw(own_ids)
    elif draw(st.booleans()):
        record["id"] = draw(no_ids)
    record["role"] = draw(st.sampled_from(["user", "assistant", "tool", "tool", "system"]))
    record["blocks"] = draw(st.one_of(_reviews(), values))
    record |= draw(
        st.dictionaries(st.sampled_from(["meta", "turnId", "k", "é"]), values, max_size=2)
    )
    return record


compaction_records = st.fixed_dictionaries(
    {"type": st.just("compaction"), "id": texts, "summary": texts},
    optional={"throughMessageId": own_ids, "tokensBefore": st.integers(0, 9), "details": values},
)
review_records = st.fixed_dictionaries(
    {"type": st.just("tool_review_state")},
    optional={
        "messageId": st.one_of(own_ids, st.none()),
        "snapshotId": st.sampled_from([*SNAPSHOTS, 7]),
        "state": st.one_of(st.sampled_from(["active", "rolledBack"]), texts, st.just(None)),
    },
)
#: whole objects that are none of the three: other kinds, no kind, and a kind that is no string
other_records = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["", "messages", "session", "Message", "sleep", "revision", "é"])},
        optional={"id": own_ids, "message": values},
    ),
    st.fixed_dictionaries(
        {
            "type": st.one_of(
                st.none(), st.integers(), st.just(["message"]), st.just({"type": "message"})
            )
        }
    ),
    st.fixed_dictionaries({}, optional={"role": texts, "nested": st.just({"type": "message"})}),
)
HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-01T00:00:00Z"}\n'

message_lines = st.builds(spelled, message_records(), seeds)
whole_lines = st.one_of(
    message_lines,
    message_lines,
    message_lines,
    message_lines,
    message_lines,
    st.builds(spelled, compaction_records, seeds),
    st.builds(spelled, review_records, seeds),
    st.builds(spelled, review_records, seeds),
    st.builds(spelled, other_records, seeds),
)
blank_lines = st.sampled_from([b"", b" ", b"\t\r", b"  \t "])

# -- damage -------------------------------------------------------------------------

DAMAGE = [
    "truncated",
    "nul_run",
    "nul_inside",
    "glued",
    "half_glued",
    "not_utf8",
    "not_object",
    "garbage_behind",
    "garbage_before",
    "mark_inside",
    "control",
]
_NOT_UTF8 = [b"\xe9", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe8\xa1", b"\x80"]
_NOT_OBJECTS = [b"[]", b'["type","message"]', b'"message"', b"12", b"null", b"true", b"undefined"]


@st.composite
def damaged_lines(draw: st.DrawFn, kinds: list[str] = DAMAGE) -> bytes:
    """Return a line without its newline that used to be whole."""
    line = draw(whole_lines)
    at = draw(st.integers(0, len(line)))
    match draw(st.sampled_from(kinds)):
        case "truncated":
            return line[:at]
        case "nul_run":
            return b"\0" * draw(st.sampled_from([1, 7, 511, 512]))
        case "nul_inside":
            width = draw(st.integers(1, 64))
            return line[:at] + b"\0" * min(width, len(line) - at) + line[at + width :]
        case "glued":
            return line + draw(whole_lines)
        case "half_glued":
            return line[:at] + draw(whole_lines)
        case "not_utf8":
            return line[:at] + draw(st.sampled_from(_NOT_UTF8)) + line[at:]
        case "not_object":
            return draw(st.sampled_from(_NOT_OBJECTS))
        case "garbage_behind":
            return line + draw(st.sampled_from([b"}", b",", b"]", b"\x00", b"x"]))
        case "garbage_before":
            return draw(st.sampled_from([b"}", b",", b"x", b"\x0b", b"[", b'"'])) + line
        case "mark_inside":
            return line[:at] + BOM + line[at:]
        case _:
            return line[:at] + draw(st.sampled_from([b"\x01", b"\x0c", b"\x1f"])) + line[at:]


# -- files --------------------------------------------------------------------------

some_lines = st.one_of(
    whole_lines, whole_lines, whole_lines, whole_lines, whole_lines, blank_lines, damaged_lines()
)


@st.composite
def transcripts(draw: st.DrawFn, max_lines: int = 14, *, damage: bool = True) -> bytes:
    """Return a whole file: perhaps a mark, perhaps a header, lines, perhaps a torn tail."""
    count = draw(st.integers(0, max_lines))
    line = some_lines if damage else whole_lines
    lines = draw(st.lists(line, min_size=count, max_size=count))
    line_end = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"mixed"]))
    parts = [BOM] if draw(st.integers(0, 7)) == 7 else []
    if draw(st.booleans()):
        parts.append(HEADER)
    for index, line in enumerate(lines):
        # a seam of two lines may hold anything but a line feed
        end = (b"\n", b"\r\n")[index % 2] if line_end == b"mixed" else line_end
        parts.append(line.replace(b"\n", b" ") + end)
    if draw(st.booleans()):
        tail = draw(some_lines)
        parts.append(tail[: draw(st.integers(0, len(tail)))])
    return b"".join(parts)


# -- lines by hand ------------------------------------------------------------------


def M(message_id: str | None, text: str = "t", role: str = "user", **fields: Any) -> bytes:
    """Return a message line."""
    record = {
        "type": "message",
        "id": message_id,
        "role": role,
        "blocks": [{"text": text}],
        **fields,
    }
    if message_id is None:
        del record["id"]
    return spelled(record, 0) + b"\n"


def C(compaction_id: str, **fields: Any) -> bytes:
    """Return a compaction line."""
    record = {"type": "compaction", "id": compaction_id, "summary": "s", "throughMessageId": "a"}
    return spelled(record | fields, 0) + b"\n"


def R(message_id: str, snapshot_id: str, state: str) -> bytes:
    """Return a review-state line."""
    record = {"type": "tool_review_state", "messageId": message_id, "snapshotId": snapshot_id}
    return spelled({**record, "state": state}, 0) + b"\n"

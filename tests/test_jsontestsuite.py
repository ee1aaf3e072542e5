"""JSONTestSuite as payload: what stands in a line never changes what the line is."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from tests.oracle import COMPACTION, MESSAGE, OTHER, REVIEW, RULES, decoded, kind_of
from tests.test_oracle_kinds import kinds_on_all_paths

SUITE = Path(
    os.environ.get("MMAPSTORE_JSONTESTSUITE")
    or Path(__file__).parent.parent.parent / "shared" / "jsontestsuite"
)

needs_suite = pytest.mark.skipif(
    not SUITE.is_dir(), reason=f"MMAPSTORE_JSONTESTSUITE: no directory {SUITE}"
)

TEMPLATES = {
    "before": b'{"payload":PAYLOAD,"type":KIND}\n',
    "before, with an id behind": b'{"payload":PAYLOAD,"type":KIND,"id":"a"}\n',
    "after": b'{"type":KIND,"id":"a","payload":PAYLOAD}\n',
    "between containers": (
        b'{"a":[{"type":"session"}],"p":PAYLOAD,"type":KIND,"b":{"type":["x"]},"id":"a"}\n'
    ),
    "in a container": b'{"a":[{"type":PAYLOAD}],"type":KIND}\n',
    "among white space": b'\t{"type" : KIND , "payload" : PAYLOAD }\r\n',
}
KINDS = (MESSAGE, COMPACTION, REVIEW, "session")


def payloads() -> list[tuple[str, bytes]]:
    files = sorted(SUITE.rglob("*.json"))
    found = [(file.name, file.read_bytes()) for file in files]
    return [(name, text.strip(b"\n")) for name, text in found if b"\n" not in text.strip(b"\n")]


def parsed_kind(line: bytes) -> str | None:
    """Return the kind by a full parse, or None where neither parser takes the line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = decoded(line)
    return kind_of(record, RULES["native"]) if isinstance(record, dict) else None


@needs_suite
def test_the_whole_suite_is_there() -> None:
    names = [name for name, _ in payloads()]
    assert len(names) >= 300
    assert {name[0] for name in names} == {"y", "n", "i"}


@needs_suite
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", TEMPLATES)
def test_kind_is_what_a_parser_says(place: str, kind: str) -> None:
    template = TEMPLATES[place].replace(b"KIND", b'"%s"' % kind.encode())
    lines = [template.replace(b"PAYLOAD", payload) for _, payload in payloads()]
    answer = kinds_on_all_paths(lines, "native")
    disagreements = []
    agreed = 0
    for line, found in zip(lines, answer, strict=True):
        expected = parsed_kind(line)
        if expected is None:
            continue
        agreed += found == expected
        if found != expected:
            disagreements.append((line, found, expected))
    assert disagreements == []
    assert agreed >= 95
    assert (OTHER if kind == "session" else kind) in answer

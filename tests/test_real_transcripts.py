"""Transcripts that people's agents wrote: every count of the table, every byte of every line."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore import Refresh
from tests.agreement import check_chain, check_layout, check_window, layout_facts
from tests.oracle import MESSAGE, OTHER, Oracle, same_json

FOLDER = Path(
    os.environ.get("MMAPSTORE_REAL_TRANSCRIPTS")
    or Path(__file__).parent.parent.parent / "shared" / "transcripts"
)

#: files whose first lines do not show what they are, so that the reader has to be told
TOLD = {
    "codex/as_schema_drift.jsonl",  # lines from before the envelope
    "droid/as_stream_json_schema_drift.jsonl",
    "qwen/as_019f0000-0000-7000-8000-000000000005.jsonl",  # its one line does not parse
}


def rows() -> list[dict[str, Any]]:
    table = FOLDER / "EXPECTED.tsv"
    if not table.is_file():
        return []
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


ROWS = rows()
every_row = pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])


def test_the_folder_is_there() -> None:
    if not ROWS:
        pytest.skip(f"MMAPSTORE_REAL_TRANSCRIPTS: no EXPECTED.tsv in {FOLDER}")
    assert {row["file"] for row in ROWS} >= TOLD


def opened(row: dict[str, Any], access: str = "auto", **kwargs: Any) -> mmapstore.Transcript:
    dialect = row["dialect"] if row["file"] in TOLD else None
    return mmapstore.open(FOLDER / row["file"], dialect=dialect, access=access, **kwargs)


def oracle_of(row: dict[str, Any]) -> Oracle:
    def kind_of_damaged(text: bytes) -> str:
        # the objects that do not parse here still begin with an intact discriminator
        return MESSAGE if text.startswith(b"{") else OTHER

    return Oracle((FOLDER / row["file"]).read_bytes(), row["dialect"], kind_of_damaged)


@every_row
def test_the_oracle_knows_the_table(row: dict[str, Any]) -> None:
    oracle = oracle_of(row)
    assert oracle.total == int(row["messages"])
    assert len(oracle.compactions) == int(row["compaction_lines"])
    assert len(oracle.checkpoints) == int(row["checkpoints"])
    unparsable = [line for line in oracle.lines if line.damaged and line.raw.startswith(b"{")]
    assert len(unparsable) == int(row["unparsable"])


@every_row
def test_every_figure_of_the_table(row: dict[str, Any], access: str) -> None:
    with opened(row, access) as t:
        assert t.dialect.name == row["dialect"]
        assert t.access == access
        assert t.nbytes == int(row["nbytes"])
        assert t.layout.file_len == int(row["file_len"])
        assert t.torn_nbytes == len(t.torn_tail) == int(row["torn_nbytes"])
        assert t.layout.line_count == int(row["lines"])
        assert t.message_count == int(row["messages"])
        assert len(t.layout.compaction_offsets) == int(row["compaction_lines"])
        w = t.window(limit=1)
        assert len(w.compactions) == len(w.compaction_positions) == int(row["checkpoints"])


@every_row
def test_every_line_and_message(row: dict[str, Any], access: str) -> None:
    oracle = oracle_of(row)
    with opened(row, access) as t:
        check_layout(t, oracle)
        check_window(t.window(limit=None), oracle, 0, oracle.total)
        newest = t.window()
        check_window(newest, oracle, *oracle.range_of())
        check_chain(newest, oracle)


@every_row
def test_every_id_leads_back(row: dict[str, Any]) -> None:
    oracle = oracle_of(row)
    last = {
        oracle.address_of(line): position
        for position, line in enumerate(oracle.messages)
        if line.record is not None
    }
    with opened(row) as t:
        for message_id, position in last.items():
            assert t.position(message_id) == position
        for message_id, position in list(last.items())[:: max(1, len(last) // 20)]:
            assert t.message_id(position) == message_id
            assert same_json(t.message(message_id), oracle.messages[position].record)
            assert same_json(t[position], oracle.messages[position].record)


@every_row
def test_other_programs_files_are_not_mapped(row: dict[str, Any]) -> None:
    with opened(row) as t:
        assert t.access == "pread"


@every_row
def test_verify_agrees_with_the_parser(row: dict[str, Any]) -> None:
    oracle = oracle_of(row)
    with opened(row) as t:
        found = {finding.offset: finding for finding in t.verify()}
    damaged = {line.offset for line in oracle.lines if line.damaged}
    assert set(found) == damaged


@every_row
def test_text_role_and_time_never_fail(row: dict[str, Any]) -> None:
    with opened(row) as t:
        for message in t.iter():
            assert isinstance(t.dialect.text(message), str)
            assert isinstance(t.dialect.role(message), str | None)
            assert isinstance(t.dialect.time(message), str | None)


#: dialects that show what they are in lines that may come late
SHOWN_LATE = {"claude", "qwen", "grok"}


@every_row
def test_growth_gives_what_a_cold_open_gives(row: dict[str, Any], tmp_path: Path) -> None:
    """Cut anywhere, also inside the first line, where detection has half of it to go by."""
    data = (FOLDER / row["file"]).read_bytes()[: 1 << 14]
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    dialect = row["dialect"] if row["file"] in TOLD else None
    with mmapstore.open(path, dialect=dialect) as t:
        cold = layout_facts(t)
    line_starts = [index + 1 for index, octet in enumerate(data[:4000]) if octet == 0x0A][:4]
    cuts = {
        *range(0, min(len(data), 1600), 83),
        *line_starts,
        *(start - 1 for start in line_starts),
    }
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with mmapstore.open(path, dialect=dialect, trust="append-only") as t:
            if row["dialect"] not in SHOWN_LATE and cut >= line_starts[0]:
                assert t.dialect.name == row["dialect"]
            with path.open("ab") as file:
                file.write(data[cut:])
            assert bool(t.refresh()) == (cut < len(data))
            assert layout_facts(t) == cold
            assert t.refresh() is Refresh.SAME

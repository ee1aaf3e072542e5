"""Every error is the package's own and a builtin that a Python programmer would catch."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import mmapstore
from mmapstore import errors
from mmapstore.errors import (
    ConflictError,
    InvalidRecordError,
    InvalidSessionIdError,
    LineDecodeError,
    LockedError,
    MessageNotFoundError,
    MmapStoreError,
    NotATranscriptError,
    PositionError,
    RevisionNotFoundError,
    SessionNotFoundError,
    TranscriptChangedError,
    WriteFailedError,
)

BUILTINS = {
    NotATranscriptError: ValueError,
    MessageNotFoundError: KeyError,
    PositionError: IndexError,
    LineDecodeError: ValueError,
    TranscriptChangedError: RuntimeError,
    SessionNotFoundError: FileNotFoundError,
    RevisionNotFoundError: LookupError,
    LockedError: BlockingIOError,
    InvalidSessionIdError: ValueError,
    InvalidRecordError: ValueError,
    ConflictError: ValueError,
    WriteFailedError: OSError,
}


def test_every_error_of_the_module_is_known_here_and_exported() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    assert classes == {MmapStoreError, *BUILTINS}
    for error in classes:
        assert getattr(mmapstore, error.__name__) is error
        assert error.__name__ in mmapstore.__all__


@pytest.mark.parametrize(("error", "builtin"), BUILTINS.items())
def test_an_error_is_caught_by_either_name(
    error: type[MmapStoreError], builtin: type[Exception]
) -> None:
    for name in (MmapStoreError, builtin):
        with pytest.raises(name):
            raise error("it went wrong")


@pytest.mark.parametrize("error", [MmapStoreError, *BUILTINS])
def test_facts_are_attributes_and_the_message_is_built_from_them(
    error: type[MmapStoreError],
) -> None:
    bare = error("it went wrong")
    assert (bare.path, bare.offset, bare.hint) == (None, None, None)
    assert str(bare).endswith("it went wrong")
    whole = error("it went wrong", path="/some/t.jsonl", offset=12, hint="look again")
    assert (whole.path, whole.offset, whole.hint) == ("/some/t.jsonl", 12, "look again")
    text = str(whole)
    assert text.startswith("/some/t.jsonl: ")
    assert text.endswith("it went wrong (at byte 12); look again")


def test_an_offset_of_zero_is_an_offset() -> None:
    assert str(MmapStoreError("x", offset=0)) == "x (at byte 0)"


def test_a_path_may_be_any_path() -> None:
    assert MmapStoreError("x", path=Path("a/b")).path == "a/b"


def test_a_missing_message_reads_as_text_and_not_as_a_key() -> None:
    error = MessageNotFoundError("no message with the id 'x'", path="p")
    assert str(error) == "p: no message with the id 'x'"


def test_a_line_that_does_not_decode_says_which_and_why() -> None:
    error = LineDecodeError("not UTF-8", path="p", offset=7, line_number=3, hint="h")
    assert (error.reason, error.line_number, error.offset) == ("not UTF-8", 3, 7)
    assert str(error) == "p: line 3 does not decode: not UTF-8 (at byte 7); h"
    assert str(LineDecodeError("x")) == "line does not decode: x"


@pytest.mark.parametrize("error", [MmapStoreError, *BUILTINS])
def test_errors_travel_between_processes(error: type[MmapStoreError]) -> None:
    more = {"line_number": 3} if error is LineDecodeError else {}
    whole = error("it went wrong", path="/some/t.jsonl", offset=12, hint="look again", **more)
    for other in (pickle.loads(pickle.dumps(whole)), copy.copy(whole)):
        assert type(other) is error
        assert str(other) == str(whole)
        assert vars(other) == vars(whole)

"""The library at a prompt: its names and help, what it shows of itself, and what it says of misuse."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore.loader import Refresh
from tests.strategies import HEADER, M

ROOT = Path(__file__).parent.parent
DAMAGED = b'{"type":"message","id":"bad",\n'


@pytest.fixture
def t(write: Callable[..., Path]) -> Iterator[mmapstore.Transcript]:
    """Three messages, of which the last is damaged."""
    with mmapstore.open(write(HEADER + M("a") + M("b") + DAMAGED), cache_dir=None) as opened:
        yield opened


# -- names --------------------------------------------------------------------------------


def test_every_public_name_is_listed_and_explained() -> None:
    assert set(mmapstore.__all__) <= set(dir(mmapstore))
    told = pydoc.render_doc(mmapstore, renderer=pydoc.plaintext)
    for name in mmapstore.__all__:
        if isinstance(getattr(mmapstore, name), type):
            assert f"class {name}(" in told or f"class {name}\n" in told, name
    assert mmapstore.__version__ in told.split("VERSION")[1]


def test_listing_the_names_loads_nothing() -> None:
    code = (
        "import sys, mmapstore; names = dir(mmapstore); mmapstore.__version__; "
        "print({'Host', 'Outbox', 'Finding'} <= set(names), "
        "sorted({'sqlite3', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == "True []\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'mmapstore' has no attribute 'nothing'"):
        _ = mmapstore.nothing  # type: ignore[attr-defined]


# -- what is shown ------------------------------------------------------------------------


@pytest.mark.parametrize("found", Refresh)
def test_a_refresh_prints_its_name_and_is_a_number(found: Refresh) -> None:
    assert str(found) == f"{found}" == f"{found:s}" == found.name
    assert f"{found:>9}" == found.name.rjust(9)
    assert f"{found:d}" == f"{int(found):d}"
    assert (found == int(found), bool(found)) == (True, found is not Refresh.SAME)


def test_objects_show_what_they_are(t: mmapstore.Transcript, tmp_path: Path) -> None:
    window = t.window(limit=2)
    assert repr(window.lines) == "<Lines of positions [1, 3)>"
    assert repr(window.compactions) == "<Checkpoints: 0>"
    assert repr(t.layout.messages) == "<Extents of 3 lines>"
    assert repr(t.layout.checkpoints) == "<Column of 0 values>"
    host = mmapstore.Host(tmp_path / "d")
    with host, mmapstore.Outbox(host) as outbox:
        assert repr(host) == f"<Host of {str(tmp_path / 'd')!r}>"
        assert repr(outbox) == f"<Outbox to {host!r}, 0 waiting>"
    assert repr(host) == f"<Host of {str(tmp_path / 'd')!r}, closed>"


def test_showing_the_checkpoints_decodes_none(write: Callable[..., Path], monkeypatch: Any) -> None:
    with mmapstore.open(write(HEADER + b'{"type":"compaction","id":"c"}\n')) as t:
        chain = t.window().compactions
        monkeypatch.setattr(type(chain), "_record", lambda *_: pytest.fail("decoded"))
        assert repr(chain) == "<Checkpoints: 1>"


# -- what is misused ----------------------------------------------------------------------


MISUSES = {
    't.window(limit="5")': "limit must be an integer, not str",
    "t.window(before=1.0)": "before must be an integer, not float",
    't.window(after="5")': "after must be an integer, not str",
    't.window(max_nbytes="5")': "max_nbytes must be an integer, not str",
    "t.window(around=5)": "around must be a string, not int",
    't.iter("0")': "start must be an integer, not str",
    't.iter(0, "1")': "stop must be an integer, not str",
    't.follow(after="0")': "after must be an integer, not str",
    "t.follow(limit=None)": "limit must be an integer, not NoneType",
    't["a"]': "position must be an integer, not str",
    "t.line(None)": "position must be an integer, not NoneType",
    "t.message_id(0.0)": "position must be an integer, not float",
    "t.message(0)": "message_id must be a string, not int",
    't.position(b"a")': "message_id must be a string, not bytes",
    "t.tool_parent(0)": "call_id must be a string, not int",
    "0 in t": "message_id must be a string, not int",
    "t[0] in t": "message_id must be a string, not dict",
    "mmapstore.open(None)": "path must be a path, not NoneType",
    "mmapstore.open(t.path, cache_dir=5)": "cache_dir must be a path, not int",
    "t[0:2]": r"window\(after=..., limit=...\) or iter\(\)",
    "t[:]": r"window\(after=..., limit=...\) or iter\(\)",
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_type_error_names_the_argument(t: mmapstore.Transcript, misuse: str) -> None:
    with pytest.raises(TypeError, match=MISUSES[misuse]):
        eval(misuse, {"t": t, "mmapstore": mmapstore})


def test_a_position_from_the_end_is_refused_with_what_to_do(t: mmapstore.Transcript) -> None:
    for ask in (t.__getitem__, t.line, t.message_id):
        with pytest.raises(mmapstore.PositionError, match=r"window\(limit=...\) gives the newest"):
            ask(-1)
        with pytest.raises(mmapstore.PositionError) as caught:
            ask(3)
        assert caught.value.hint is None


def test_a_transcript_contains_the_ids_of_its_messages(t: mmapstore.Transcript) -> None:
    assert "a" in t
    assert "c" not in t
    # its lines are there, though none decodes
    assert "bad" in t


def test_the_hint_about_a_damaged_line_holds(t: mmapstore.Transcript) -> None:
    for ask in (lambda: t[2], lambda: t.message("bad")):
        with pytest.raises(mmapstore.LineDecodeError) as caught:
            ask()
        assert caught.value.hint == "line(2) gives its bytes"
    assert t.line(2) == DAMAGED


def test_a_cache_that_cannot_be_kept_says_why(write: Callable[..., Path], monkeypatch: Any) -> None:
    monkeypatch.setattr(mmapstore.loader, "is_racy", lambda *_, **__: False)
    path, taken = write(HEADER + M("a")), write(b"", "taken")
    for _ in range(2):
        with mmapstore.open(path, cache_dir=taken) as t:
            assert (t.cache, t.message_count) == ("miss", 1)
            assert isinstance(t.cache_error, OSError)
            assert t.cache_error.filename == str(taken)
    with mmapstore.open(path, cache_dir=taken) as t:
        taken.unlink()
        t.position("a")  # what is known now is kept at the end
    assert t.cache_error is None
    with mmapstore.open(path, cache_dir=None) as t:
        assert (t.cache, t.cache_error) == ("off", None)

"""Where layout caches lie: which directory, under which names, how much of it, and what stays."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import CacheDir, cachedir
from mmapstore.fileio import open_regular
from mmapstore.stamp import is_racy
from tests.strategies import HEADER, M

Write = Callable[..., Path]

NATIVE = HEADER + M("a") + M("b")
HOUR_S = 3600


def settle(path: Path) -> None:
    """Wait until the file system's clock can tell the next change of a file from the last."""
    descriptor = open_regular(str(path))
    while is_racy(descriptor.stamp(), str(path.parent), remote=False):
        pass


@pytest.fixture
def transcript(write: Write) -> Path:
    path = write(NATIVE)
    settle(path)
    return path


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has written, and look a directory over at every byte."""
    monkeypatch.setattr(cachedir, "_added_nbytes", {})
    monkeypatch.setattr(cachedir, "_SWEEP_NBYTES", 0)


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


# -- which directory ---------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("MMAPSTORE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return monkeypatch


def test_without_a_word_it_is_in_the_home_directory(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cachedir.user_directory() == str(tmp_path / "home/.cache/mmapstore")


def test_the_systems_place_for_caches_is_used(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cachedir.user_directory() == str(tmp_path / "xdg/mmapstore")


@pytest.mark.parametrize("relative", ["xdg", "./xdg", "", "~/xdg"])
def test_a_relative_place_for_caches_is_none(
    environment: pytest.MonkeyPatch, tmp_path: Path, relative: str
) -> None:
    environment.setenv("XDG_CACHE_HOME", relative)
    assert cachedir.user_directory() == str(tmp_path / "home/.cache/mmapstore")


def test_our_own_variable_comes_first(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    environment.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "ours"))
    assert cachedir.user_directory() == str(tmp_path / "ours")
    environment.setenv("MMAPSTORE_CACHE_DIR", "")
    assert cachedir.user_directory() == str(tmp_path / "xdg/mmapstore")


def test_a_relative_directory_of_ours_is_one_of_where_we_are(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.chdir(tmp_path)
    environment.setenv("MMAPSTORE_CACHE_DIR", "ours")
    assert cachedir.user_directory() == str(tmp_path / "ours")


@pytest.mark.parametrize(
    ("variable", "value", "place"),
    [
        ("MMAPSTORE_CACHE_DIR", "a/b/c", "a/b/c"),
        ("XDG_CACHE_HOME", "xdg", "xdg/mmapstore"),
        ("HOME", "elsewhere", "elsewhere/.cache/mmapstore"),
    ],
)
def test_a_transcript_is_cached_there(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    transcript: Path,
    variable: str,
    value: str,
    place: str,
) -> None:
    environment.setenv(variable, str(tmp_path / value))
    mmapstore.open(transcript).close()
    with mmapstore.open(transcript) as t:
        assert t.cache == "hit"
    expected = Path(cachedir.within(str(tmp_path / place), str(transcript)))
    assert list((tmp_path / place).iterdir()) == [expected]


def test_a_directory_given_with_open_comes_before_all(
    environment: pytest.MonkeyPatch, tmp_path: Path, transcript: Path
) -> None:
    environment.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "ours"))
    environment.chdir(tmp_path)
    for given_as in ("given", Path("given"), b"given", tmp_path / "given"):
        with mmapstore.open(transcript, cache_dir=given_as) as t:  # type: ignore[arg-type]
            assert t.cache == ("miss" if given_as == "given" else "hit")
    assert len(names(tmp_path / "given")) == 1
    assert not (tmp_path / "ours").exists()


# -- modes and names ---------------------------------------------------------------------


@pytest.fixture
def open_to_all() -> Iterator[None]:
    mask = os.umask(0)
    yield
    os.umask(mask)


@pytest.mark.usefixtures("open_to_all")
def test_caches_are_nobody_elses_business(transcript: Path, tmp_path: Path) -> None:
    directory = tmp_path / "caches"
    mmapstore.open(transcript, cache_dir=directory).close()
    (entry,) = directory.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    mmapstore.open(transcript, cache_dir=CacheDir.BESIDE).close()
    beside = Path(cachedir.beside(str(transcript)))
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600


def test_the_mode_of_a_directory_that_is_there_is_left_alone(
    transcript: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "caches"
    directory.mkdir()
    directory.chmod(0o755)
    mmapstore.open(transcript, cache_dir=directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert len(names(directory)) == 1


paths = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=120
).map(lambda name: "/" + name)


@given(paths)
def test_a_name_is_plain_short_and_always_the_same(path: str) -> None:
    name = cachedir.within("/d", path).removeprefix("/d/")
    assert re.fullmatch(r"[A-Za-z0-9._-]*-[0-9a-f]{8}\.layout", name)
    # room for the ending of a temporary file on the narrowest of systems
    assert len(name) <= 100
    assert cachedir.within("/d", path) == "/d/" + name


def test_transcripts_of_one_name_lie_side_by_side(tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    for folder in ("one", "two"):
        path = tmp_path / folder / "t.jsonl"
        path.parent.mkdir()
        path.write_bytes(NATIVE)
        settle(path)
        mmapstore.open(path, cache_dir=caches).close()
    assert len(names(caches)) == 2
    assert all(name.startswith("t.jsonl-") for name in names(caches))


def test_a_path_has_one_name_however_it_is_given(
    transcript: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.chdir(tmp_path)
    spellings = [transcript, transcript.name, f"./{transcript.name}", tmp_path / "." / "t.jsonl"]
    for spelling in [*spellings, os.fsencode(transcript), f"../{tmp_path.name}/t.jsonl"]:
        with mmapstore.open(spelling, cache_dir=caches) as t:  # type: ignore[arg-type]
            assert t.cache == ("miss" if spelling is spellings[0] else "hit")
    assert len(names(caches)) == 1


def test_two_paths_that_share_a_name_take_turns(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.setattr(
        cachedir, "within", lambda directory, path: f"{directory}/x-00000000.layout"
    )
    one, other = write(NATIVE), write(NATIVE + M("c"), "u.jsonl")
    for path in (one, other):
        settle(path)
    for _ in range(2):
        for path, count in ((one, 2), (other, 3)):
            with mmapstore.open(path, cache_dir=caches) as t:
                assert t.cache in ("miss", "stale")
                assert t.message_count == count
            with mmapstore.open(path, cache_dir=caches) as t:
                assert (t.cache, t.message_count) == ("hit", count)


@pytest.mark.parametrize("length", [200, 240, 255])
def test_a_long_name_is_no_hindrance(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * length)
    path.write_bytes(NATIVE)
    settle(path)
    caches = tmp_path / "caches"
    for state in ("miss", "hit"):
        with mmapstore.open(path, cache_dir=caches) as t:
            assert (t.cache, t.message_count) == (state, 2)
    # beside it there may be no room for a longer one
    with mmapstore.open(path, cache_dir=CacheDir.BESIDE) as t:
        assert t.message_count == 2
    left = names(tmp_path) - {"caches", path.name}
    assert left in (set(), {path.name + ".layout"})


# -- room --------------------------------------------------------------------------------


def lay(directory: Path, files: list[tuple[int, float]], suffix: str = "") -> list[Path]:
    """Make caches of (bytes, seconds since last use)."""
    now_s = time.time()
    made = []
    for number, (nbytes, age_s) in enumerate(files):
        path = directory / f"t-{number:08x}.layout{suffix}"
        path.write_bytes(bytes(nbytes))
        os.utime(path, (now_s - age_s, now_s - age_s))
        made.append(path)
    return made


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 10**6)), max_size=12, unique_by=lambda f: f[1]
    ),
    st.integers(0, 200),
)
def test_what_was_not_used_for_longest_goes_first(
    files: list[tuple[int, int]], limit_nbytes: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cachedir, "_added_nbytes", {})
        patch.setattr(cachedir, "LIMIT_NBYTES", limit_nbytes)
        directory = Path(name)
        lay(directory, files)
        cachedir.make_room(name, 1)
        left = {path.name for path in directory.iterdir()}
    by_use = sorted(range(len(files)), key=lambda number: files[number][1])
    sizes = [files[number][0] for number in by_use]
    kept = [f"t-{number:08x}.layout" in left for number in by_use]
    count = sum(kept)
    # the last used ones, without a gap
    assert kept == [True] * count + [False] * (len(files) - count)
    # within the limit, unless the last used one alone is beyond it
    assert sum(sizes[:count]) <= limit_nbytes or sum(map(bool, sizes[:count])) == 1
    # and no more went than had to
    if count < len(files):
        assert sum(sizes[: count + 1]) > limit_nbytes


@pytest.mark.usefixtures("sweeps")
def test_a_directory_stays_bounded_while_caches_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "caches"
    nbytes = 0
    for number in range(12):
        path = tmp_path / f"t{number}.jsonl"
        path.write_bytes(NATIVE)
        settle(path)
        mmapstore.open(path, cache_dir=directory).close()
        place = Path(cachedir.within(str(directory), str(path)))
        if not nbytes:
            nbytes = place.stat().st_size
            monkeypatch.setattr(cachedir, "LIMIT_NBYTES", nbytes * 4)
        assert place.exists()
        assert sum(entry.stat().st_size for entry in directory.iterdir()) <= nbytes * 4
        # a moment goes by
        for entry in directory.iterdir():
            before_s = entry.stat().st_mtime - 10
            os.utime(entry, (before_s, before_s))
    left = [Path(entry.path).name for entry in cachedir.entries(str(directory))]
    assert [name.split("-")[0] for name in left] == [f"t{n}.jsonl" for n in (11, 10, 9, 8)]


@pytest.mark.usefixtures("sweeps")
def test_a_cache_that_is_read_is_not_the_next_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "caches"
    made = []
    for number in range(3):
        path = tmp_path / f"t{number}.jsonl"
        path.write_bytes(NATIVE)
        settle(path)
        mmapstore.open(path, cache_dir=directory).close()
        made.append(path)
        place = Path(cachedir.within(str(directory), str(path)))
        age_s = (10 - number) * HOUR_S
        os.utime(place, (time.time() - age_s,) * 2)
    size = place.stat().st_size
    with mmapstore.open(made[0], cache_dir=directory) as t:
        assert t.cache == "hit"
    monkeypatch.setattr(cachedir, "LIMIT_NBYTES", 2 * size)
    cachedir.make_room(str(directory), 1)
    left = {entry.path for entry in cachedir.entries(str(directory))}
    assert left == {cachedir.within(str(directory), str(made[n])) for n in (0, 2)}


def test_use_is_noted_to_the_hour(tmp_path: Path) -> None:
    recent, old, future = lay(tmp_path, [(1, HOUR_S / 2), (1, 3 * HOUR_S), (1, -9 * HOUR_S)])
    before_s = {path: path.stat().st_mtime for path in (recent, old, future)}
    now_s = time.time()
    for path in before_s:
        cachedir.note_use(str(path))
    assert recent.stat().st_mtime == before_s[recent]
    # a clock that was set back must not keep a cache for ever
    for path in (old, future):
        assert now_s - 5 <= path.stat().st_mtime <= time.time() + 5
    cachedir.note_use(str(tmp_path / "gone"))
    assert names(tmp_path) == {path.name for path in before_s}


def test_a_directory_is_not_looked_over_for_every_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cachedir, "_added_nbytes", {})
    monkeypatch.setattr(cachedir, "LIMIT_NBYTES", 10)
    monkeypatch.setattr(cachedir, "_SWEEP_NBYTES", 100)

    def left_after(nbytes: int) -> int:
        lay(tmp_path, [(10, 1), (10, 2)])
        cachedir.make_room(str(tmp_path), nbytes)
        return len(names(tmp_path))

    assert left_after(1) == 1  # the first time
    assert left_after(60) == 2
    assert left_after(39) == 2
    assert left_after(1) == 1
    assert left_after(99) == 2
    assert left_after(500) == 1


@pytest.mark.usefixtures("sweeps")
def test_a_directory_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    cachedir.make_room(str(tmp_path / "gone"), 1)
    assert cachedir.entries(str(tmp_path / "gone")) == []
    assert cachedir.clear(str(tmp_path / "gone")) == []
    file = tmp_path / "file"
    file.write_bytes(b"x")
    assert cachedir.entries(str(file)) == []
    assert cachedir.clear(str(file)) == []
    assert file.read_bytes() == b"x"


# -- what is left over, and what is not ours ---------------------------------------------


@pytest.mark.usefixtures("sweeps")
def test_what_a_process_that_died_left_goes_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    suffix = ".123-4.tmp"
    old, new, future = lay(tmp_path, [(9, 2 * HOUR_S), (9, 60), (9, -60)], suffix)
    cachedir.make_room(str(tmp_path), 1)
    assert names(tmp_path) == {new.name, future.name}
    assert not old.exists()
    # they are no caches
    assert cachedir.entries(str(tmp_path)) == []


FOREIGN = [
    "notes.txt",
    "t.jsonl",
    "t.jsonl.layout",
    "t-00000000.layout.bak",
    "t-00000000.layouts",
    "t-0000000.layout",
    "t-0000000G.layout",
    "t-000000000.LAYOUT",
    "t-00000000.layout.tmp",
    "t-00000000.layout.1.tmp",
    "t-00000000.layout.1-2.tmp.tmp",
    "té-00000000.layout",
    "a b-00000000.layout",
    "t-00000000.layout\n",
    ".hidden",
    "00000000.layout",
]


@pytest.mark.usefixtures("sweeps")
def test_files_of_others_are_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachedir, "LIMIT_NBYTES", 1)
    directory = tmp_path / "caches"
    directory.mkdir()
    for name in FOREIGN:
        (directory / name).write_bytes(b"theirs" * 10)
        os.utime(directory / name, (1, 1))
    (directory / "d-00000000.layout").mkdir()
    (directory / "s-00000000.layout").symlink_to(directory / "notes.txt")
    os.mkfifo(directory / "f-00000000.layout")
    before = names(directory)
    lay(directory, [(9, 100), (9, 200)])
    assert [entry.nbytes for entry in cachedir.entries(str(directory))] == [9, 9]
    cachedir.make_room(str(directory), 1)
    assert names(directory) == before | {"t-00000000.layout"}
    assert [Path(entry.path).name for entry in cachedir.clear(str(directory))] == [
        "t-00000000.layout"
    ]
    assert names(directory) == before
    assert all((directory / name).read_bytes() == b"theirs" * 10 for name in FOREIGN)


def test_the_transcripts_in_the_caches_own_directory_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(NATIVE)
    settle(path)
    mmapstore.open(path, cache_dir=tmp_path).close()
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    assert len(names(tmp_path)) == 3
    assert len(cachedir.clear(str(tmp_path))) == 1
    # what lies beside a transcript is its host's
    assert names(tmp_path) == {"t.jsonl", "t.jsonl.layout"}
    assert path.read_bytes() == NATIVE


# -- list and clear ----------------------------------------------------------------------


def test_caches_are_listed_the_last_used_first(tmp_path: Path) -> None:
    made = lay(tmp_path, [(5, 300), (7, 100), (6, 200)])
    lay(tmp_path, [(5, 300)], ".7-7.tmp")
    found = cachedir.entries(str(tmp_path))
    assert [(entry.path, entry.nbytes) for entry in found] == [
        (str(made[1]), 7),
        (str(made[2]), 6),
        (str(made[0]), 5),
    ]
    assert [entry.used_s for entry in found] == [Path(e.path).stat().st_mtime for e in found]


def test_clearing_says_what_went(tmp_path: Path) -> None:
    made = lay(tmp_path, [(5, 300), (7, 100)])
    temporary = lay(tmp_path, [(6, 1)], ".7-7.tmp")
    went = cachedir.clear(str(tmp_path))
    assert {entry.path for entry in went} == set(map(str, made + temporary))
    assert sum(entry.nbytes for entry in went) == 18
    assert names(tmp_path) == set()
    assert cachedir.clear(str(tmp_path)) == []


def test_clearing_under_an_open_transcript_takes_nothing_from_it(
    transcript: Path, tmp_path: Path, access: str
) -> None:
    directory = tmp_path / "caches"
    mmapstore.open(transcript, cache_dir=directory).close()
    with mmapstore.open(transcript, cache_dir=directory, access=access) as t:
        assert t.cache == "hit"
        assert len(cachedir.clear(str(directory))) == 1
        assert t.window().message_ids == ["a", "b"]
        assert t.position("b") == 1
    with mmapstore.open(transcript, cache_dir=directory) as t:
        assert t.window().message_ids == ["a", "b"]


def test_what_cannot_be_removed_is_not_said_to_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lay(tmp_path, [(5, 300), (7, 100)])
    unlink = os.unlink

    def refusing(path: str) -> None:
        if path == str(made[0]):
            raise PermissionError(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", refusing)
    assert [entry.path for entry in cachedir.clear(str(tmp_path))] == [str(made[1])]
    assert names(tmp_path) == {made[0].name}

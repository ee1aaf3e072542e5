"""A stamp tells one content of one file, and says itself when it might not."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore import stamp as module
from mmapstore.stamp import COARSE_NS, TICK_NS, Stamp, is_racy, stamp_of, stamp_of_open

SECOND_NS = 10**9
FIELDS = Stamp._fields
BASE = Stamp(1, 2, 3, 4, 5, 6)


def opened(path: Path) -> Stamp:
    fd = os.open(path, os.O_RDONLY)
    try:
        return stamp_of_open(fd)
    finally:
        os.close(fd)


# -- fields ---------------------------------------------------------------------------


def test_a_stamp_is_what_the_system_says(write: Callable[..., Path]) -> None:
    path = write(b"1234567")
    os.utime(path, ns=(7, 123_456_789))
    status = path.stat()
    assert stamp_of(status, 9) == Stamp(
        device=status.st_dev,
        inode=status.st_ino,
        nbytes=7,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode_generation=9,
    )
    assert stamp_of(status).inode_generation == 0
    assert stamp_of(status).mtime_ns != stamp_of(status).ctime_ns
    assert opened(path)[:5] == stamp_of(status)[:5]


def test_the_two_ways_to_a_stamp_agree(write: Callable[..., Path]) -> None:
    path = write(b"x")
    one = opened(path)
    assert opened(path) == one
    assert stamp_of(path.stat(), one.inode_generation) == one


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_tells_one_stamp_from_another(name: str) -> None:
    other = BASE._replace(**{name: getattr(BASE, name) + 1})
    assert other != BASE
    file_fields = {"device", "inode", "inode_generation"}
    assert BASE.same_file(other) is other.same_file(BASE) is (name not in file_fields)


def test_a_modification_time_that_was_set_back_fools_nothing(write: Callable[..., Path]) -> None:
    path = write(b"one")
    os.utime(path, ns=(SECOND_NS, SECOND_NS))
    before = opened(path)
    racy = is_racy(before, str(path.parent), remote=False)
    path.write_bytes(b"two")
    os.utime(path, ns=(SECOND_NS, SECOND_NS))
    after = opened(path)
    assert after.same_file(before)
    assert (after.nbytes, after.mtime_ns) == (before.nbytes, before.mtime_ns)
    # an edit in the same tick is what the racy rule is for
    assert after != before or racy


# -- the inode's generation -----------------------------------------------------------

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


@linux_only
@pytest.mark.parametrize("generation", [0, 1, 2**31, 2**32 - 1])
def test_the_generation_is_what_the_file_system_says(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    import fcntl

    asked: list[tuple[int, int]] = []

    def ioctl(fd: int, request: int, buffer: bytearray) -> int:
        asked.append((fd, request))
        # an int, whatever the request's number says of a long
        buffer[:4] = struct.pack("=I", generation)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    path = write(b"")
    fd = os.open(path, os.O_RDONLY)
    try:
        assert stamp_of_open(fd) == stamp_of(os.fstat(fd), generation)
    finally:
        os.close(fd)
    # _IOR('v', 1, long): direction, size, type, number
    assert asked == [(fd, 2 << 30 | struct.calcsize("l") << 16 | ord("v") << 8 | 1)]


@linux_only
@pytest.mark.parametrize("number", [errno.ENOTTY, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_keeps_no_generations(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import fcntl

    def ioctl(*args: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    path = write(b"")
    assert opened(path) == stamp_of(path.stat(), 0)


@pytest.mark.parametrize(("extra", "expected"), [({"st_gen": 77}, 77), ({}, 0)])
def test_elsewhere_the_generation_comes_with_the_status(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, int], expected: int
) -> None:
    status = SimpleNamespace(st_dev=1, st_ino=2, st_size=3, st_mtime_ns=4, st_ctime_ns=5, **extra)
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(module, "os", SimpleNamespace(fstat=lambda fd: status))
    assert stamp_of_open(0) == Stamp(1, 2, 3, 4, 5, expected)


# -- the racy rule --------------------------------------------------------------------

NOW_NS = 1_700_000_000 * SECOND_NS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Stop the clock, and return a function that says what granule the probe finds."""
    monkeypatch.setattr(module, "_now_ns", lambda: NOW_NS)
    monkeypatch.setattr(module, "_known_granules", {})

    def granule(nbytes: int) -> None:
        monkeypatch.setattr(module, "_measured_granule_ns", lambda device, directory: nbytes)

    return granule


def changed(age_ns: int, *, modified_age_ns: int | None = None) -> Stamp:
    modified = age_ns if modified_age_ns is None else modified_age_ns
    return Stamp(1, 2, 3, NOW_NS - modified, NOW_NS - age_ns)


@pytest.mark.parametrize("granule", [TICK_NS, COARSE_NS])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_stamp_is_racy_until_the_clock_has_ticked(
    clock: Callable[[int], None], granule: int, off: int
) -> None:
    clock(granule)
    assert is_racy(changed(granule + off), "d", remote=False) is (off <= 0)
    assert is_racy(changed(0), "d", remote=False)
    # a change that is yet to come, by a clock that was set back
    assert is_racy(changed(-5 * SECOND_NS), "d", remote=False)


@pytest.mark.parametrize("age_ns", [-SECOND_NS, 0, 1, COARSE_NS])
def test_where_every_edit_has_a_time_of_its_own_nothing_is_racy(
    clock: Callable[[int], None], age_ns: int
) -> None:
    clock(0)
    assert not is_racy(changed(age_ns), "d", remote=False)


def test_another_machines_clock_is_never_trusted_to_be_fine(clock: Callable[[int], None]) -> None:
    clock(0)
    assert is_racy(changed(COARSE_NS), "d", remote=True)
    assert not is_racy(changed(COARSE_NS + 1), "d", remote=True)


def test_which_of_the_two_times_counts(clock: Callable[[int], None]) -> None:
    """Here the inode's, which nobody can set; elsewhere the later of the two."""
    clock(COARSE_NS)
    old, new = 10 * SECOND_NS, SECOND_NS
    assert is_racy(changed(new, modified_age_ns=old), "d", remote=False)
    assert not is_racy(changed(old, modified_age_ns=new), "d", remote=False)
    assert is_racy(changed(new, modified_age_ns=old), "d", remote=True)
    assert is_racy(changed(old, modified_age_ns=new), "d", remote=True)
    assert not is_racy(changed(old, modified_age_ns=old), "d", remote=True)


@given(
    age_ns=st.integers(-3 * COARSE_NS, 3 * COARSE_NS),
    granule=st.sampled_from([0, TICK_NS, COARSE_NS]),
    remote=st.booleans(),
)
def test_a_racy_stamp_by_the_rules_words(age_ns: int, granule: int, remote: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_now_ns", lambda: NOW_NS)
        patch.setattr(module, "_known_granules", {})
        patch.setattr(module, "_measured_granule_ns", lambda device, directory: granule)
        shared = COARSE_NS if remote else granule
        assert is_racy(changed(age_ns), "d", remote=remote) is (shared > 0 and age_ns <= shared)


def test_a_file_system_is_tried_out_once_and_only_for_a_young_change(
    clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, str]] = []
    monkeypatch.setattr(
        module,
        "_measured_granule_ns",
        lambda device, directory: tried.append((device, directory)) or 0,
    )
    assert not is_racy(changed(COARSE_NS + 1), "d", remote=False)
    assert is_racy(changed(0), "d", remote=True)
    assert tried == []
    for _ in range(3):
        assert not is_racy(changed(0), "d", remote=False)
        assert not is_racy(changed(0), "e", remote=False)
        assert not is_racy(changed(0)._replace(device=8), "f", remote=False)
    assert tried == [(1, "d"), (8, "f")]


@linux_only
def test_now_is_by_the_clock_that_files_are_stamped_with(write: Callable[..., Path]) -> None:
    """Which never is ahead of a stamp that comes later, however fine the other clocks are."""
    for number in range(50):
        before = module._now_ns()
        path = write(str(number).encode())
        assert before <= path.stat().st_ctime_ns


# -- the probe ------------------------------------------------------------------------


class Disk:
    """The calls that the probe makes, on a disk whose clock shows given times."""

    O_RDWR, O_CLOEXEC, O_TMPFILE = os.O_RDWR, os.O_CLOEXEC, 1 << 22

    def __init__(self, times_ns: list[int], *, device: int = 1, fails: str = "") -> None:
        self.times_ns = iter(times_ns)
        self.device = device
        self.fails = fails
        self.calls: list[str] = []
        self.where: list[tuple[Any, ...]] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise OSError(errno.EIO, "as told")

    def open(self, *where: Any) -> int:
        self.where.append(where)
        self._called("open")
        return 99

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        assert (fd, offset) == (99, 0)
        self._called("pwrite")
        return len(data)

    def fstat(self, fd: int) -> Any:
        assert fd == 99
        self._called("fstat")
        return SimpleNamespace(st_ctime_ns=next(self.times_ns), st_dev=self.device)

    def close(self, fd: int) -> None:
        assert fd == 99
        self._called("close")


COUNT = module._TRIES
FINE = [NOW_NS + 300 * number for number in range(COUNT)]


def probed(disk: Disk, monkeypatch: pytest.MonkeyPatch, directory: str = "d") -> int:
    monkeypatch.setattr(module, "os", disk)
    return module._measured_granule_ns(1, directory)


@pytest.mark.parametrize(
    ("times_ns", "granule"),
    [
        pytest.param(FINE, 0, id="every edit has a time of its own"),
        pytest.param([*FINE[:-1], FINE[-2]], TICK_NS, id="two edits share one"),
        pytest.param([NOW_NS + 4_000_000] * COUNT, TICK_NS, id="all edits share one"),
        pytest.param([NOW_NS] * 9 + [NOW_NS + 1] * (COUNT - 9), TICK_NS, id="across a second"),
        pytest.param([NOW_NS] * COUNT, COARSE_NS, id="whole seconds"),
        pytest.param(
            [NOW_NS] * 9 + [NOW_NS + 2 * SECOND_NS] * (COUNT - 9), COARSE_NS, id="even seconds"
        ),
    ],
)
def test_how_long_a_tick_is(
    monkeypatch: pytest.MonkeyPatch, times_ns: list[int], granule: int
) -> None:
    disk = Disk(times_ns)
    assert probed(disk, monkeypatch) == granule
    assert disk.calls == ["open", *["pwrite", "fstat"] * COUNT, "close"]


def test_the_file_that_is_tried_out_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(FINE)
    probed(disk, monkeypatch, "")
    ((directory, flags, mode),) = disk.where
    assert directory == "."
    assert flags & Disk.O_TMPFILE
    assert flags & Disk.O_CLOEXEC
    assert mode == 0o400


@pytest.mark.parametrize("fails", ["open", "pwrite", "fstat"])
def test_a_probe_that_fails_assumes_the_worst(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    disk = Disk(FINE, fails=fails)
    assert probed(disk, monkeypatch) == COARSE_NS
    assert disk.calls.count("close") == (fails != "open")


def test_a_file_that_lies_on_another_device_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(FINE, device=2)
    assert probed(disk, monkeypatch) == COARSE_NS
    assert disk.calls[-1] == "close"


def test_a_system_without_nameless_files_assumes_the_worst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "os", SimpleNamespace())
    assert module._measured_granule_ns(1, "d") == COARSE_NS


def test_a_real_probe_leaves_nothing_behind(tmp_path: Path, open_fds: Callable[[], int]) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"")
    os.utime(tmp_path, ns=(SECOND_NS, SECOND_NS))
    before, fds = tmp_path.stat(), open_fds()
    found = module._measured_granule_ns(before.st_dev, str(tmp_path))
    assert found in (0, TICK_NS, COARSE_NS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.jsonl"]
    after = tmp_path.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert open_fds() == fds


def test_a_directory_that_is_not_there_or_not_ours(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    assert module._measured_granule_ns(device, str(tmp_path / "absent")) == COARSE_NS
    file = tmp_path / "file"
    file.write_bytes(b"kept")
    assert module._measured_granule_ns(device, str(file)) == COARSE_NS
    assert file.read_bytes() == b"kept"
    # of a file system that lets nobody write
    if os.path.isdir("/proc/self"):
        assert module._measured_granule_ns(os.stat("/proc").st_dev, "/proc/self") == COARSE_NS


def test_a_read_only_directory(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    directory.chmod(0o500)
    try:
        if os.access(directory, os.W_OK):
            pytest.skip("whoever runs this may write everywhere")
        assert module._measured_granule_ns(directory.stat().st_dev, str(directory)) == COARSE_NS
    finally:
        directory.chmod(0o700)

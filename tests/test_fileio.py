"""Opening never blocks and never changes a thing; a stamp notices every way to change a file."""

from __future__ import annotations

import builtins
import gc
import io
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmapstore import fileio
from mmapstore.errors import NotATranscriptError
from mmapstore.fileio import Descriptor, on_remote_filesystem, open_regular
from mmapstore.stamp import stamp_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "t.jsonl"
    made.write_bytes(b"0123456789")
    return made


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# -- opening --------------------------------------------------------------------------


def test_a_regular_file_is_opened_for_reading_alone(path: Path) -> None:
    descriptor = open_regular(str(path))
    assert descriptor.path == str(path)
    assert not os.get_inheritable(descriptor.fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(descriptor.fd, b"x")


def test_opening_leaves_the_file_alone(
    path: Path, unchanged: Callable[[Path], Any], open_fds: Callable[[], int]
) -> None:
    gc.collect()
    before = open_fds()
    with unchanged(path):
        descriptor = open_regular(str(path))
        descriptor.read(0, 10)
        descriptor.stamp()
    del descriptor
    gc.collect()
    assert open_fds() == before


def test_a_link_leads_to_its_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    assert open_regular(str(link)).stamp() == open_regular(str(path)).stamp()


def fifo(directory: Path) -> Path:
    made = directory / "fifo"
    os.mkfifo(made)
    return made


@pytest.fixture
def a_socket() -> Iterator[Path]:
    # a path short enough for the name of a socket, wherever the tests keep their files
    with (
        tempfile.TemporaryDirectory(prefix="s") as directory,
        socket.socket(socket.AF_UNIX) as sock,
    ):
        made = Path(directory) / "s"
        try:
            sock.bind(str(made))
        except OSError as error:  # the name is too long here
            pytest.skip(str(error))
        yield made


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotATranscriptError, match="a directory"):
        open_regular(str(tmp_path))


def test_a_fifo_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotATranscriptError, match="a FIFO"):
        open_regular(str(fifo(tmp_path)))


def test_a_device_is_refused() -> None:
    with pytest.raises(NotATranscriptError, match="a device"):
        open_regular("/dev/null")


def test_a_socket_is_refused(a_socket: Path) -> None:
    with pytest.raises(NotATranscriptError, match="a socket") as caught:
        open_regular(str(a_socket))
    assert caught.value.path == str(a_socket)
    assert caught.value.hint


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path, open_fds: Callable[[], int]) -> None:
    gc.collect()
    before = open_fds()
    for refused in (tmp_path, fifo(tmp_path), Path("/dev/null")):
        with pytest.raises(NotATranscriptError):
            open_regular(str(refused))
    gc.collect()
    assert open_fds() == before


def test_errors_of_the_system_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        open_regular(str(tmp_path / "none"))
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        open_regular(str(Path(__file__) / "x"))
    with pytest.raises(OSError, match="File name too long"):
        open_regular(str(tmp_path / ("x" * 300)))
    link = tmp_path / "loop"
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(str(link))


# -- the descriptor -------------------------------------------------------------------


def test_a_descriptor_is_closed_when_its_last_holder_lets_go(path: Path) -> None:
    descriptor = open_regular(str(path))
    other = descriptor
    fd = descriptor.fd
    del descriptor
    gc.collect()
    assert is_open(fd)
    del other
    gc.collect()
    assert not is_open(fd)


def test_reading_ranges(path: Path) -> None:
    descriptor = open_regular(str(path))
    assert descriptor.read(0, 10) == b"0123456789"
    assert descriptor.read(3, 5) == b"34"
    assert descriptor.read(5, 5) == descriptor.read(6, 5) == b""
    # fewer where the file ends first
    assert descriptor.read(8, 100) == b"89"
    assert descriptor.read(10, 20) == descriptor.read(50, 60) == b""
    os.truncate(path, 4)
    assert descriptor.read(0, 10) == b"0123"


@pytest.mark.parametrize("most", [1, 3, 4, 9, 10])
def test_short_reads_are_continued(path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(fileio.os, "pread", lambda fd, n, at: pread(fd, min(n, most), at))
    descriptor = open_regular(str(path))
    assert descriptor.read(0, 10) == b"0123456789"
    assert descriptor.read(2, 9) == b"2345678"
    assert descriptor.read(2, 99) == b"23456789"


def test_the_file_is_read_that_was_opened(path: Path) -> None:
    descriptor = open_regular(str(path))
    stamp = descriptor.stamp()
    new = path.with_suffix(".new")
    new.write_bytes(b"other")
    os.replace(new, path)
    assert descriptor.read(0, 10) == b"0123456789"
    # its inode is still taken: what is at the path now has another
    assert not open_regular(str(path)).stamp().same_file(stamp)
    assert descriptor.stamp().same_file(stamp)


# -- the stamp ------------------------------------------------------------------------


def test_the_stamps_of_an_open_file_and_of_its_path_are_equal(path: Path) -> None:
    descriptor = open_regular(str(path))
    status = path.stat()
    stamp = descriptor.stamp()
    assert stamp == stamp_of(status, stamp.inode_generation) == descriptor.stamp()
    assert stamp[:5] == (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def shrink(path: Path) -> None:
    os.truncate(path, 3)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def restore_mtime_after_an_edit(path: Path) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"X")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [grow, shrink, touch, restore_mtime_after_an_edit])
def test_a_stamp_notices(path: Path, change: Callable[[Path], None]) -> None:
    # a change time that no clock can give again, so that its grain does not decide
    os.utime(path, ns=(10**9, 10**9))
    descriptor = open_regular(str(path))
    before = descriptor.stamp()
    change(path)
    after = descriptor.stamp()
    if change is restore_mtime_after_an_edit:
        assert after.mtime_ns == before.mtime_ns
        assert after.ctime_ns >= before.ctime_ns
    else:
        assert after != before
    assert after.same_file(before)
    assert stamp_of(path.stat(), before.inode_generation) == after


@pytest.mark.parametrize(
    "field", ["device", "inode", "inode_generation", "nbytes", "mtime_ns", "ctime_ns"]
)
def test_every_field_of_a_stamp_counts(path: Path, field: str) -> None:
    stamp = stamp_of(path.stat())
    other = stamp._replace(**{field: getattr(stamp, field) + 1})
    assert other != stamp
    assert other.same_file(stamp) == (field not in ("device", "inode", "inode_generation"))


# -- the file system ------------------------------------------------------------------

MOUNTS = """\
22 28 0:21 / /proc rw,nosuid shared:13 - proc proc rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 28 0:40 / /net rw shared:5 master:2 - nfs4 server:/ rw
32 28 0:41 / /mnt/with\\040space rw - fuse.sshfs host: rw
33 28 0:42 / /mnt/a\\040-\\040b rw - tmpfs tmpfs rw
34 28 0:43 / /win rw - cifs //host/share rw
35 28 0:44 / /broken rw
"""


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    opened = builtins.open

    def fake(file: Any, *args: Any, **kwargs: Any) -> Any:
        return (
            io.StringIO(MOUNTS) if file == "/proc/self/mountinfo" else opened(file, *args, **kwargs)
        )

    monkeypatch.setattr(fileio, "open", fake, raising=False)
    monkeypatch.setattr(fileio.sys, "platform", "linux")
    on_remote_filesystem.cache_clear()
    yield monkeypatch
    on_remote_filesystem.cache_clear()


@pytest.mark.parametrize(
    ("major", "minor", "remote"),
    [
        (8, 1, False),
        (0, 40, True),
        (0, 41, True),
        (0, 42, False),
        (0, 43, True),
        (0, 44, False),
        (0, 4, False),
        (9, 99, False),
    ],
)
def test_network_and_user_space_file_systems_are_remote(
    mounts: pytest.MonkeyPatch, major: int, minor: int, remote: bool
) -> None:
    assert on_remote_filesystem(os.makedev(major, minor)) is remote


def test_without_a_mount_table_nothing_is_remote(mounts: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    mounts.setattr(fileio, "open", refuse, raising=False)
    assert on_remote_filesystem(os.makedev(0, 40)) is False


def test_where_there_is_no_mount_table_it_is_not_asked_for(mounts: pytest.MonkeyPatch) -> None:
    mounts.setattr(fileio.sys, "platform", "darwin")
    assert on_remote_filesystem(os.makedev(0, 40)) is False


def test_the_real_mount_table_is_readable(path: Path) -> None:
    assert on_remote_filesystem(path.stat().st_dev) in (True, False)


def test_a_descriptor_of_ones_own_is_closed_too(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    descriptor = Descriptor(fd, str(path))
    assert descriptor.read(0, 1) == b"0"
    del descriptor
    gc.collect()
    assert not is_open(fd)

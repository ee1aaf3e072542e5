"""What every test may ask for: a profile for Hypothesis, files to read, and watches over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine and in every run; "deep" is for looking for more.
settings.register_profile(
    "ci",
    max_examples=30,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("ci"), max_examples=1500, derandomize=False)
settings.load_profile(os.environ.get("MMAPSTORE_HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(params=["mmap", "pread"])
def access(request: pytest.FixtureRequest) -> str:
    """Both ways to the bytes; every answer must be the same."""
    return str(request.param)


#: bytes from which a file is removed as soon as its test is over
LARGE_NBYTES = 1 << 20


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that writes bytes to a file of its own directory."""

    def write_file(data: bytes, name: str = "t.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    yield write_file
    # a disk that has to write them behind the tests' back slows all of them down
    for path in tmp_path.iterdir():
        if path.is_file() and path.stat().st_size >= LARGE_NBYTES:
            path.unlink()


@pytest.fixture
def unchanged() -> Callable[[Path], object]:
    """Return a context manager that fails if a file's bytes, mode or times are not left alone."""

    @contextmanager
    def watch(path: Path) -> Iterator[None]:
        def facts() -> tuple[object, ...]:
            status = path.lstat()
            beside = sorted(entry.name for entry in path.parent.iterdir())
            return (
                path.read_bytes(),
                status.st_mode,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
                beside,
            )

        before = facts()
        yield
        assert facts() == before

    return watch


@pytest.fixture
def open_fds() -> Callable[[], int]:
    """Return a function that counts the open file descriptors of this process."""

    def count() -> int:
        for directory in ("/proc/self/fd", "/dev/fd"):
            if os.path.isdir(directory):
                return len(os.listdir(directory))
        pytest.skip("no directory lists the open descriptors here")

    return count


@pytest.fixture(autouse=True, scope="session")
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the caches of this run away from those of whoever runs it."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMAPSTORE_CACHE_DIR", str(directory))
        yield directory

"""Listing: the whole command over many sessions, the second time."""

import tempfile
from pathlib import Path

from asv_bench import measure, reopening

from . import common
from .common import Benchmark, Cold, track


class Listing(Cold):
    """A tenth of the promised sessions, so that a sample does not take a minute to set up."""

    def setup(self):
        self.scratch = tempfile.TemporaryDirectory()
        home = Path(self.scratch.name, "home")
        folder = home / ".claude" / "projects" / "project"
        folder.mkdir(parents=True)
        lines = common.files.path("records-small").read_bytes()[:100_000].splitlines(keepends=True)
        for number in range(common.effort.sessions // 10):
            (folder / f"{number:08d}.jsonl").write_bytes(lines[number % len(lines)])
        cache = Path(self.scratch.name, "cache")
        self.command = measure.command(["ls", "--json"], home=home, cache=cache)
        self.command()

    def teardown(self):
        self.scratch.cleanup()

    def time_command(self):
        self.command()


class Promises(Benchmark):
    track_listing = track(reopening.listing, "listing", large=True)

"""The dashboard: the results that are kept, as asv's site, which draws without a network.

    python -m asv_bench.dashboard [--results DIR] [--html DIR] [--repository DIR]

asv publishes from any directory of results and any repository; which ones is written for it
into a configuration of its own, so that the one beside this file stays that of measuring.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import history, offline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .offline import Source

HTML = history.BENCH / ".asv" / "html"
_CONFIGURATION = history.BENCH / "asv.conf.json"


def configuration(results: Path, html: Path, repository: Path) -> dict[str, Any]:
    """Return the configuration to publish with: that of measuring, at other places."""
    own: dict[str, Any] = json.loads(_CONFIGURATION.read_text())
    places = {"results_dir": results, "html_dir": html, "repo": repository}
    return own | {name: str(path.resolve()) for name, path in places.items()}


def publish(results: Path, html: Path, repository: Path) -> None:
    """Let asv make its site of some results.

    Raises
    ------
    subprocess.CalledProcessError
        asv could not; what it says has gone to stderr.
    """
    html.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "asv.conf.json")
        path.write_text(json.dumps(configuration(results, html, repository)))
        command = [sys.executable, "-m", "asv", "publish", "--no-pull", "--config", str(path)]
        done = subprocess.run(
            command, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        raise subprocess.CalledProcessError(done.returncode, command)


def dashboard(
    results: Path,
    html: Path,
    repository: Path,
    modules: Path,
    sources: Mapping[str, Source] = offline.SOURCES,
) -> None:
    """Make a site of some results that loads nothing from elsewhere."""
    publish(results, html, repository)
    offline.localize(html, modules, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish, and return 1 where the files of the page cannot be had or are others."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.dashboard", description=__doc__)
    parser.add_argument("--results", type=Path, default=history.KEPT)
    parser.add_argument("--html", type=Path, default=HTML)
    parser.add_argument("--repository", type=Path, default=history.BENCH.parent)
    chosen = parser.parse_args(arguments)
    try:
        modules = offline.packages(offline.cache_directory())
        dashboard(chosen.results, chosen.html, chosen.repository, modules)
    except (offline.UnavailableError, offline.WrongFileError) as error:
        print(f"no dashboard: {error}", file=sys.stderr)
        return 1
    print(f"{chosen.html / 'index.html'}: serve the directory, it does not draw from file://")
    return 0


if __name__ == "__main__":
    sys.exit(main())

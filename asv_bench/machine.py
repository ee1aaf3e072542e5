"""The machine's facts: what a figure has to be read with, and nothing that names a machine.

Model, counts and versions only: no name of a host, no path, no time. What cannot be
found out is left out.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: what every figure of this library stands on
LIBRARIES = ("mmapstore", "numpy", "orjson")


def facts(libraries: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Return the facts by their names, in the order in which they are shown.

    Parameters
    ----------
    libraries : iterable of str
        Distributions whose versions count; one that is not installed is left out.
    """
    found = {
        "processor": _processor(),
        "processors": str(os.cpu_count() or ""),
        "memory": _memory(),
        "kernel": _kernel(platform.system(), platform.release()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for name in libraries:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {name: value for name, value in found.items() if value}


def sentence(found: Mapping[str, str]) -> str:
    """Return facts as one line."""
    parts = []
    for name, value in found.items():
        if name == "processors":
            parts.append(f"{value} processors" if value != "1" else "1 processor")
        elif name == "memory":
            parts.append(f"{value} of memory")
        elif name in ("processor", "kernel", "python"):
            parts.append(value)
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for row in text.splitlines():
        name, _, value = row.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.machine()


def _memory() -> str:
    try:
        nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return ""
    return f"{nbytes / (1 << 30):.0f} GiB"


def _kernel(system: str, release: str) -> str:
    """Return the system and the family of its kernel: what is behind that may name a machine."""
    return " ".join([system, *[".".join(release.split(".")[:2])] * bool(release)])

"""Benchmarks for asv: times for the graphs, ratios for the promises.

asv imports this directory by itself, so the rest of the harness is reached through the
checkout, which is appended to the path and never put before the library that asv installed.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)

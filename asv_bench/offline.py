"""A published site that draws without a network: what its page loads becomes part of it.

asv's page names each script and style by an address in a content network and by the digest
of its bytes. The bytes come from npm packages instead, and whatever has not that digest is
refused, so a site is either what asv means it to be or there is none. Nothing of theirs is
kept in the repository: packages lie in a cache directory of the user.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: what makes flot's sources, of which no package has the minified form, into what is served
MINIFIER = ("uglify-js", "2.4.15")

_NPM_TIMEOUT_S = 300
_MINIFY = "process.stdout.write(require(process.argv[1]).minify(process.argv[2]).code)"
_TAG = re.compile(r"<(?:script|link)\b[^>]*>")
_ATTRIBUTE = re.compile(r'\s([a-z]+)="([^"]*)"')
_CSS_REFERENCE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
_ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
_LOADED_RELATIONS = frozenset({"stylesheet", "icon", "preload", "modulepreload", "manifest"})


class UnavailableError(RuntimeError):
    """Is raised with the reason why the packages cannot be had here."""


class WrongFileError(RuntimeError):
    """Is raised where a file is not the one that the page asks for."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the bytes of one file of the page come from.

    Attributes
    ----------
    package, version, path : str
        The npm package, and the file in it.
    minified : bool
        Whether the file is still to be minified.
    integrity : str or None
        The digest of another version that stands in, where no package has the page's own.
    beside : tuple of tuple of str
        Files that a style loads: path in the package, digest. A page gives none for them.
    """

    package: str
    version: str
    path: str
    minified: bool = False
    integrity: str | None = None
    beside: tuple[tuple[str, str], ...] = ()


def _flot(name: str) -> Source:
    return Source("flot", "0.8.3", name, minified=True)


_FONT = "dist/fonts/glyphicons-halflings-regular"

#: by the end of the address in the page
SOURCES: Mapping[str, Source] = {
    "jquery-3.3.1.min.js": Source("jquery", "3.3.1", "dist/jquery.min.js"),
    "flot/0.8.3/jquery.flot.min.js": _flot("jquery.flot.js"),
    "flot/0.8.3/jquery.flot.time.min.js": _flot("jquery.flot.time.js"),
    "flot/0.8.3/jquery.flot.selection.min.js": _flot("jquery.flot.selection.js"),
    "flot/0.8.3/jquery.flot.categories.min.js": _flot("jquery.flot.categories.js"),
    "flot-orderbars@1.0.0/js/jquery.flot.orderBars.js": Source(
        "flot-orderbars", "1.0.0", "js/jquery.flot.orderBars.js"
    ),
    # 1.1.3 is the first version that was made a package; asv uses what both have
    "stupidtable/1.0.1/stupidtable.min.js": Source(
        "stupid-table-plugin",
        "1.1.3",
        "stupidtable.min.js",
        integrity="sha512-T2dqwCYHuN8dbqIgYhwdGm+VtfUBecC06wUrciItlLJsteoe07db34cbmp/GZGIrC5/q1xy1"
        "V96BuvPiMXnedA==",
    ),
    "blueimp-md5/2.19.0/js/md5.min.js": Source("blueimp-md5", "2.19.0", "js/md5.min.js"),
    "bootstrap@3.1.1/dist/js/bootstrap.min.js": Source(
        "bootstrap", "3.1.1", "dist/js/bootstrap.min.js"
    ),
    "bootstrap@3.1.1/dist/css/bootstrap.min.css": Source(
        "bootstrap",
        "3.1.1",
        "dist/css/bootstrap.min.css",
        beside=(
            (f"{_FONT}.eot", "sha256-9JXzTk8XfPARWvmVu7/rP8q8iFAodudvxRpKtDm8hDE="),
            (f"{_FONT}.svg", "sha256-0WjVCojHMLTmgw3A2iorUdrkZYp32WGZQ8J7js/BnRo="),
            (f"{_FONT}.ttf", "sha256-vRjv0+/XD+yK0JYRogzb+ZRAssHUAIXCm+A2+JHWU1g="),
            (f"{_FONT}.woff", "sha256-/Jadwcb/Uxq882gIncuvV3UTOwYm/1a1IwGgWfwPnh4="),
        ),
    ),
}


def integrity(data: bytes, algorithm: str = "sha256") -> str:
    """Return the digest of some bytes as a page gives it."""
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def checked(data: bytes, wanted: str, name: str) -> bytes:
    """Return the bytes of a file if they have the digest that is wanted.

    Raises
    ------
    WrongFileError
        They have another.
    """
    found = integrity(data, wanted.partition("-")[0])
    if found != wanted:
        message = f"{name}: the file has the digest {found}, the page asks for {wanted}"
        raise WrongFileError(message)
    return data


def cache_directory() -> Path:
    """Return where packages are kept, below XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmapstore-dashboard"


def packages(cache: Path, sources: Mapping[str, Source] = SOURCES) -> Path:
    """Return a ``node_modules`` with all that the page needs; npm is asked where there is none.

    Raises
    ------
    UnavailableError
        There is no npm or node, or it could not get them.
    """
    named = {(source.package, source.version) for source in sources.values()} | {MINIFIER}
    specs = sorted(f"{name}@{version}" for name, version in named)
    kept = cache / hashlib.sha256(" ".join(specs).encode()).hexdigest()[:12]
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            # the minifier finds its own needs by the name of the directory
            made = Path(scratch) / "made"
            made.mkdir()
            _install(specs, made)
            try:
                made.rename(kept)
            except OSError:
                # another process was faster
                if not kept.exists():
                    raise
    return kept / "node_modules"


def _install(specs: list[str], directory: Path) -> None:
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-package-lock"]
    _run("npm", "install", "--prefix", str(directory), *options, *specs)


def _run(*command: str) -> bytes:
    if not shutil.which(command[0]):
        message = f"no {command[0]} on the path"
        raise UnavailableError(message)
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_NPM_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        message = f"{command[0]} took longer than {_NPM_TIMEOUT_S} seconds"
        raise UnavailableError(message) from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        message = f"{command[0]}: {said[0] if said else f'exit code {error.returncode}'}"
        raise UnavailableError(message) from error
    return done.stdout


def content(source: Source, modules: Path) -> bytes:
    """Return the bytes of a file of the page, from the packages."""
    path = modules / source.package / source.path
    if source.minified:
        minifier = modules / MINIFIER[0]
        return _run("node", "-e", _MINIFY, str(minifier.resolve()), str(path.resolve()))
    return path.read_bytes()


def localize(html: Path, modules: Path, sources: Mapping[str, Source] = SOURCES) -> None:
    """Make a published site independent of content networks, in place.

    Raises
    ------
    WrongFileError
        A file has not the digest that the page gives for it, or the page loads, from
        somewhere else, a file that is not among the sources.
    """
    index = html / "index.html"

    def local(tag: re.Match[str]) -> str:
        attributes = dict(_ATTRIBUTE.findall(tag[0]))
        address = _loaded(attributes)
        if address is None or not _ELSEWHERE.match(address):
            return tag[0]
        name, source = _source(address, sources)
        wanted = source.integrity or attributes.get("integrity")
        if wanted is None:
            message = f"{address}: the page gives no digest"
            raise WrongFileError(message)
        place = Path("vendor", source.package, source.path)
        _write(html / place, checked(content(source, modules), wanted, name))
        for path, digest in source.beside:
            data = (modules / source.package / path).read_bytes()
            _write(html / "vendor" / source.package / path, checked(data, digest, path))
        text = tag[0].replace(address, place.as_posix())
        text = text.replace(attributes.get("integrity") or wanted, wanted)
        return re.sub(r'\s(?:crossorigin|referrerpolicy)="[^"]*"', "", text)

    page = _TAG.sub(local, index.read_text(encoding="utf-8"))
    index.write_text(page, encoding="utf-8")
    left = sorted(elsewhere(html))
    if left:
        message = f"the site would still load {', '.join(left)}"
        raise WrongFileError(message)


def _source(address: str, sources: Mapping[str, Source]) -> tuple[str, Source]:
    for name, source in sources.items():
        if address.endswith(f"/{name}"):
            return name, source
    message = f"{address}: no package is known that has it"
    raise WrongFileError(message)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def elsewhere(html: Path) -> Iterator[str]:
    """Yield what pages and styles below a directory would load from another host."""
    for _, reference in references(html):
        if _ELSEWHERE.match(reference):
            yield reference


def references(html: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file below a directory that loads something, and what it loads."""
    for path in html.rglob("*.html"):
        reader = _Loaded()
        reader.feed(path.read_text(encoding="utf-8"))
        yield from ((path, found) for found in reader.found)
    for path in html.rglob("*.css"):
        for match in _CSS_REFERENCE.finditer(path.read_text(encoding="utf-8")):
            yield path, match[1] or match[2]


class _Loaded(HTMLParser):
    """Collects what pages load; a link that is only followed is none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if address := _loaded({name: value or "" for name, value in attrs}):
            self.found.append(address)


def _loaded(attributes: Mapping[str, str]) -> str | None:
    """Return what a browser loads for a tag by itself, if anything."""
    if "src" in attributes:
        return attributes["src"]
    relations = attributes.get("rel", "").lower().split()
    return attributes.get("href") if _LOADED_RELATIONS.intersection(relations) else None

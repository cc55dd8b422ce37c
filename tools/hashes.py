"""Write constraints-hashes.txt: constraints.txt with the SHA-256 sums of all files of each version.

Run `python tools/hashes.py INDEX` after every change of constraints.txt, where INDEX is the address of a package index
(its `simple` page).
"""

from __future__ import annotations

import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = """# constraints.txt with the SHA-256 sums of all files of each version, written by tools/hashes.py.
# pip install --require-hashes --no-deps -r constraints-hashes.txt && pip install --no-deps .
"""


def pins() -> list[tuple[str, str]]:
    """Names and versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [(name, version) for name, _, version in (line.partition("==") for line in lines) if version]


def entry(index: str, name: str, version: str) -> str:
    """One requirement with the hashes of its files."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{index.rstrip('/')}/{plain}/", timeout=60) as answer:
        links = re.findall(r"/([^/\"#]+)#sha256=([0-9a-f]{64})", answer.read().decode())
    stem = rf"{re.sub(r'[-_.]+', '[-_.]+', name)}-{re.escape(version)}(-|\.tar|\.zip)"
    hashes = sorted({digest for file, digest in links if re.match(stem, file, re.IGNORECASE)})
    if not hashes:
        raise SystemExit(f"{name}=={version} has no file in the index")
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in hashes)])


def main() -> None:
    """Ask the index about every pin."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda pin: entry(sys.argv[1], *pin), pins()))
    (ROOT / "constraints-hashes.txt").write_text(HEADER + "\n".join(entries) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""Compiled kernels on disk: loaded while all sources are the same, recompiled when any of them changes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import relatum
from relatum.kernels.caching import source_digest

PART = """
from numba import njit

@njit
def part(x):
    return x + 1
"""
KERNEL = """
from kernelset.part import part
from relatum.kernels.caching import cached_njit

@cached_njit("int64(int64)")
def first(x):
    return part(x)

@cached_njit()
def second(x):
    return 10 * part(x)
"""
RUN = """
from kernelset.kernel import first, second
result = first(1), second(1)
hits = sum(sum(kernel.stats.cache_hits.values()) for kernel in (first, second))
misses = sum(sum(kernel.stats.cache_misses.values()) for kernel in (first, second))
print(*result, hits, misses, first.stats.cache_path)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a small package of kernels, compiled from two files."""
    package = tmp_path / "site" / "kernelset"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "part.py").write_text(PART)
    (package / "kernel.py").write_text(KERNEL)
    return package.parent


def run(site: Path, code: str = RUN, **environment: str) -> tuple[list[int], Path, str]:
    """The results, cache hits and misses; the cache folder; and the standard error of a new process."""
    path = os.pathsep.join([str(site), str(Path(relatum.__file__).parents[1])])
    env = {**os.environ, "NUMBA_CACHE_DIR": "", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    *numbers, folder = done.stdout.split(maxsplit=4)
    return [int(number) for number in numbers], Path(folder.strip()), done.stderr


def copied(site: Path, place: Path) -> Path:
    shutil.copytree(site, place, ignore=shutil.ignore_patterns("*.pyc"))
    return place


def test_an_edited_part_is_recompiled_and_an_unchanged_copy_is_not(site: Path, tmp_path: Path) -> None:
    numbers, folder, messages = run(site)
    assert numbers == [2, 20, 0, 2]
    assert folder == site / "kernelset" / "__pycache__"
    assert messages.count("compiling kernels") == 1

    unchanged = copied(site, tmp_path / "unchanged")
    numbers, _, messages = run(unchanged)
    assert numbers == [2, 20, 2, 0]
    assert messages == ""

    edited = copied(site, tmp_path / "edited")
    (edited / "kernelset" / "part.py").write_text(PART.replace("x + 1", "x + 2"))
    assert run(edited)[0] == [3, 30, 0, 2]
    assert run(edited)[0] == [3, 30, 2, 0]


def test_files_of_other_digests_are_deleted_and_nothing_else(site: Path, tmp_path: Path) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    counts = set()
    for increment in range(1, 4):
        # A line is added too: numba puts the line number into its file names.
        (site / "kernelset" / "part.py").write_text("#\n" * increment + PART.replace("x + 1", f"x + {increment}"))
        numbers, folder, _ = run(site, **cache)
        assert numbers == [1 + increment, 10 + 10 * increment, 0, 2]
        assert tmp_path / "cache" in folder.parents
        (folder / "other.nbi").touch()  # of somebody else's function
        counts.add(len(list(folder.iterdir())))
    assert counts == {2 * 2 + 1}  # an index and the code of each kernel


def test_a_read_only_package_uses_the_users_cache_folder(site: Path, tmp_path: Path) -> None:
    (site / "kernelset" / "__pycache__").write_text("")  # a file where the folder would be: read-only even for root
    places = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home" / "cache")}
    numbers, folder, _ = run(site, **places)
    assert numbers == [2, 20, 0, 2]
    assert tmp_path / "home" in folder.parents
    assert run(site, **places)[0] == [2, 20, 2, 0]


def test_kernels_compile_where_nothing_can_be_written(site: Path, tmp_path: Path) -> None:
    (site / "kernelset" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    blocked = str(tmp_path / "home" / "x")
    code = "from kernelset.kernel import first, second; print(first(1), second(1), 0, 0, '-')"
    numbers, _, messages = run(site, code, HOME=blocked, XDG_CACHE_HOME=blocked)
    assert numbers[:2] == [2, 20]
    assert "set NUMBA_CACHE_DIR" in messages


def emptied(content: bytes) -> bytes:
    return b""  # as after a power failure


def shortened(content: bytes) -> bytes:
    return content[: len(content) // 2]


def changed(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(("ending", "damage"), [("nbi", emptied), ("nbc", shortened), ("nbc", changed)])
def test_damaged_files_are_replaced(site: Path, ending: str, damage: Callable[[bytes], bytes]) -> None:
    folder = run(site)[1]
    for file in folder.glob(f"*.{ending}"):
        file.write_bytes(damage(file.read_bytes()))
    assert run(site)[0] == [2, 20, 0, 2]
    assert run(site)[0] == [2, 20, 2, 0]


def test_kernels_work_where_their_code_cannot_be_kept(site: Path) -> None:
    full = "import errno, os; from numba.core.caching import IndexDataCacheFile as F\n"
    full += "def save(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\nF.save = save\n"
    numbers, folder, messages = run(site, full + RUN)
    assert numbers == [2, 20, 0, 2]
    assert f"compiled kernels could not be kept in {folder}: No space left on device." in messages


def test_each_type_of_cpu_has_its_own_code(site: Path) -> None:
    assert run(site)[0][2:] == [0, 2]
    assert run(site, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")[0][2:] == [0, 2]
    assert run(site)[0][2:] == [2, 0]


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("a", "same", "content", "name", "more")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "kernel.py").write_text("1")
        (folder / "notes.txt").write_text(folder.name)
    (folders["content"] / "kernel.py").write_text("2")
    (folders["name"] / "kernel.py").rename(folders["name"] / "other.py")
    (folders["more"] / "other.py").write_text("")
    digests = {name: source_digest(folder) for name, folder in folders.items()}
    assert digests["a"] == digests["same"]
    assert len(set(digests.values())) == 4


COUNT_ROWS = """
from relatum.kernels.views import make_rows
stats = make_rows.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), 0, 0, stats.cache_path)
"""


@pytest.mark.slow
def test_an_edited_part_of_the_views_is_recompiled(tmp_path: Path) -> None:
    """The same with the real package: the views are compiled from several of its files."""
    package = Path(relatum.__file__).parent
    site = tmp_path / "site"
    shutil.copytree(package, site / "relatum", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(site)}
    assert run(site, COUNT_ROWS, **environment)[0][:2] == [0, 1]
    assert run(site, COUNT_ROWS, **environment)[0][:2] == [1, 0]
    with (site / "relatum" / "kernels" / "resampling.py").open("a") as file:
        file.write("# edited\n")
    assert run(site, COUNT_ROWS, **environment)[0][:2] == [0, 1]

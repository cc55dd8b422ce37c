from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from python2 import python2_pickle

from relatum.data import pickles
from relatum.errors import InputError

ARRAY = np.arange(24, dtype=np.uint8).reshape(4, 6)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class Evil:
    """Pickles to a call of whatever it is given."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def test_python2_form_is_what_numpy_itself_reads(tmp_path: Path) -> None:
    content = {b"data": ARRAY, b"labels": [1, 2, 300], b"name": b"x" * 300}
    raw = python2_pickle(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy.core has moved, as newer versions of numpy remark
        other = pickle.loads(raw, encoding="bytes")
    assert np.array_equal(other[b"data"], ARRAY)
    assert other[b"labels"] == [1, 2, 300]
    ours = pickles.read(write(tmp_path / "f", raw))
    assert np.array_equal(ours["data"], ARRAY)
    assert ours["labels"] == [1, 2, 300]
    assert ours["name"] == b"x" * 300


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_pickled_by_todays_numpy(tmp_path: Path, protocol: int) -> None:
    ours = pickles.read(write(tmp_path / "f", pickle.dumps({"data": ARRAY, "f": np.asfortranarray(ARRAY)}, protocol)))
    assert np.array_equal(ours["data"], ARRAY)
    assert np.array_equal(ours["f"], ARRAY)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_both_homes_of_reconstruct(tmp_path: Path, module: bytes) -> None:
    raw = python2_pickle({b"data": ARRAY}).replace(b"numpy.core.multiarray", module)
    assert np.array_equal(pickles.read(write(tmp_path / "f", raw))["data"], ARRAY)


@pytest.mark.parametrize("protocol", range(5))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "executed"
    calls = [
        Evil(os.system, f"touch {mark}"),
        Evil(os.mkdir, str(mark)),
        Evil(subprocess.call, ["touch", str(mark)]),
        Evil(eval, f"open({str(mark)!r}, 'w')"),
        Evil(getattr, "text", "upper"),
        Evil(np.save, str(mark), ARRAY),
    ]
    for i, evil in enumerate(calls):
        file = write(tmp_path / f"evil{i}", pickle.dumps({b"data": evil, b"labels": []}, protocol))
        with pytest.raises(InputError) as caught:
            pickles.read(file)
        assert "Nothing was run" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_a_name_reached_through_an_allowed_module_is_refused(tmp_path: Path) -> None:
    for name in (
        b"numpy\nload\n",
        b"numpy\nndarray.tofile\n",
        b"numpy.core.multiarray\nfromfile\n",
        b"builtins\neval\n",
    ):
        with pytest.raises(InputError, match="Nothing was run"):
            pickles.read(write(tmp_path / "f", b"\x80\x02c" + name + b"."))
    with pytest.raises(InputError, match="Nothing was run"):  # the same by protocol 4's other opcode
        pickles.read(write(tmp_path / "f", b"\x80\x04\x8c\x02os\x8c\x06system\x93."))


def test_tampering_with_the_stand_ins_reaches_no_other_file(tmp_path: Path) -> None:
    # BUILD with a pair sets attributes on its target, here on the class that stands for numpy's ndarray
    tamper = b"\x80\x02cnumpy\nndarray\nN}U\x08__init__K\x01s\x86b."
    with pytest.raises(InputError):
        pickles.read(write(tmp_path / "bad", tamper))
    good = pickles.read(write(tmp_path / "good", python2_pickle({b"data": ARRAY})))
    assert np.array_equal(good["data"], ARRAY)


@pytest.mark.parametrize(
    "dtype",
    [b"U\x02O8", b"U\x02u2", b"U\x02i1", b"N", b"U\x0a(1000000,)", b"K\x01"],
    ids=["object", "u2", "i1", "none", "sub", "int"],
)
def test_arrays_of_other_types_are_refused(tmp_path: Path, dtype: bytes) -> None:
    raw = python2_pickle({b"data": ARRAY}).replace(b"U\x02u1", dtype)
    with pytest.raises(InputError, match="uint8"):
        pickles.read(write(tmp_path / "f", raw))


def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    raw = python2_pickle({b"data": ARRAY})
    for old, new in (
        (b"J\x06\0\0\0", b"J\x07\0\0\0"),
        (b"J\x04\0\0\0", b"J\xff\xff\xff\xff"),
        (b"J\x04\0\0\0", b"U\x01x"),
    ):
        assert old in raw
        with pytest.raises(InputError):
            pickles.read(write(tmp_path / "f", raw.replace(old, new)))


def test_an_array_without_its_state_is_refused(tmp_path: Path) -> None:
    bare = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tU\x01btR"
    with pytest.raises(InputError, match="not complete"):
        pickles.read(write(tmp_path / "f", b"\x80\x02}U\x04data" + bare + b"s."))


def test_truncated_at_every_place(tmp_path: Path) -> None:
    raw = python2_pickle({b"data": ARRAY, b"labels": [1, 2]})
    for length in range(len(raw)):
        with pytest.raises(InputError):
            pickles.read(write(tmp_path / "f", raw[:length]))


def test_noise_gives_one_line_and_no_other_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw = python2_pickle({b"data": ARRAY, b"labels": [1, 2]})
    for _ in range(300):
        noisy = bytearray(raw)
        for place in rng.integers(0, len(raw), 3):
            noisy[place] = rng.integers(0, 256)
        try:
            result = pickles.read(write(tmp_path / "f", bytes(noisy)))
        except InputError as error:
            result = str(error)
        assert isinstance(result, dict) or "\n" not in result


def test_not_a_dictionary_missing_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a dictionary"):
        pickles.read(write(tmp_path / "f", pickle.dumps([1])))
    with pytest.raises(InputError, match="missing"):
        pickles.read(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot be read"):
        pickles.read(tmp_path)


def test_reading_does_not_import_what_a_file_names(tmp_path: Path) -> None:
    assert "this" not in sys.modules
    with pytest.raises(InputError):
        pickles.read(write(tmp_path / "f", b"cthis\ns\n."))
    assert "this" not in sys.modules


BOMBS = {
    "memo": b"\x80\x02}r\xff\xff\xff\x7f.",  # nine bytes that took 4.6 GiB
    "length": b"\x80\x02T\xff\xff\xff\x7f",
    "long length": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f",
    "negative length": b"\x80\x02T\xff\xff\xff\xff.",
    # 2⁴⁰ nodes in 200 bytes, hashed as a key of a dictionary
    "nested tuples": b"\x80\x02}" + b"K\x01" + b"q\x00h\x00\x86" * 40 + b"K\x01s.",
    "nested lists": b"\x80\x02" + b"]" * 600_000 + b"a" * 599_999 + b".",
    "instructions": b"\x80\x02" + b"N" * 1_000_001 + b".",
    "number": b"\x80\x02}U\x04data\x8a\xff" + b"\x7f" * 255 + b"s.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_take_neither_memory_nor_time(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "f", BOMBS[name])
    code = (
        "import resource, sys, time; from pathlib import Path; from relatum.data import pickles\n"
        "from relatum.errors import InputError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)\n"
        "try: pickles.read(Path(sys.argv[1]))\n"
        "except InputError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "MemoryError" not in done.stdout
    assert len(done.stdout.splitlines()) == (name not in ("memo", "number"))


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        pickles.read(tmp_path / "pipe")

"""The defects of runs that a review found, each through the command line or the public Python API.

Each fails on the commit before the repairs (ce32afb), as the table in docs/defects.md says. To repeat that:
`RELATUM_PYTHON=/path/to/that/version/.venv/bin/python pytest -m slow tests/defects`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import blackbox
import numpy as np
import pytest
import torch
from blackbox import SHORT, copy, flip, killed_run, patched, relatum, run
from PIL import Image
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.slow
EVIL = "from pathlib import Path\ndef make():\n    Path('ran').write_text('code of a file ran')\n    raise ValueError\n"


def weights(folder: Path) -> bytes:
    return (folder / "backbone.safetensors").read_bytes()


def resume(folder: Path, *flags: object) -> blackbox.Done:
    return relatum("pretrain", "--out", folder, "--resume", *flags)


def same_or_clear(folder: Path, whole: Path, done: blackbox.Done, name: str) -> None:
    """A damaged file: refused in a line that names it, or the same weights and a warning."""
    if done.code:
        done.check_clear()
        assert name in done.said
    else:
        assert weights(folder) == weights(whole), done.said
        assert name in done.said


# ----------------------------------------------------------------------------------------------------- 1: code in files


def test_01_a_weights_file_names_code(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    metadata = {"backbone": "evil:make", "num_features": 4, "mean": [0.5] * 3, "std": [0.25] * 3, "side": 32}
    save_file({"x": torch.zeros(1)}, tmp_path / "w.safetensors", {"relatum": json.dumps(metadata)})
    done = relatum("embed", "w.safetensors", photos, "--out", "z.npz", cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
    done.check_clear()


def test_01_a_recipe_names_code(killed: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    recipe = copy(killed, tmp_path / "run") / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('"conv4"', '"evil:make"'))
    done = relatum("pretrain", "--out", "run", "--resume", cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
    done.check_clear()


def test_01_the_working_directory_comes_last(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("from pathlib import Path\nPath('ran').write_text('')\nraise ImportError\n")
    code = "import sys; sys.path = [p for p in sys.path if p]"
    patched(code, "pretrain", "shapes", "--backbone", "nowhere:make", "--out", "run", cwd=tmp_path)
    done = patched(
        f"{code}\nimport sys, atexit; atexit.register(lambda: print('FIRST', sys.path[0]))",
        *("pretrain", "shapes", "--backbone", "nowhere:make", "--out", "run"),
        cwd=tmp_path,
    )
    assert f"FIRST {tmp_path}" not in done.said


# ------------------------------------------------------------------------------------- 2, 3, 13: what a run ends with


def test_02_a_supervised_run_on_the_kaggle_layout(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "pets" / "train", 8, ("cat", "dog")).parent
    (data / "test").mkdir()
    for i in range(4):
        Image.new("RGB", (32, 32), (i, 0, 0)).save(data / "test" / f"{i}.png")
    done = relatum("pretrain", data, "--out", tmp_path / "run", "--method", "supervised", *SHORT, "--views", 1)
    assert done.code == 0, done.said
    assert (tmp_path / "run" / "backbone.safetensors").exists()


def test_03_init_survives_a_kill_before_the_first_save(photos: Path, whole: Path, tmp_path: Path) -> None:
    flags = ("--init", whole, "--set", "train.lr=0.00001")
    assert relatum("pretrain", photos, "--out", tmp_path / "expected", *SHORT, *flags).code == 0
    folder = killed_run(photos, tmp_path / "run", *flags, "--set", "checkpoint.every_steps=1000", lines=0)
    for path in (folder / "checkpoints").glob("*") if (folder / "checkpoints").exists() else ():
        path.unlink()  # as a kill during the first save leaves it
    (folder / "checkpoints").mkdir(exist_ok=True)
    done = resume(folder)
    assert done.code == 0, done.said
    assert weights(folder) == weights(tmp_path / "expected")


def test_13_a_new_run_does_not_become_an_old_one(photos: Path, whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "run")
    (folder / "recipe.toml").unlink()
    (folder / "backbone.safetensors").unlink()
    done = relatum("pretrain", photos, "--out", folder, *SHORT, "--seed", 7)
    done.check_clear()
    assert not (folder / "backbone.safetensors").exists()


def test_13_overwriting_removes_the_recipe_last(photos: Path, whole: Path, tmp_path: Path) -> None:
    """A process that is killed at any removal: the recipe is there as long as checkpoints are."""
    folder = copy(whole, tmp_path / "run")
    code = (
        "import os, pathlib, shutil, sys\n"
        f"last = pathlib.Path({str(folder / 'checkpoints' / 'last.ckpt')!r})\n"
        f"recipe = {str(folder / 'recipe.toml')!r}\n"
        "def check(event, arguments):\n"
        "    if event in ('os.remove', 'os.unlink') and str(arguments[0]) == recipe and last.exists(): os._exit(77)\n"
        "sys.addaudithook(check)"
    )
    done = patched(code, "pretrain", photos, "--out", folder, *SHORT, "--overwrite", "--epochs", 1)
    assert done.code == 0, done.said


# ----------------------------------------------------------------------------------------------------- 4, 5, 11: data


def test_04_held_out_images_stay_held_out(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos", 8)
    done = relatum("pretrain", data, "--out", tmp_path / "run", *SHORT, "--val-fraction", 0.25)
    assert done.code == 0, done.said
    evaluate = ("evaluate", "knn", tmp_path / "run", "--data", data, "--split", "val", "--json")
    first = json.loads(relatum(*evaluate).out)
    for i in range(6):
        Image.new("RGB", (32, 32), (i * 40, 0, 0)).save(data / "ab"[i % 2] / f"0-new{i}.png")
    done = relatum(*evaluate)
    if done.code == 0:  # exactly the same images are tested on
        assert json.loads(done.out)["n_test"] == first["n_test"]
    else:
        done.check_clear()


def test_05_a_run_inside_the_photos_is_not_data(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos", 8)
    before = json.loads(relatum("data", "info", data, "--json").out)
    done = relatum("pretrain", ".", *SHORT, cwd=data)
    assert done.code == 0, done.said
    [folder] = (data / "runs").iterdir()
    query = next((data / "a").glob("*.png"))
    done = relatum("search", folder, ".", query, "--out", folder / "sheet.png", cwd=data)
    assert done.code == 0, done.said
    after = json.loads(relatum("data", "info", data, "--json").out)
    assert before == after


def test_11_a_resume_notices_a_changed_image(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos", 1030)
    folder = killed_run(
        data, tmp_path / "run", "--batch-size", 1030, "--epochs", 50, "--views", 1, "--method", "supervised"
    )
    Image.new("RGB", (32, 32)).save(data / "a" / "07.png")
    resume(folder).check_clear()


def test_11_a_resume_notices_a_changed_label(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos")
    folder = killed_run(data, tmp_path / "run", "--method", "supervised", "--views", 1)
    (data / "a" / "15.png").rename(data / "b" / "!15.png")  # the order of the images stays
    resume(folder).check_clear()


# -------------------------------------------------------------------------------------------- 14, 15, 17: damaged files


def test_14_no_flipped_byte_of_a_checkpoint_changes_weights(killed: Path, whole: Path, tmp_path: Path) -> None:
    size = (killed / "checkpoints" / "last.ckpt").stat().st_size
    for number in range(4):
        folder = copy(killed, tmp_path / str(number))
        flip(folder / "checkpoints" / "last.ckpt", int(size * (0.15 + 0.2 * number)))
        same_or_clear(folder, whole, resume(folder), "last.ckpt")


def test_14_no_flipped_byte_of_the_weights_is_used(whole: Path, photos: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "run")
    flip(folder / "backbone.safetensors", -2000)
    done = relatum("embed", folder, photos, "--out", tmp_path / "z.npz")
    done.check_clear()


def test_14_no_flipped_byte_of_the_image_cache_is_used(tmp_path: Path) -> None:
    data, env = blackbox.photos(tmp_path / "photos", 8), {"RELATUM_CACHE": str(tmp_path / "cache")}
    flags = ("pretrain", data, *SHORT, "--epochs", 1)
    assert relatum(*flags, "--out", tmp_path / "first", env=env).code == 0
    [cached] = (tmp_path / "cache").rglob("images.npy")
    flip(cached, 9000)
    done = relatum(*flags, "--out", tmp_path / "second", env=env)
    assert done.code == 0, done.said
    assert weights(tmp_path / "second") == weights(tmp_path / "first")


def test_14_no_flipped_byte_of_cached_features_is_used(whole: Path, photos: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "run")
    assert relatum("embed", folder, photos, "--out", tmp_path / "first.npz").code == 0
    [features] = (folder / "features").glob("*.npy")
    flip(features, features.stat().st_size // 2)
    done = relatum("embed", folder, photos, "--out", tmp_path / "second.npz")
    assert done.code == 0, done.said
    with np.load(tmp_path / "first.npz") as first, np.load(tmp_path / "second.npz") as second:
        assert np.array_equal(first["features"], second["features"])


def test_14_a_truncated_checkpoint_falls_back_with_a_warning(killed: Path, whole: Path, tmp_path: Path) -> None:
    folder = copy(killed, tmp_path / "run")
    last = folder / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    done = resume(folder)
    assert done.code == 0, done.said
    assert weights(folder) == weights(whole)
    assert "last.ckpt" in done.said


def test_14_any_damage_falls_back(killed: Path, whole: Path, tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"PK\x03\x04" + bytes(3000), b"\x80\x02]q\x00.")):
        folder = copy(killed, tmp_path / str(number))
        (folder / "checkpoints" / "last.ckpt").write_bytes(content)
        done = resume(folder)
        assert done.code == 0, done.said
        assert weights(folder) == weights(whole)
        assert "last.ckpt" in done.said


def test_14_a_step_out_of_range_does_not_finish(killed: Path, whole: Path, tmp_path: Path) -> None:
    folder = copy(killed, tmp_path / "run")
    last = folder / "checkpoints" / "last.ckpt"
    torch.save({**torch.load(last, weights_only=True), "step": 10**6}, last)
    same_or_clear(folder, whole, resume(folder), "last.ckpt")


@pytest.mark.parametrize(("old", "new"), [("seed = 1", "seed = 7"), ("lr = 0.001", "lr = 0.1")])
def test_15_an_edited_recipe_is_not_resumed(killed: Path, tmp_path: Path, old: str, new: str) -> None:
    folder = copy(killed, tmp_path / "run")
    recipe = folder / "recipe.toml"
    assert old in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(old, new, 1))
    resume(folder).check_clear()


def test_15_an_empty_recipe_does_not_train_on_where_one_stands(killed: Path, whole: Path, tmp_path: Path) -> None:
    folder = copy(killed, tmp_path / "run")
    other = blackbox.photos(tmp_path / "other", seed=9)
    (folder / "recipe.toml").write_text("")
    done = relatum("pretrain", "--out", folder, "--resume", cwd=other)
    if done.code == 0:
        assert weights(folder) == weights(whole)
    else:
        done.check_clear()


def test_17_an_unusable_image_cache_is_built_again(tmp_path: Path) -> None:
    data, env = blackbox.photos(tmp_path / "photos", 8), {"RELATUM_CACHE": str(tmp_path / "cache")}
    flags = ("pretrain", data, *SHORT, "--epochs", 1)
    assert relatum(*flags, "--out", tmp_path / "first", env=env).code == 0
    [cached] = (tmp_path / "cache").rglob("images.npy")
    rows = np.load(cached)
    for number in range(2):
        [cached] = (tmp_path / "cache").rglob("images.npy")
        if number:
            np.save(cached, rows[:-3])
        else:
            cached.write_bytes(b"")
        done = relatum(*flags, "--out", tmp_path / f"again{number}", env=env)
        assert done.code == 0, done.said
        assert weights(tmp_path / f"again{number}") == weights(tmp_path / "first")


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json"])
def test_17_one_bad_byte_does_not_block_a_resume(name: str, killed: Path, whole: Path, tmp_path: Path) -> None:
    folder = copy(killed, tmp_path / "run")
    flip(folder / name, 20, 0xFF)
    done = resume(folder)
    assert done.code == 0, done.said
    assert weights(folder) == weights(whole)
    assert name in done.said  # not without a word


# -------------------------------------------------------------------------------------------------- 18: links and names


def test_18_a_link_named_lock_keeps_its_target(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "diary.txt").write_text("dear diary")
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "diary.txt")
    relatum("pretrain", photos, "--out", tmp_path / "run", *SHORT, "--epochs", 1)
    assert (tmp_path / "diary.txt").read_text() == "dear diary"


def test_18_recipes_for_soup_are_not_overwritten(photos: Path, tmp_path: Path) -> None:
    soup = tmp_path / "soup"
    for name in ("features", "artifacts", "checkpoints"):
        (soup / name).mkdir(parents=True)
        (soup / name / "mine.txt").write_text("mine")
    (soup / "recipe.toml").write_text('title = "Minestrone"\n')
    relatum("pretrain", photos, "--out", soup, *SHORT, "--epochs", 1, "--overwrite")
    assert len(list(soup.rglob("mine.txt"))) == 3


def test_18_a_milestone_is_not_lost_between_two_writes(photos: Path, tmp_path: Path) -> None:
    """Killed as soon as a quarter is saved under any name: all four milestones are there at the end."""
    code = (
        "import os, pathlib\n"
        "original = pathlib.Path.replace\n"
        "def replace(self, target):\n"
        "    original(self, target)\n"
        "    name = os.path.basename(target)\n"
        "    rows = pathlib.Path(target).parents[1] / 'metrics.jsonl'\n"
        "    if name.endswith('.ckpt') and name != 'previous.ckpt' and rows.read_bytes().count(b'\\n') == 6:\n"
        "        os._exit(9)\n"
        "    return pathlib.Path(target)\n"
        "pathlib.Path.replace = replace"
    )
    folder = tmp_path / "run"
    done = patched(code, "pretrain", photos, "--out", folder, *SHORT)
    assert done.code == 9, done.said
    assert resume(folder).code == 0
    found = sorted(path.name for path in (folder / "checkpoints").glob("milestone-*.ckpt"))
    assert found == [f"milestone-{percent:03}.ckpt" for percent in (25, 50, 75, 100)]


# ---------------------------------------------------------------------------------------------- 6, 12, 19: and the rest

DRAWS = """
import torch, relatum
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
{build}
views = torch.randn(2, 32, 3, 8, 8)
def loss():
    value = objective(views)
    return float(value[0] if isinstance(value, tuple) else value.loss)
values = [loss() for _ in range(3)]
assert len(set(values)) == 3, values
"""
MAPS = """
class Net(torch.nn.Module):
    num_features = 4
    def __init__(self):
        super().__init__()
        self.c = torch.nn.Conv2d(3, 4, 3)
    def stem(self, x): return self.c(x)
    def body(self, x): return x.mean((2, 3))
    def feature_map(self, x): return self.c(x)
    def forward(self, x): return self.body(self.stem(x))
from relatum.objectives.deepinfomax import DeepInfoMax
objective = DeepInfoMax(Net(), 4, side=8)
"""


def test_06_random_negatives_are_drawn_anew() -> None:
    build = "objective = relatum.RelationalReasoning(net, num_features=16, negatives='random')"
    done = run("-c", DRAWS.format(build=build))
    assert done.code == 0, done.said


def test_06_the_prior_is_drawn_anew() -> None:
    done = run("-c", DRAWS.format(build=MAPS))
    assert done.code == 0, done.said


def test_12_what_a_killed_save_left_is_removed(killed: Path, tmp_path: Path) -> None:
    folder = copy(killed, tmp_path / "run")
    left = [folder / "checkpoints" / ".last.ckpt.x1y2z3.part", folder / ".run.json.x1y2z3.part"]
    for path in left:
        path.write_bytes(b"half of it")
    assert resume(folder).code == 0
    assert not any(path.exists() for path in left)


def test_12_a_full_disk_is_recorded(photos: Path, tmp_path: Path) -> None:
    with blackbox.disk(tmp_path / "disk", "1200k") as disk:
        done = relatum("pretrain", photos, "--out", disk / "run", *SHORT)
        done.check_clear()
        assert "No space left on device" in done.said
        assert str(disk) in done.said
        assert json.loads((disk / "run" / "run.json").read_text())["status"] == "failed"


def test_12_a_lock_that_fails_gives_its_reason(photos: Path, tmp_path: Path) -> None:
    code = "import fcntl\ndef flock(*_): raise OSError(37, 'No locks available')\nfcntl.flock = fcntl.lockf = flock"
    done = patched(code, "pretrain", photos, "--out", tmp_path / "run", *SHORT, "--epochs", 1)
    assert "another process" not in done.said


def test_12_the_folder_is_synced_after_a_rename(photos: Path, tmp_path: Path) -> None:
    code = (
        "import os, stat\n"
        "original = os.fsync\n"
        "def fsync(file):\n"
        "    number = file if isinstance(file, int) else file.fileno()\n"
        f"    if stat.S_ISDIR(os.fstat(number).st_mode): open({str(tmp_path / 'synced')!r}, 'a').write('x')\n"
        "    original(file)\n"
        "os.fsync = fsync"
    )
    assert patched(code, "pretrain", photos, "--out", tmp_path / "run", *SHORT, "--epochs", 1).code == 0
    assert (tmp_path / "synced").exists()


POISON = """
import torch
from torch import nn
class Poison(torch.autograd.Function):
    calls = 0
    @staticmethod
    def forward(context, x): return x.clone()
    @staticmethod
    def backward(context, gradient):
        Poison.calls += 1
        return gradient * float("nan") if Poison.calls == 4 else gradient
class Net(nn.Module):
    num_features = 8
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=4)
    def forward(self, x): return Poison.apply(self.conv(x)).mean((2, 3))
def make(): return Net()
"""


def test_12_a_bad_gradient_at_the_end_of_an_epoch_reaches_no_checkpoint(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "poison.py").write_text(POISON)
    flags = [flag for flag in SHORT if flag not in ("--backbone", "conv4")]
    flags += ["--backbone", "poison:make", "--set", "checkpoint.every_steps=1000"]
    done = relatum("pretrain", photos, "--out", "run", *flags, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.code == 1, done.said
    for path in (tmp_path / "run" / "checkpoints").glob("*.ckpt"):
        state = torch.load(path, weights_only=True)["objective"]
        assert all(bool(torch.isfinite(value).all()) for value in state.values() if value.is_floating_point()), path


def test_12_a_text_in_place_of_a_list_is_one_value(whole: Path, photos: Path) -> None:
    query = next(iter((photos / "a").glob("*.png")))
    code = (
        "import sys, relatum\nfrom relatum.errors import RelatumError\n"
        "try: hits = relatum.search(sys.argv[1], sys.argv[2], sys.argv[3])\n"
        "except RelatumError as error: sys.exit(str(error))\n"
        "print('one query')"
    )
    done = run("-c", code, whole, photos, query)
    assert "one query" in done.out, done.said


def test_19_a_full_disk_names_the_path(whole: Path, photos: Path, tmp_path: Path) -> None:
    with blackbox.disk(tmp_path / "disk", "64k") as disk:
        (disk / "ballast").write_bytes(bytes((64 << 10) - 4096))
        done = relatum("embed", whole, photos, "--out", disk / "z.npz")
        done.check_clear()
        assert str(disk) in done.said
        assert "No space left on device" in done.said


def test_19_a_failed_import_leaves_nothing(whole: Path, tmp_path: Path) -> None:
    weights_file = whole / "backbone.safetensors"
    torch.save(load_file(weights_file), tmp_path / "w.pt")
    pages = -(-weights_file.stat().st_size // 4096) + 1  # room for the weights, and for little more
    with blackbox.disk(tmp_path / "disk", f"{4 * pages}k") as disk:
        done = relatum("import", tmp_path / "w.pt", "--backbone", "conv4", "--out", disk / "run")
        done.check_clear()
        left = [path for path in disk.rglob("*") if path.is_file()]
        assert not left, left


def test_19_weights_that_are_not_numbers_are_refused(photos: Path, whole: Path, tmp_path: Path) -> None:
    state = load_file(whole / "backbone.safetensors")
    next(value for value in state.values() if value.is_floating_point()).view(-1)[0] = float("nan")
    metadata = {"backbone": "conv4", "num_features": 64, "mean": [0.5] * 3, "std": [0.25] * 3, "side": 32}
    save_file(state, tmp_path / "w.safetensors", {"relatum": json.dumps(metadata)})
    relatum("embed", tmp_path / "w.safetensors", photos, "--out", tmp_path / "z.npz").check_clear()


def test_19_too_many_threads_are_refused(photos: Path, tmp_path: Path) -> None:
    relatum("pretrain", photos, "--out", tmp_path / "run", *SHORT, "--threads", 100000).check_clear()


LEARNS_NOTHING = r"(note|warning): [^:]*(loss has grown|representations|chance|collapsed|are the same)"


def test_19_a_run_that_learns_nothing_warns(photos: Path, tmp_path: Path) -> None:
    done = relatum("pretrain", photos, "--out", tmp_path / "run", *SHORT, "--set", "train.lr=1e6")
    assert done.code == 1 or re.search(LEARNS_NOTHING, done.said), done.said
    constant = tmp_path / "constant"
    for name in "ab":
        (constant / name).mkdir(parents=True)
        for i in range(16):
            Image.new("RGB", (32, 32), (9, 9, 9)).save(constant / name / f"{i}.png")
    done = relatum("pretrain", constant, "--out", tmp_path / "run2", *SHORT, "--epochs", 8)
    assert done.code == 1 or re.search(LEARNS_NOTHING, done.said), done.said

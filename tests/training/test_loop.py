"""The promises of the engine: same seed, same bits; a resumed run is the uninterrupted one; looking changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import relatum
from relatum import api
from relatum.errors import InputError, Interrupted, RelatumError
from relatum.runs import checkpoint
from relatum.runs.folder import RunFolder

FLAGS: dict[str, Any] = {
    "views": 3,
    "batch_size": 8,
    "epochs": 2,
    "seed": 1,
    "compile": "off",
    "threads": 1,
    "quiet": True,
}


def backbone_bytes(run: Path | api.Run) -> bytes:
    return (Path(run) / "backbone.safetensors").read_bytes()


def metrics(run: Path | api.Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path | api.Run) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in metrics(run)}


@pytest.fixture(scope="module")
def whole(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """An uninterrupted run: 36 pictures, batches of 8: four full ones and a short one an epoch."""
    return relatum.pretrain(pictures, out=tmp_path_factory.mktemp("whole") / "run", set={"log.every_steps": 1}, **FLAGS)


def test_the_run_folder_is_complete(whole: api.Run) -> None:
    recipe = whole.recipe
    assert recipe.run.device in ("cpu", "cuda", "mps")
    assert recipe.run.kernels in ("numba", "torch")
    assert recipe.data.images == 36
    assert recipe.data.mean is not None
    rows = metrics(whole)
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert [row["epoch"] for row in rows] == [1] * 5 + [2] * 5
    assert {"loss", "views_per_second", "lr", "accuracy", "positive_accuracy", "negative_accuracy"} <= rows[0].keys()
    state = torch.load(whole.path / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["step"] == 10
    assert len(list((whole.path / "checkpoints").glob("milestone-*.ckpt"))) == 4
    info = whole.backbone().info
    assert set(info) == {"backbone", "num_features", "mean", "std", "side", "dataset", "method", "preset", "version"}
    assert json.loads((whole.path / "run.json").read_text())["status"] == "finished"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(
    whole: api.Run, pictures: Path, tmp_path: Path
) -> None:
    again = relatum.pretrain(pictures, out=tmp_path / "again", **FLAGS)
    assert backbone_bytes(again) == backbone_bytes(whole)
    other = relatum.pretrain(pictures, out=tmp_path / "other", **{**FLAGS, "seed": 2})
    assert backbone_bytes(other) != backbone_bytes(whole)


def test_a_resolved_recipe_gives_the_same_bytes(whole: api.Run, tmp_path: Path) -> None:
    again = relatum.pretrain(out=tmp_path / "again", recipe=whole.path / "recipe.toml", quiet=True)
    assert backbone_bytes(again) == backbone_bytes(whole)


def test_views_prepared_ahead_are_the_same_views(whole: api.Run, pictures: Path, tmp_path: Path) -> None:
    again = relatum.pretrain(pictures, out=tmp_path / "again", set={"run.prefetch": "on"}, **FLAGS)
    assert backbone_bytes(again) == backbone_bytes(whole)


@pytest.mark.parametrize("stop_at", [1, 3, 5, 8])
def test_an_interrupted_run_resumes_exactly(
    whole: api.Run, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    from relatum.training.loop import Trainer

    original = Trainer._after_step

    def stop(self: Trainer, *arguments: Any) -> None:
        original(self, *arguments)
        if self.step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "_after_step", stop)
    with pytest.raises(Interrupted) as caught:
        relatum.pretrain(pictures, out=tmp_path / "run", set={"log.every_steps": 1}, **FLAGS)
    assert caught.value.exit_code == 143
    assert not (tmp_path / "run" / "backbone.safetensors").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    monkeypatch.setattr(Trainer, "_after_step", original)
    started: list[int] = []
    first = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self: (started.append(self.step), first(self)))
    again = relatum.pretrain(pictures, out=tmp_path / "run", resume=True, **FLAGS)
    assert started == [stop_at]  # it did not start over
    assert backbone_bytes(again) == backbone_bytes(whole)
    assert losses(again) == losses(whole)


def test_the_time_before_a_kill_counts(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process can record nothing: its time must be in the folder since its last checkpoint."""
    from relatum.training.loop import Trainer

    run, original = tmp_path / "run", Trainer._after_step

    def stop(self: Trainer, *arguments: Any) -> None:
        original(self, *arguments)
        if self.step == 5:
            (tmp_path / "left.json").write_bytes((run / "run.json").read_bytes())  # what a kill would leave
            raise RuntimeError

    monkeypatch.setattr(Trainer, "_after_step", stop)
    with pytest.raises(RuntimeError):
        relatum.pretrain(pictures, out=run, **FLAGS)
    left = json.loads((tmp_path / "left.json").read_text())
    assert left["status"] == "running"
    assert left["steps"] == 5
    assert left["seconds"] > 0
    RunFolder(run).update_record(status="running", seconds=left["seconds"] + 1000)
    monkeypatch.setattr(Trainer, "_after_step", original)
    relatum.pretrain(out=run, resume=True, quiet=True)
    assert json.loads((run / "run.json").read_text())["seconds"] > 1000


def test_a_killed_run_resumes_exactly_three_times(whole: api.Run, pictures: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "relatum", "pretrain", str(pictures), "--out", str(run), "--resume", "--views", "3"),
        *("--batch-size", "8", "--epochs", "2", "--seed", "1", "--compile", "off", "--threads", "1"),
        *("--set", "checkpoint.every_steps=1", "--set", "log.every_steps=1"),
    ]
    steps = []
    for target in (2, 4, 7):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and child.poll() is None:
            if (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= target:
                break
            time.sleep(0.002)
        child.kill()
        child.wait()
        state = checkpoint.newest(run)
        steps.append(0 if state is None else int(state[1]["step"]))
    assert steps == sorted(steps)
    assert steps[-1] >= 6  # it went on instead of starting over
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"resumed at step {steps[-1]}" in done.stderr or steps[-1] == 10
    assert backbone_bytes(run) == backbone_bytes(whole)
    assert losses(run) == losses(whole)
    assert [row["step"] for row in metrics(run)] == list(range(1, 11))


def test_resume_of_a_finished_run_says_so(whole: api.Run, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = backbone_bytes(whole)
    relatum.pretrain(pictures, out=whole, resume=True, **{**FLAGS, "quiet": False})
    assert "is finished" in capsys.readouterr().err
    assert backbone_bytes(whole) == before


def test_resume_of_a_finished_run_names_what_it_does_not_apply(
    whole: api.Run, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(whole.path, tmp_path / "run")
    same = ["train.drop_last=false", "views.number=3"]
    relatum.pretrain(pictures, out=run, resume=True, set=same, quiet=False)
    assert "not applied" not in capsys.readouterr().err
    relatum.pretrain(pictures, out=run, resume=True, method="byol", set="objective.momentum=0.9", quiet=False)
    said = " ".join(capsys.readouterr().err.split())
    assert "method = byol (it has relational)" in said
    assert "objective.momentum = 0.9 (it has no such setting)" in said
    (run / "recipe.toml").write_text("damaged = [")
    relatum.pretrain(pictures, out=run, resume=True, quiet=False)
    assert "recipe.toml is not a readable TOML file" in " ".join(capsys.readouterr().err.split())


def test_resume_without_a_checkpoint_starts(pictures: Path, tmp_path: Path, whole: api.Run) -> None:
    run = relatum.pretrain(pictures, out=tmp_path / "run", resume=True, **FLAGS)
    assert backbone_bytes(run) == backbone_bytes(whole)


def test_a_run_is_neither_overwritten_nor_changed_by_accident(whole: api.Run, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="already contains a run"):
        relatum.pretrain(pictures, out=whole, **FLAGS)
    first = relatum.pretrain(pictures, out=tmp_path / "run", **{**FLAGS, "epochs": 1})
    (first.path / "backbone.safetensors").unlink()  # as if it had been interrupted
    with pytest.raises(InputError, match=r"cannot change train\.epochs from 1 to 2"):
        relatum.pretrain(pictures, out=first, resume=True, **FLAGS)
    again = relatum.pretrain(pictures, out=first, overwrite=True, **FLAGS)
    assert backbone_bytes(again) == backbone_bytes(whole)


def test_resume_refuses_other_data(pictures: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from shutil import copytree

    copytree(pictures, tmp_path / "data")
    run = relatum.pretrain(tmp_path / "data", out=tmp_path / "run", **{**FLAGS, "epochs": 1})
    (run.path / "backbone.safetensors").unlink()
    next((tmp_path / "data" / "down").iterdir()).unlink()
    with pytest.raises(InputError, match="not those this run started with") as caught:
        relatum.pretrain(tmp_path / "data", out=run, resume=True, **{**FLAGS, "epochs": 1})
    assert f"init='{run.path}'" in str(caught.value)
    with pytest.raises(InputError, match=r"Or train again within a time budget: relatum\.explore\("):
        relatum.explore(tmp_path / "data", out=run.path, quiet=True)
    capfd.readouterr()
    new = relatum.pretrain(tmp_path / "data", out=tmp_path / "new", init=run, **{**FLAGS, "epochs": 1, "quiet": False})
    assert new.recipe.init == str(run.path)
    assert " is used to start from." in "".join(capfd.readouterr())


def test_a_run_on_images_in_memory_resumes_with_them(pictures: Path, tmp_path: Path) -> None:
    paths = sorted(pictures.rglob("*.png"))
    flags = {**FLAGS, "epochs": 1}
    run = relatum.pretrain(paths, out=tmp_path / "run", **flags)
    weights = backbone_bytes(run)
    (run.path / "backbone.safetensors").unlink()
    with pytest.raises(InputError, match=r"was trained on images in memory: .* relatum\.pretrain\(IMAGES, resume=True"):
        relatum.pretrain(out=run, resume=True)
    with pytest.raises(InputError, match=r"relatum\.pretrain\(IMAGES, init="):
        relatum.pretrain(paths[1:], out=run, resume=True, **flags)
    relatum.pretrain(paths, out=run, resume=True, **flags)
    assert backbone_bytes(run) == weights


def test_a_run_resumes_after_its_folder_moved(pictures: Path, tmp_path: Path) -> None:
    from shutil import copytree, move

    copytree(pictures, tmp_path / "data")
    flags = {**FLAGS, "epochs": 1}
    run = relatum.pretrain(tmp_path / "data", out=tmp_path / "run", **flags)
    weights = backbone_bytes(run)
    (run.path / "backbone.safetensors").unlink()
    move(tmp_path / "data", tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"give its new place: relatum\.pretrain\(FOLDER, resume=True"):
        relatum.pretrain(out=run, resume=True)
    relatum.pretrain(tmp_path / "elsewhere", out=run, resume=True, **flags)
    assert backbone_bytes(run)[-90_000:] == weights[-90_000:]  # the header names the folder, the weights are equal
    assert run.recipe.data.name == str(tmp_path / "elsewhere")


def test_resume_of_nothing_says_that_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run at .*nothing to resume; check out=..."):
        relatum.pretrain(out=tmp_path / "nothing", resume=True)


def test_an_interruption_is_not_swallowed_by_except_exception() -> None:
    assert issubclass(Interrupted, KeyboardInterrupt)
    assert not issubclass(Interrupted, Exception)


def test_watching_does_not_touch_the_run(pictures: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "val_fraction": 0.25}
    blind = relatum.pretrain(pictures, out=tmp_path / "blind", **flags)
    watched = relatum.pretrain(pictures, out=tmp_path / "watched", knn_every=1, **flags)
    assert backbone_bytes(blind) == backbone_bytes(watched)
    seen = [row["knn_accuracy"] for row in metrics(watched) if "knn_accuracy" in row]
    assert len(seen) == 2
    assert all(0 <= value <= 100 for value in seen)


@pytest.mark.parametrize(("method", "small"), [("relational", 0), ("dino", 2)])
def test_the_speed_counts_all_views(
    method: str, small: int, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relatum.training.loop import Trainer

    seen = []
    row = Trainer._row
    monkeypatch.setattr(Trainer, "_row", lambda self, *values: (seen.append(self._seen), row(self, *values))[1])
    settings = {"log.every_steps": 1, "views.small_number": small}
    relatum.pretrain(pictures, out=tmp_path / "run", method=method, set=settings, **FLAGS)
    assert seen == [8 * (3 + small)] * 4 + [4 * (3 + small)] + [8 * (3 + small)] * 4 + [4 * (3 + small)]


def test_a_last_batch_of_one_image_is_dropped_with_one_warning(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {**FLAGS, "batch_size": 7, "quiet": False}  # 36 = 5 * 7 + 1
    run = relatum.pretrain(pictures, out=tmp_path / "run", set={"log.every_steps": 1}, **flags)
    assert capsys.readouterr().err.count("is dropped") == 1
    assert len(metrics(run)) == 10


def test_the_start_can_be_given(whole: api.Run, pictures: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "epochs": 0}
    for init in (whole.path, whole.path / "backbone.safetensors", whole.path / "checkpoints" / "last.ckpt"):
        run = relatum.pretrain(pictures, out=tmp_path / "run", init=str(init), overwrite=True, **flags)
        for name, value in whole.backbone().state_dict().items():
            torch.testing.assert_close(run.backbone().state_dict()[name], value, rtol=0, atol=0)


def test_schedules_and_clipping_are_applied(pictures: Path, tmp_path: Path) -> None:
    settings = {"train.schedule": "cosine", "train.warmup_epochs": 1, "train.clip_norm": 0.1, "log.every_steps": 1}
    run = relatum.pretrain(pictures, out=tmp_path / "run", preset="paper", set=settings, **FLAGS)
    rates = [row["lr"] for row in metrics(run)]
    assert rates[:5] == pytest.approx([1e-3 * n / 5 for n in range(1, 6)])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 2e-4


@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_a_loss_that_is_no_number_stops_the_run(clip_norm: float, pictures: Path, tmp_path: Path) -> None:
    settings = {"train.lr": 1e30, "train.clip_norm": clip_norm, "log.every_steps": 1}
    with pytest.raises(RelatumError, match=r"loss is (nan|inf)"):
        relatum.pretrain(pictures, out=tmp_path / "run", set=settings, **FLAGS)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


class Dropping(torch.nn.Sequential):
    """A backbone that draws random numbers in training."""

    num_features = 12

    def __init__(self) -> None:
        super().__init__(
            torch.nn.Conv2d(3, 12, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        self.append(torch.nn.Dropout(0.5))


@pytest.mark.parametrize("method", ["relational", "byol"])  # byol: the target network drops others of its own
def test_a_network_with_dropout_is_repeatable_and_resumes_exactly(
    method: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    start = Dropping()

    def train(name: str, **more: Any) -> bytes:
        network = Dropping()
        network.load_state_dict(start.state_dict())
        settings = {"checkpoint.every_steps": 3}
        return backbone_bytes(
            relatum.pretrain(
                pictures, out=tmp_path / name, method=method, backbone=network, set=settings, **FLAGS, **more
            )
        )

    whole = train("whole")
    assert train("again") == whole  # the global generator has moved on
    from relatum.training.loop import Trainer

    after = Trainer._after_step

    def stop(self: Trainer, *arguments: Any) -> None:
        after(self, *arguments)
        if self.step == 4:
            raise KeyError("stop")

    monkeypatch.setattr(Trainer, "_after_step", stop)
    with pytest.raises(KeyError, match="stop"):
        train("run")
    monkeypatch.setattr(Trainer, "_after_step", after)
    assert train("run", resume=True) == whole


def test_training_leaves_the_random_state_of_the_caller(pictures: Path, tmp_path: Path) -> None:
    network = Dropping()
    state = torch.get_rng_state()
    relatum.pretrain(pictures, out=tmp_path / "run", backbone=network, **FLAGS)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_custom_backbone_as_an_object_and_as_a_name(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 12, 3, 2), nn.BatchNorm2d(12), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    monkeypatch.chdir(tmp_path)
    named = relatum.pretrain(pictures, out="named", backbone="mine:net", **FLAGS)
    assert named.backbone("mine:net").num_features == 12
    with pytest.raises(InputError, match="backbone='mine:net'"):
        named.backbone()  # a file never says which code to run
    from mine import net  # type: ignore[import-not-found]

    module = net()
    run = relatum.pretrain(pictures, out="object", backbone=module, **FLAGS)
    loaded = relatum.load_backbone(run, backbone=net())
    torch.testing.assert_close(loaded[0].weight, module[0].weight.detach())
    with pytest.raises(InputError, match="cannot be imported"):
        relatum.pretrain(pictures, out="none", backbone="mine:nothing", **FLAGS)


class KeepsMore(torch.nn.Module):
    """A backbone with state that a weights file cannot contain."""

    num_features = 3

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        if kind == "complex":
            self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) * self.scale


@pytest.mark.parametrize(("kind", "message"), [("extra", "_extra_state, which is no tensor"), ("complex", "in phase")])
def test_a_backbone_that_could_not_be_saved_is_refused_before_training(
    kind: str, message: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "extra":  # torch asks whether the class has it
        monkeypatch.setattr(KeepsMore, "get_extra_state", lambda self: {"a": 1})
    with pytest.raises(InputError, match=message):
        relatum.pretrain(pictures, out=tmp_path / "run", backbone=KeepsMore(kind), **FLAGS)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_recipe_file_runs_no_code(tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a run that is resumed nor a recipe that is passed may name code; the user repeats it."""
    (tmp_path / "trap2.py").write_text(
        "from pathlib import Path\nfrom relatum.backbones.conv4 import conv4\nPath('ran').touch()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run = relatum.pretrain(pictures, out="run", backbone="conv4", **FLAGS)
    (run.path / "backbone.safetensors").unlink()
    recipe = run.path / "recipe.toml"
    shutil.rmtree(run.path / "checkpoints")  # they keep the recipe as well
    (run.path / "run.json").unlink()  # as from an older version: without checksums
    text = recipe.read_text().partition("\n# A resume needs")[0]
    recipe.write_text(text.replace('name = "conv4"', 'name = "trap2:conv4"'))
    with pytest.raises(InputError, match="backbone='trap2:conv4'"):
        relatum.pretrain(out="run", resume=True)
    with pytest.raises(InputError, match="backbone='trap2:conv4'"):
        relatum.pretrain(out="other", recipe=recipe)
    with pytest.raises(InputError, match="backbone='trap2:conv4'"):
        relatum.pretrain(out="other", recipe=recipe, resume=True)
    assert not (tmp_path / "ran").exists()
    relatum.pretrain(out="other", recipe=recipe, backbone="trap2:conv4")
    assert (tmp_path / "ran").exists()


def test_the_objective_alone_in_a_custom_loop() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16))
    objective = relatum.RelationalReasoning(net, num_features=16)
    optimizer = torch.optim.Adam(objective.parameters(), 1e-2)
    base = torch.randn(6, 3, 4, 4)
    values = []
    for _ in range(30):
        views = base + 0.1 * torch.randn(4, 6, 3, 4, 4)
        loss, numbers = objective(views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < 0.5 * values[0]
    assert float(numbers["accuracy"]) > 0.9
    with pytest.raises(ValueError, match="image"):
        objective(views[:, :1])
    with pytest.raises(ValueError, match=r"\(K, M, C, H, W\)"):
        objective(views[0])


def test_keywords_are_checked() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'vews'"):
        relatum.pretrain("shapes", vews=3)
    with pytest.raises(InputError, match="no data"):
        relatum.pretrain()


def test_tensorboard_files_are_written_where_asked_for(pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    run = relatum.pretrain(pictures, out=tmp_path / "run", set={"log.tensorboard": True}, **{**FLAGS, "epochs": 1})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert {"loss", "positive_accuracy", "lr"} <= set(events.Tags()["scalars"])
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(list(losses(run).values()), rel=1e-6)


def test_a_missing_extra_is_named(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install tensorboard"):
        relatum.pretrain(pictures, out=tmp_path / "run", set={"log.tensorboard": True}, **FLAGS)


def test_a_quiet_run_of_mixed_precision_prints_nothing(
    pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fabric logs the precision to standard error."""
    flags = {**FLAGS, "epochs": 0, "precision": "bf16-mixed"}
    relatum.pretrain(pictures, out=tmp_path / "run", **flags)
    assert not [record for record in caplog.records if record.name.startswith("lightning_fabric")]


def test_mixed_precision_trains_and_resumes(pictures: Path, tmp_path: Path) -> None:
    flags = {**FLAGS, "precision": "bf16-mixed"}
    run = relatum.pretrain(pictures, out=tmp_path / "run", set={"log.every_steps": 1}, **flags)
    assert all(0 < loss < 1 for loss in losses(run).values())
    again = relatum.pretrain(pictures, out=tmp_path / "again", **flags)
    assert backbone_bytes(run) == backbone_bytes(again)
    assert {v.dtype for v in run.backbone().state_dict().values()} <= {torch.float32, torch.int64}
    with pytest.raises(InputError, match="needs a GPU"):
        relatum.pretrain(pictures, out=tmp_path / "half", **{**flags, "precision": "16-mixed", "device": "cpu"})


def test_replacing_a_run_loses_nothing_where_the_new_one_is_impossible(pictures: Path, tmp_path: Path) -> None:
    run = relatum.pretrain(pictures, out=tmp_path / "run", **FLAGS)
    before = backbone_bytes(run)
    for wrong in ({"init": "/no/such/file"}, {"views": 1}, {"batch_size": 1}, {"backbone": "conv5"}, {"side": 4}):
        with pytest.raises(InputError):
            relatum.pretrain(pictures, out=run, overwrite=True, **{**FLAGS, **wrong})
        assert backbone_bytes(run) == before
    with pytest.raises(InputError, match="give one of them"):
        relatum.pretrain(pictures, out=run, overwrite=True, resume=True, **FLAGS)
    assert backbone_bytes(run) == before


def test_a_recipe_of_other_data_finds_its_own(whole: api.Run, pictures: Path, tmp_path: Path) -> None:
    fewer = relatum.pretrain(out=tmp_path / "fewer", recipe=whole.path / "recipe.toml", limit_train=18, quiet=True)
    assert fewer.recipe.data.images == 18
    assert fewer.recipe.data.fingerprint != whole.recipe.data.fingerprint
    other = relatum.pretrain(
        "shapes", out=tmp_path / "other", recipe=whole.path / "recipe.toml", limit_train=16, epochs=1, quiet=True
    )
    assert other.recipe.data.mean == (0.5, 0.5, 0.5)


def test_changes_since_the_last_run_are_reported(whole: api.Run, pictures: Path, tmp_path: Path, capsys: Any) -> None:
    from shutil import copytree

    copytree(whole.path, tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["versions"]["torch"] = "1.0"
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    again = relatum.pretrain(pictures, out=tmp_path / "run", resume=True, **{**FLAGS, "quiet": False})
    assert "torch was 1.0" in capsys.readouterr().err
    assert backbone_bytes(again) == backbone_bytes(whole)


def test_an_own_side_and_normalisation_hold_everywhere(pictures: Path, tmp_path: Path) -> None:
    settings = {"data.mean": "0.1,0.2,0.3", "data.std": "0.5,0.5,0.5"}
    run = relatum.pretrain(pictures, out=tmp_path / "run", side=40, set=settings, **{**FLAGS, "epochs": 1})
    info = run.backbone().info
    assert (info["side"], info["mean"]) == (40, [0.1, 0.2, 0.3])


def test_a_supervised_run_is_scored_on_images_as_it_was_trained_on(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shutil import copytree

    from relatum.training import monitor

    for split in ("train", "test"):
        copytree(pictures, tmp_path / "data" / split)
    seen: list[tuple[int, tuple[float, ...]]] = []
    original = monitor.clean_features

    def watch(backbone: torch.nn.Module, images: Any) -> torch.Tensor:
        seen.append((images.side, tuple(images.mean)))
        return original(backbone, images)

    monkeypatch.setattr(monitor, "clean_features", watch)
    flags = {**FLAGS, "epochs": 1, "method": "supervised", "views": 1, "knn_every": 1}
    settings = {"data.mean": "0.1,0.2,0.3"}
    run = relatum.pretrain(tmp_path / "data", out=tmp_path / "run", side=40, set=settings, **flags)
    assert (run.path / "evaluations" / "classifier-data-test.json").exists()
    assert len(seen) == 3  # kNN: bank and queries; the classifier's test set
    assert set(seen) == {(40, (0.1, 0.2, 0.3))}


def test_resume_needs_no_more_than_the_folder(whole: api.Run, tmp_path: Path) -> None:
    from shutil import copytree

    copytree(whole.path, tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    again = relatum.pretrain(out=tmp_path / "run", resume=True, quiet=True)
    assert backbone_bytes(again) == backbone_bytes(whole)


def test_a_wrong_feature_size_is_named() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16))
    with pytest.raises(ValueError, match=r"num_features is 512, but the backbone gives \(16,\) per view"):
        relatum.RelationalReasoning(net, num_features=512)(torch.zeros(2, 3, 3, 4, 4))


def test_a_backbone_with_several_outputs_is_named() -> None:
    class Two(torch.nn.Flatten):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), x

    with pytest.raises(InputError, match="this one gives a tuple for 6 images"):
        relatum.RelationalReasoning(Two(), num_features=48)(torch.zeros(2, 3, 3, 4, 4))


def test_an_unfinished_run_is_scored_with_a_word(whole: api.Run, pictures: Path, tmp_path: Path, capsys: Any) -> None:
    from shutil import copytree

    copytree(whole.path, tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    settings = {"val_fraction": 0.25, "knn.k": 3}  # a key with its protocol's name is understood as well
    result = relatum.evaluate("knn", tmp_path / "run", data=pictures, split="val", settings=settings)
    assert "is not finished" in capsys.readouterr().err
    assert result.settings["k"] == 3


def kaggle_layout(pictures: Path, folder: Path) -> Path:
    """train/down, train/across and a test folder without classes, as Kaggle gives them out."""
    from shutil import copyfile, copytree

    for name in ("down", "across"):
        copytree(pictures / name, folder / "train" / name)
    (folder / "test").mkdir()
    for path in (pictures / "slanted").iterdir():
        copyfile(path, folder / "test" / path.name)
    return folder


def test_a_supervised_run_without_test_labels_is_finished_with_a_warning(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from relatum import cli

    data = kaggle_layout(pictures, tmp_path / "data")
    command_line = [
        "pretrain",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--method",
        "supervised",
        "--batch-size",
        "8",
    ]
    command_line += ["--epochs", "1", "--compile", "off", "--threads", "1"]
    for more in ([], ["--resume"]):
        with pytest.raises(SystemExit) as caught:
            cli.main([*command_line, *more])
        assert not caught.value.code
        assert ("the test split of data has no labels" in capsys.readouterr().err) == (not more)
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        assert (record["status"], record["classifier_score"]) == ("finished", "the test split of data has no labels")
    assert (tmp_path / "run" / "backbone.safetensors").exists()
    assert not (tmp_path / "run" / "evaluations").exists()


def test_a_supervised_run_that_was_killed_before_its_score_is_scored_by_a_resume(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relatum.api import pretraining

    flags = {**FLAGS, "epochs": 1, "method": "supervised", "views": 1, "val_fraction": 0.25}
    whole = relatum.pretrain(pictures, out=tmp_path / "whole", **flags)

    def killed(*arguments: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "_score_classifier", killed)
        with pytest.raises(KeyboardInterrupt):
            relatum.pretrain(pictures, out=tmp_path / "run", **flags)
    weights = backbone_bytes(tmp_path / "run")
    assert weights == backbone_bytes(whole)  # they are written before the score
    again = relatum.pretrain(pictures, out=tmp_path / "run", resume=True, **flags)
    name = f"evaluations/classifier-{pictures.name}-val.json"
    scores = [json.loads((run.path / name).read_text())["accuracy"] for run in (whole, again)]
    assert scores[0] == scores[1]
    assert backbone_bytes(again) == weights

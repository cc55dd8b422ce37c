"""What holds for every method: built from its row, blind to labels, exactly resumable, able to learn."""

from __future__ import annotations

import copy
import inspect
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import CLASSES, TRAINED, small_batch, small_objective

import relatum
from relatum import config, data, objectives, registry
from relatum.config.methods import METHODS
from relatum.errors import InputError
from relatum.objectives import EpochContext
from relatum.objectives.batch import Batch
from relatum.training.batches import BatchMaker
from relatum.training.resolve import resolve

MODERN = ["byol", "simsiam", "barlow", "vicreg", "moco", "dino", "swav", "emp"]
BLIND = [name for name in TRAINED if not METHODS[name].uses_labels]
# views.number, batch size: small enough for seconds, with a short last batch (36 pictures).
RUNS = {
    "relational": (3, 8),
    "simclr": (2, 8),
    "rotation": (4, 8),
    "deepcluster": (1, 8),
    "deepinfomax": (1, 8),
    "supervised": (1, 8),
    "byol": (2, 8),
    "simsiam": (3, 8),
    "barlow": (2, 8),
    "vicreg": (3, 8),
    "moco": (2, 8),
    "dino": (2, 8),
    "swav": (2, 8),
    "emp": (4, 8),
}
FLAGS: dict[str, Any] = {"epochs": 2, "seed": 1, "compile": "off", "threads": 1, "quiet": True}
SETS = {
    "deepcluster": {"objective.clusters": 5},
    "deepinfomax": {"objective.locations": 64},
    "supervised": {"train.backbone_lr": 0.01},  # two groups of parameters
    "moco": {"objective.queue": 50},  # the ring is written over within two epochs
    "dino": {"views.small_number": 2},
    "swav": {"views.small_number": 1, "views.small_side": 24, "objective.freeze_epochs": 1},
}


def pretrain(method: str, pictures: Path, out: Path, **more: Any) -> bytes:
    views, batch_size = RUNS[method]
    sets = {"log.every_steps": 1, **SETS.get(method, {}), **more.pop("set", {})}
    run = relatum.pretrain(
        pictures, out=out, method=method, views=views, batch_size=batch_size, set=sets, **{**FLAGS, **more}
    )
    return (run.path / "backbone.safetensors").read_bytes()


def test_all_methods_are_registered() -> None:
    assert list(METHODS) == [
        "relational",
        "simclr",
        "rotation",
        "deepcluster",
        "deepinfomax",
        "supervised",
        "random",
        "byol",
        "simsiam",
        "barlow",
        "vicreg",
        "moco",
        "dino",
        "swav",
        "emp",
    ]
    assert set(RUNS) == set(TRAINED)


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("relational", {"relation"}),
        ("simclr", {"head"}),
        ("rotation", {"classifier"}),
        ("deepcluster", {"head", "pseudo_labels", "cluster_weights"}),
        ("deepinfomax", {"local", "prior"}),
        ("supervised", {"classifier"}),
        ("random", set()),
        ("byol", {"head", "predictor", "target_backbone", "target_head"}),
        ("simsiam", {"head", "predictor"}),
        ("barlow", {"head"}),
        ("vicreg", {"head"}),
        ("moco", {"head", "target_backbone", "target_head", "queue", "position"}),
        ("dino", {"head", "prototypes", "target_backbone", "target_head", "target_prototypes", "center"}),
        ("swav", {"head", "prototypes"}),
        ("emp", {"head"}),
    ],
)
def test_a_row_and_its_class_agree(method: str, parts: set[str]) -> None:
    built = small_objective(method)
    assert isinstance(built, objectives.Objective)
    assert built.min_images in (1, 2)
    assert {name.split(".")[0] for name in built.head_state()} == parts
    whole = {f"backbone.{name}" for name in built.backbone.state_dict()} | built.head_state().keys()
    assert whole == built.state_dict().keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_constructor_takes_its_options_and_what_it_needs_of_the_context(method: str) -> None:
    kind = registry.resolve(METHODS[method].target)
    _, _, *keywords = inspect.signature(kind).parameters.values()  # after backbone and num_features
    options = METHODS[method].options()
    assert {p.name for p in keywords} == vars(options).keys() | set(kind.needs)
    assert all(p.kind is p.KEYWORD_ONLY for p in keywords)
    assert {p.name: p.default for p in keywords if p.name in vars(options)} == vars(options)


@pytest.mark.parametrize("method", METHODS)
def test_a_misspelt_keyword_is_an_error(method: str) -> None:
    kind = registry.resolve(METHODS[method].target)
    needed = {name: {"num_images": 9, "num_classes": 3, "side": 8, "kernels": "auto"}[name] for name in kind.needs}
    with pytest.raises(TypeError, match="unexpected keyword argument 'agregation'"):
        kind(torch.nn.Identity(), 8, **needed, agregation="sum")


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("relational", {"aggregation": "cta"}, "unknown value for aggregation: 'cta'; did you mean 'cat'"),
        ("relational", {"negatives": "rolled"}, "did you mean 'roll'"),
        ("relational", {"gamma": -1.0}, "gamma = -1.0 is out of range"),
        ("simclr", {"loss": "nt-xnt"}, "did you mean 'nt-xent'"),
        ("simclr", {"temperature": 0.0}, "temperature = 0.0 is out of range"),
        ("deepcluster", {"reset": "all"}, "unknown value for reset: 'all'"),
        ("deepinfomax", {"locations": 0}, "locations = 0 is out of range"),
        ("byol", {"momentum": 1.5}, "momentum = 1.5 is out of range"),
        ("moco", {"queue": 0}, "queue = 0 is out of range"),
        ("swav", {"epsilon": 0.0}, "epsilon = 0.0 is out of range"),
    ],
)
def test_a_constructor_checks_its_options(method: str, option: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        small_objective(method, **option)


def test_labels_reach_a_loss_only_where_it_uses_them() -> None:
    sees = {name for name, row in METHODS.items() if row.loss_uses_labels(row.options())}
    assert sees == {"supervised"}
    row = METHODS["relational"]
    assert row.loss_uses_labels(row.options(avoid_collisions=True))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("relational", {"views.policy": "relational", "views.number": 32, "train.batch_size": 64}),
        (
            "simclr",
            {
                "views.policy": "relational",
                "views.number": 2,
                "objective.temperature": 0.5,
                "objective.loss": "nt-xent",
            },
        ),
        ("rotation", {"views.policy": "rotation", "views.number": 4}),
        (
            "deepcluster",
            {
                "views.policy": "padded-crop",
                "views.number": 1,
                "objective.reset": "head",
                "objective.class_weights": False,
            },
        ),
        ("deepinfomax", {"views.policy": "flip", "views.number": 1, "train.lr": 1e-4, "objective.adversarial": True}),
        (
            "supervised",
            {"views.policy": "padded-crop", "train.optimizer": "sgd", "train.lr": 0.1, "train.schedule": "step"},
        ),
        ("random", {"train.epochs": 0}),
        *((name, {"views.policy": "relational", "views.number": 2}) for name in MODERN if name != "emp"),
        ("emp", {"views.policy": "relational", "views.number": 20}),
        *((name, {"objective.hidden": 256, "objective.projection": 64}) for name in MODERN),
    ],
)
def test_recipes_are_the_papers(method: str, expected: dict[str, Any]) -> None:
    common = {
        "train.batch_size": 128,
        "train.optimizer": "adam",
        "train.lr": 1e-3,
        "train.schedule": "constant",
        "train.epochs": 200,
        "train.weight_decay": 0.0,
    }
    recipe = config.flatten(config.draft(flags={"data.name": "cifar10", "method": method}).recipe().tables())
    assert {key: recipe[key] for key in {**common, **expected}} == {**common, **expected}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("simclr", {"objective.loss": "log-mean"}),
        ("deepcluster", {"objective.reset": "last", "objective.class_weights": True}),
        ("deepinfomax", {"objective.adversarial": False, "train.drop_last": True}),
        ("relational", {}),
        ("rotation", {}),
        ("supervised", {}),
    ],
)
def test_recipes_of_the_authors_code(method: str, expected: dict[str, Any]) -> None:
    flags = {"data.name": "cifar10", "method": method}
    paper = config.flatten(config.draft(flags=flags).recipe().tables())
    official = config.flatten(config.draft(flags={**flags, "preset": "official"}).recipe().tables())
    changed = {key: value for key, value in official.items() if paper[key] != value}
    assert changed == {"preset": "official", **expected}


@pytest.mark.parametrize("method", TRAINED)
@pytest.mark.parametrize("preset", ["paper", "official"])
def test_only_two_official_presets_drop_the_last_short_batch(method: str, preset: str, pictures: Path) -> None:
    """36 pictures in mini-batches of 8: four full ones and one of four."""
    flags = {"data.name": str(pictures), "method": method, "preset": preset, "train.batch_size": 8, "train.epochs": 1}
    prepared = resolve(config.draft(flags=flags))
    dropped = preset == "official" and method in ("deepinfomax", "emp")
    maker = BatchMaker(prepared.images, prepared.recipe, labels=prepared.labels, min_images=2)
    assert maker.steps_per_epoch == (4 if dropped else 5)
    last = maker.make(maker.steps_per_epoch - 1)
    assert last.views.shape[1] == (8 if dropped else 4)
    assert (last.epoch, maker.make(maker.steps_per_epoch).epoch) == (0, 1)


@pytest.mark.parametrize("method", BLIND)
def test_labels_in_a_batch_change_no_bit_of_an_unsupervised_method(method: str) -> None:
    start = small_objective(method, dtype=torch.float32)
    batch = small_batch(dtype=torch.float32)
    assert batch.labels is not None
    results = []
    for labels in (batch.labels, (batch.labels + 1) % CLASSES, torch.full_like(batch.labels, 99), None):
        built = copy.deepcopy(start)  # a step changes the queue of MoCo and the centre of DINO
        loss, metrics = built(batch.replace(labels=labels))
        parameters = [p for p in built.parameters() if p.requires_grad]
        results.append([loss, *torch.autograd.grad(loss, parameters, allow_unused=True), *metrics.values()])
    for other in results[1:]:
        assert all(one is two or torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.parametrize("method", BLIND)
def test_poisoned_labels_change_no_bit_of_a_run(
    method: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = pretrain(method, pictures, tmp_path / "clean", epochs=1)
    load = data.load

    def poisoned(*arguments: Any, **options: Any) -> data.ImageSet:
        images = load(*arguments, **options)
        assert images.labels is not None
        return replace(images, labels=np.random.default_rng(0).permutation(images.labels))

    monkeypatch.setattr(data, "load", poisoned)
    assert pretrain(method, pictures, tmp_path / "poisoned", epochs=1) == clean


def test_labels_do_change_a_supervised_run(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side of the test above: what it poisons is what supervised training reads."""
    clean = pretrain("supervised", pictures, tmp_path / "clean", epochs=1)
    load = data.load
    monkeypatch.setattr(
        data, "load", lambda *a, **o: (lambda s: replace(s, labels=s.labels[::-1].copy()))(load(*a, **o))
    )
    assert pretrain("supervised", pictures, tmp_path / "poisoned", epochs=1) != clean


@pytest.mark.parametrize("method", TRAINED)
def test_a_state_dict_in_mid_epoch_is_all_there_is(method: str) -> None:
    """Two steps, a round trip through the state into a fresh objective, a third step: the same bits as without."""
    built = small_objective(method, dtype=torch.float32)
    optimizer = torch.optim.Adam(trained(built), 1e-3)
    step(built, optimizer, 0)
    step(built, optimizer, 1)
    other = small_objective(method, dtype=torch.float32, clustered=False)
    other.load_state_dict({name: value.clone() for name, value in built.state_dict().items()})
    first, second = built(small_batch(dtype=torch.float32, step=2)), other(small_batch(dtype=torch.float32, step=2))
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


# The optimiser of the official presets, with parameters that lack a momentum while the others have one.
SGD = {"train.optimizer": "sgd", "train.lr": 0.01, "train.weight_decay": 5e-4}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((method, {}) for method in TRAINED),
        ("dino", {**SGD, "objective.freeze_epochs": 2}),  # still frozen at the checkpoint
        ("swav", SGD),
        ("deepcluster", SGD),
    ],
)
def test_an_interrupted_run_resumes_exactly(
    method: str, settings: dict[str, Any], pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at step 7 of three epochs of five, continued from the checkpoint of step 6: the same bytes.

    The third epoch starts after the restore: DeepCluster clusters anew, and the optimiser forgets its head.
    """
    from relatum.training.loop import Trainer

    class Stop(Exception):
        pass

    whole = pretrain(method, pictures, tmp_path / "whole", epochs=3, set=settings)
    original = Trainer._after_step

    def stop(self: Trainer, *arguments: Any) -> None:
        original(self, *arguments)
        if self.step == 7:
            raise Stop

    monkeypatch.setattr(Trainer, "_after_step", stop)
    sets = {"checkpoint.every_steps": 6, **settings}
    with pytest.raises(Stop):
        pretrain(method, pictures, tmp_path / "run", epochs=3, set=sets)
    monkeypatch.setattr(Trainer, "_after_step", original)
    steps: list[int] = []
    train = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self: (steps.append(self.step), train(self)))
    assert pretrain(method, pictures, tmp_path / "run", epochs=3, resume=True, set=sets) == whole
    assert steps == [6]


KILLED = """
import os, signal, sys
from relatum import cli
from relatum.training.loop import Trainer
after = Trainer._after_step
def kill(self, *arguments):
    after(self, *arguments)
    if self.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
Trainer._after_step = kill
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", TRAINED)
def test_a_killed_run_resumes_exactly(method: str, pictures: Path, tmp_path: Path) -> None:
    """SIGKILL after step 7 of three epochs of five, in a process of its own; the command goes on with the same bits."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    views, batch_size = RUNS[method]
    command_line = [
        "pretrain",
        str(pictures),
        "--method",
        method,
        "--views",
        str(views),
        "--batch-size",
        str(batch_size),
    ]
    command_line += ["--epochs", "3", "--seed", "1", "--threads", "1", "--set", "log.every_steps=1"]
    command_line += ["--set", "checkpoint.every_steps=3"]
    command_line += [word for key, value in SETS.get(method, {}).items() for word in ("--set", f"{key}={value}")]
    plain = [sys.executable, "-m", "relatum", *command_line]
    subprocess.run([*plain, "--out", str(whole)], check=True, capture_output=True, timeout=300)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *command_line, "--out", str(run)], capture_output=True, timeout=300, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (run / "backbone.safetensors").exists()
    again = subprocess.run([*plain, "--out", str(run), "--resume"], capture_output=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr.decode()
    assert b"resumed at step 6" in again.stderr
    assert (run / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()
    logged = [[json.loads(line) for line in (r / "metrics.jsonl").read_text().splitlines()] for r in (whole, run)]
    assert [row["step"] for row in logged[1]] == list(range(1, 16))
    assert [row["loss"] for row in logged[1]] == [row["loss"] for row in logged[0]]


@pytest.mark.parametrize("method", TRAINED)
def test_the_loss_falls(method: str) -> None:
    """Thirty steps on one batch: every method can fit what it is asked, on backbone and head alike."""
    options = {"locations": 64} if method == "deepinfomax" else {}
    built = small_objective(method, dtype=torch.float32, **options)
    optimizer = torch.optim.Adam(trained(built), 3e-3)
    losses = [step(built, optimizer, 0) for _ in range(30)]
    assert losses[-1] < 0.97 * losses[0]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "autocast"])
@pytest.mark.parametrize("method", MODERN)
def test_half_precision_gives_nearly_the_same_loss(method: str, kind: str) -> None:
    """In a custom loop with `objective.half()` or `.bfloat16()`, or with autocast, the loss stays in float32."""
    dtype = torch.float32 if kind == "autocast" else getattr(torch, kind)
    built = small_objective(method, dtype=torch.float32)
    expected = built(small_batch(images=16, dtype=torch.float32))[0]
    half = small_objective(method, dtype=torch.float32).to(dtype)
    with torch.autocast("cpu", enabled=kind == "autocast"):
        loss, metrics = half(small_batch(images=16, dtype=dtype))
    loss.backward()
    assert all(value.dtype == torch.float32 for value in (loss, *metrics.values()))
    assert loss.item() == pytest.approx(expected.item(), rel=0.02, abs=0.02)
    assert all(bool(torch.isfinite(p.grad).all()) for p in trained(half))


def trained(built: objectives.Objective) -> list[torch.nn.Parameter]:
    return [p for p in built.parameters() if p.requires_grad]


def step(built: objectives.Objective, optimizer: torch.optim.Optimizer, number: int) -> float:
    loss, _ = built(small_batch(dtype=torch.float32, seed=number, step=number))
    optimizer.zero_grad()
    loss.backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in trained(built))
    optimizer.step()
    built.after_step(number, 100)
    return float(loss.detach())


@pytest.mark.parametrize("method", ["relational", "simclr", "deepinfomax", "vicreg", "byol"])
def test_bare_views_do_where_nothing_else_is_needed(method: str) -> None:
    built = small_objective(method)
    batch = small_batch()
    torch.testing.assert_close(built(batch.views)[0], built(Batch(batch.views))[0], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"\(K, M, C, H, W\)"):
        built(batch.views[0])


def test_the_hook_of_the_others_does_nothing() -> None:
    built = small_objective("simclr")

    def never() -> torch.Tensor:
        raise AssertionError("features are computed only for those who ask")

    assert list(built.start_epoch(EpochContext(1, 0, never))) == []


@pytest.mark.parametrize(("method", "options"), [("relational", {"negatives": "random"}), ("deepinfomax", {})])
def test_draws_for_bare_views_differ_between_steps_and_repeat(method: str, options: dict[str, Any]) -> None:
    """A custom loop passes bare views: each call draws anew, and a second loop draws the same."""
    views = small_batch(views=2, images=12).views

    def losses() -> list[float]:
        built = small_objective(method, **options).eval()
        assert "next_step" not in str(built.state_dict().keys())
        return [built(views)[0].item() for _ in range(4)]

    first = losses()
    assert len(set(first)) == len(first)
    assert losses() == first
    resumed = small_objective(method, **options).eval()
    resumed.next_step = 2
    assert resumed(views)[0].item() == first[2]


def test_small_views_have_their_side_and_continue_the_numbers(pictures: Path) -> None:
    """Multi-crop: the K views stay as they are; a small view is a pure function of seed, epoch, sample and number."""
    flags = {"data.name": str(pictures), "method": "dino", "views.number": 2, "train.batch_size": 8, "train.epochs": 1}
    plain = resolve(config.draft(flags=flags))
    crops = resolve(config.draft(flags={**flags, "views.small_number": 3}))
    one, two = (BatchMaker(r.images, r.recipe).make(0) for r in (plain, crops))
    assert torch.equal(one.views, two.views)
    assert one.small_views is None
    side = one.views.shape[-1]
    assert two.small_views is not None
    assert two.small_views.shape == (3, 8, 3, side // 2, side // 2)
    assert two.all_views == 5
    same_policy = {**flags, "views.small_number": 3, "views.small_side": side, "views.small_policy": "relational"}
    large = resolve(config.draft(flags=same_policy))
    five = resolve(config.draft(flags={**flags, "views.number": 5}))
    continued = BatchMaker(large.images, large.recipe).make(0).small_views
    assert continued is not None
    assert torch.equal(continued, BatchMaker(five.images, five.recipe).make(0).views[2:])
    half = BatchMaker(crops.images, crops.recipe, rank=1, world=2).make(0).small_views
    assert half is not None
    assert torch.equal(half, two.small_views[:, 1::2])

"""Semi-supervised views: only visible labels decide, and every draw is a pure function of its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relatum
from relatum import data
from relatum.training.view_sources import Visible, sources

RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.integers(0, 5, 400)
SEEN = RANDOM.random(400) < 0.2
LABELS = np.where(SEEN, TRUTH, -1)
SLOTS = RANDOM.permutation(400)[:128]


def draw(
    labels: np.ndarray | None = LABELS,
    *,
    indices: np.ndarray = SLOTS,
    seed: int = 1,
    epoch: int = 0,
    views: int = 8,
) -> np.ndarray:
    return sources(indices, visible=None if labels is None else Visible.of(labels), seed=seed, epoch=epoch, views=views)


@pytest.mark.parametrize("labels", [None, np.full(400, -1)])
def test_without_labels_every_view_is_of_its_own_image(labels: np.ndarray | None) -> None:
    assert np.array_equal(draw(labels), np.tile(SLOTS, (8, 1)))


def test_labelled_slots_draw_labelled_images_of_their_class_and_others_keep_theirs() -> None:
    drawn_sources = draw()
    assert drawn_sources.shape == (8, 128)
    assert drawn_sources.dtype == np.int64
    labelled = LABELS[SLOTS] >= 0
    assert 10 < labelled.sum() < 118
    assert np.array_equal(drawn_sources[:, ~labelled], np.tile(SLOTS[~labelled], (8, 1)))
    drawn = drawn_sources[:, labelled]
    assert SEEN[drawn].all()
    assert np.array_equal(TRUTH[drawn], np.tile(TRUTH[SLOTS[labelled]], (8, 1)))
    assert len(np.unique(drawn)) > labelled.sum() / 2


def test_draws_are_uniform_within_the_class() -> None:
    labels = np.where(np.arange(100) < 10, 3, -1)
    drawn_sources = np.concatenate([draw(labels, indices=np.arange(10), epoch=e, views=50).ravel() for e in range(20)])
    counts = np.bincount(drawn_sources, minlength=10)
    assert len(counts) == 10
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001


def test_a_draw_depends_on_its_name_and_on_nothing_else() -> None:
    whole = draw()
    assert np.array_equal(whole[:, 40:90], draw(indices=SLOTS[40:90]))
    assert np.array_equal(whole[:3], draw(views=3))
    order = np.random.default_rng(1).permutation(128)
    assert np.array_equal(whole[:, order], draw(indices=SLOTS[order]))
    assert not np.array_equal(whole, draw(seed=2))
    assert not np.array_equal(whole, draw(epoch=1))


def test_a_class_without_a_visible_image_is_no_error() -> None:
    labels = np.array([-1, 7, -1, 7, 2])
    drawn_sources = draw(labels, indices=np.arange(5), views=20)
    assert set(drawn_sources[:, 4]) == {4}
    assert set(drawn_sources[:, 1]) == set(drawn_sources[:, 3]) == {1, 3}


FLAGS: dict[str, Any] = {"views": 3, "batch_size": 8, "epochs": 1, "compile": "off", "threads": 1, "quiet": True}


def test_a_run_reads_the_visible_labels_and_no_others(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice of labelled images is fixed first: it is balanced over all classes. Then the others are poisoned."""
    load, seen = data.load, np.arange(36) % 3 == 0
    monkeypatch.setattr(data, "labelled_subset", lambda *a, **o: seen)

    def run(name: str, poison: np.ndarray | None = None, **flags: Any) -> bytes:
        def poisoned(*arguments: Any, **options: Any) -> data.ImageSet:
            images = load(*arguments, **options)
            assert images.labels is not None
            other = (images.labels + 1 + np.arange(36) % 2) % 3
            return images if poison is None else replace(images, labels=np.where(poison, other, images.labels))

        monkeypatch.setattr(data, "load", poisoned)
        built = relatum.pretrain(pictures, out=tmp_path / name, **{**FLAGS, **flags})
        return (built.path / "backbone.safetensors").read_bytes()

    clean = run("clean", labels=0.3)
    assert run("hidden", ~seen, labels=0.3) == clean
    assert run("visible", seen, labels=0.3) != clean
    assert run("none", labels=0) == run("unsupervised") != clean


def test_a_run_says_how_many_labels_it_sees(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relatum.pretrain(pictures, out=tmp_path / "run", labels=0.2, **{**FLAGS, "epochs": 0, "quiet": False})
    assert "labels    7 of 36 (20 %), class-balanced" in capsys.readouterr().err


@pytest.mark.parametrize("avoid", [False, True])
def test_a_batch_carries_labels_only_where_the_objective_uses_them(
    avoid: bool, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relatum.objectives.relational import RelationalReasoning

    batch_labels: list[Any] = []
    forward = RelationalReasoning.forward

    def look(self: RelationalReasoning, batch: Any) -> Any:
        batch_labels.append(batch.labels)
        return forward(self, batch)

    monkeypatch.setattr(RelationalReasoning, "forward", look)
    sets = {"objective.avoid_collisions": avoid}
    relatum.pretrain(pictures, out=tmp_path / "run", labels=0.5, set=sets, **FLAGS)
    assert len(batch_labels) == 5
    if not avoid:
        assert batch_labels == [None] * 5
    else:
        labels = np.concatenate([np.asarray(one) for one in batch_labels])
        assert sorted(np.bincount(labels + 1)) == [6, 6, 6, 18]  # half of each class of twelve is hidden

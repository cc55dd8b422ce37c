"""Deep InfoMax: each term on its own against an oracle, and which way the prior pulls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small import agree, gradients, small_batch, small_objective
from torch import nn

import relatum
from relatum.errors import InputError
from relatum.objectives import deepinfomax
from relatum.objectives.deepinfomax import DeepInfoMax, local_loss, prior_loss, uniform_prior


def local_oracle(objective: DeepInfoMax, first_map: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """1×1 convolutions on [M, y] and [M′, y], both stored, as the definition says."""
    net = objective.local
    convolutions = [(layer.weight[:, :, None, None], layer.bias) for layer in (net.linear1, net.linear2, net.linear3)]

    def discriminate(pair: torch.Tensor) -> torch.Tensor:
        for number, (weight, bias) in enumerate(convolutions):
            pair = nn.functional.conv2d(pair if number == 0 else torch.relu(pair), weight, bias)
        return pair

    y_map = y[:, :, None, None].expand(-1, -1, *first_map.shape[2:])
    rolled = torch.cat([first_map[1:], first_map[:1]])
    positive = discriminate(torch.cat([first_map, y_map], 1))
    negative = discriminate(torch.cat([rolled, y_map], 1))
    return -torch.log(torch.sigmoid(positive)).mean() - torch.log(1 - torch.sigmoid(negative)).mean()


def halves(objective: DeepInfoMax, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first_map = objective.backbone.stem(views.flatten(0, 1))
    return first_map, objective.backbone.body(first_map)


@pytest.mark.parametrize(("views", "images"), [(1, 5), (3, 2)])
def test_the_local_term_and_its_gradient_equal_the_oracle(views: int, images: int) -> None:
    objective = small_objective("deepinfomax")
    first_map, y = halves(objective, small_batch(views, images).views)
    loss = local_loss(objective.local, first_map.flatten(2).transpose(1, 2), y, y.roll(1, 0))
    agree(objective, loss, local_oracle(objective, first_map, y))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five views in chunks of two, the last one shorter."""
    monkeypatch.setattr(deepinfomax, "CACHE", 2 * 16 * 16 * 256)
    objective = small_objective("deepinfomax")
    sizes: list[int] = []
    objective.local.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    first_map, y = halves(objective, small_batch(1, 5).views)
    loss = local_loss(objective.local, first_map.flatten(2).transpose(1, 2), y, y.roll(1, 0))
    assert sizes == [2, 2, 1]
    agree(objective, loss, local_oracle(objective, first_map, y))


@pytest.mark.parametrize("adversarial", [False, True])
def test_the_prior_term_and_its_gradient_equal_the_oracle(adversarial: bool) -> None:
    """The discriminator minimises the term in either case; the encoder maximises it where it is adversarial."""
    objective = small_objective("deepinfomax")
    y = halves(objective, small_batch(1, 5).views)[1]
    draws = uniform_prior(y, small_batch())
    loss = prior_loss(objective.prior, y, draws, adversarial=adversarial)
    d_prior, d_y = (torch.sigmoid(objective.prior(v)) for v in (draws, y))
    oracle = -torch.log(d_prior).mean() - torch.log(1 - d_y).mean()
    assert abs(loss.item() - oracle.item()) < 1e-9
    sign = -1 if adversarial else 1
    for part, factor in ((objective.prior, 1), (objective.backbone, sign)):
        got, want = gradients(loss, part), gradients(oracle, part)
        assert max(float(w.abs().max()) for w in want) > 1e-6
        assert all(float((g - factor * w).abs().max()) < 1e-9 for g, w in zip(got, want, strict=True))


def test_the_terms_are_weighed() -> None:
    batch = small_batch(1, 5)
    loss, metrics = small_objective("deepinfomax", beta=0.7, gamma=0.2)(batch)
    torch.testing.assert_close(loss, 0.7 * metrics["local"] + 0.2 * metrics["prior"], rtol=0, atol=1e-12)
    defaults = small_objective("deepinfomax")
    assert (defaults.beta, defaults.gamma, defaults.adversarial) == (1.0, 0.1, True)


def test_an_adversarial_prior_pulls_representations_to_it() -> None:
    """A free y against a discriminator: the official sign pushes it away from the prior, the right one to it."""
    ends = {}
    for adversarial in (False, True):
        torch.manual_seed(0)
        y = nn.Parameter(torch.full((256, 2), 1.5) + 0.1 * torch.randn(256, 2))
        net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam([{"params": [y], "lr": 0.01}, {"params": net.parameters(), "lr": 0.01}])
        for _ in range(200):
            optimizer.zero_grad()
            prior_loss(net, y, torch.rand(256, 2), adversarial=adversarial).backward()
            optimizer.step()
        ends[adversarial] = float(y.detach().mean())
    assert abs(ends[True] - 0.5) < 0.5
    assert ends[False] > 1.5


def test_prior_draws_are_uniform_and_named_by_the_step() -> None:
    y = torch.zeros(200, 64, dtype=torch.float64)
    draws = uniform_prior(y, small_batch(step=3))
    assert torch.equal(draws, uniform_prior(y, small_batch(step=3)))
    assert not torch.equal(draws, uniform_prior(y, small_batch(step=4)))
    assert float(draws.min()) >= 0
    assert float(draws.max()) < 1
    counts = np.histogram(draws.numpy(), 10, (0, 1))[0]
    assert float(((counts - 1280) ** 2 / 1280).sum()) < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001


def test_some_places_of_the_map_are_those_places() -> None:
    objective = small_objective("deepinfomax", locations=10)
    batch = small_batch(1, 4)
    first_map = halves(objective, batch.views)[0]
    everything = first_map.flatten(2).transpose(1, 2)
    selected = objective.places(first_map, batch)
    assert selected.shape == (4, 10, 8)
    match = (selected[0][:, None] == everything[0][None]).all(2)
    assert bool((match.sum(1) == 1).all())  # ten different places
    assert not torch.equal(selected, objective.places(first_map, batch.replace(step=99)))
    rest = gradients(objective(batch)[0], objective)
    assert all(bool(torch.isfinite(g).all()) for g in rest)


def test_sizes_are_those_of_the_authors_code() -> None:
    objective = small_objective("deepinfomax")
    assert [tuple(p.shape) for p in objective.local.parameters()][::2] == [(256, 72), (256, 256), (1, 256)]
    assert [tuple(p.shape) for p in objective.prior.parameters()][::2] == [(512, 64), (128, 512), (1, 128)]


class Net(nn.Module):
    """A backbone of one's own: a stem without parameters and a body that fits one side of the views alone."""

    def __init__(self, side: int, outputs: int = 5) -> None:
        super().__init__()
        self.side, self.outputs = side, outputs

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 2)

    def body(self, first_map: torch.Tensor) -> torch.Tensor:
        return first_map.reshape(len(first_map), 3, (self.side // 2) ** 2).mean(2).repeat(1, 2)[:, : self.outputs]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.stem(x))


class Flat(Net):
    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return super().stem(x).flatten(1)


def test_a_backbone_of_ones_own_is_looked_at_with_the_views_of_the_run() -> None:
    objective = DeepInfoMax(Net(40), 5, side=40)
    assert objective.local.channels == 3
    loss, _ = objective(torch.randn(1, 4, 3, 40, 40))
    assert bool(torch.isfinite(loss))
    with pytest.raises(InputError, match=r"num_features is 6, but Net.body gives \(5,\) per view"):
        DeepInfoMax(Net(40), 6, side=40)
    with pytest.raises(InputError, match=r"a map \(N, c, H, W\); Flat.stem gives \(2, 1200\)"):
        DeepInfoMax(Flat(40), 5, side=40)


class Trained(Net):
    """The same with something to train."""

    num_features = 5

    def __init__(self) -> None:
        super().__init__(40)
        self.scale = nn.Parameter(torch.ones(()))

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * super().stem(x)


def test_a_run_says_that_there_is_nothing_to_compile(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = relatum.pretrain(
        pictures, out=tmp_path / "run", method="deepinfomax", backbone=Trained(), side=40, epochs=1, batch_size=12,
        compile="on", threads=1,
    )  # fmt: skip
    said = capsys.readouterr().err
    assert "deepinfomax has nothing to compile" in said
    assert "torch.compile" not in said
    assert "compiling the backbone" not in said
    assert run.recipe.run.compile == "off"


def test_what_it_cannot_use_is_refused() -> None:
    with pytest.raises(InputError, match=r"Sequential needs stem\(x\)"):
        DeepInfoMax(nn.Sequential(nn.Flatten()), 4)
    with pytest.raises(ValueError, match="at least 2 images"):
        small_objective("deepinfomax")(small_batch(2, 1))


def test_building_leaves_the_backbones_statistics_alone() -> None:
    objective = small_objective("deepinfomax")
    assert bool((objective.backbone.layer1.bn.running_mean == 0).all())
    assert objective.backbone.training


def test_it_runs_in_mixed_precision() -> None:
    objective = small_objective("deepinfomax", dtype=torch.float32)
    batch = small_batch(1, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = objective(batch)
    assert loss.dtype == torch.float32
    assert float((loss - objective(batch)[0]).detach().abs()) < 0.02
    assert all(bool(torch.isfinite(g).all()) for g in gradients(loss, objective))

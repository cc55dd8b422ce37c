import copy

import pytest
import torch
from torch import nn

from relatum.errors import InputError
from relatum.relation import DotHead, EncoderHead, RelationHead, make_head, pair_loss, random_pairs, roll_pairs, score


def twin_logits(name, head, z, pairs):
    """The obvious way: encode every row with a plain Sequential, then one product after another."""
    if name == "encoder":
        z = nn.Sequential(head.linear1, head.bn1, nn.LeakyReLU(0.01), head.linear2)(z)
    return torch.stack([z[a] @ z[b] for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)])


@pytest.mark.parametrize("name", ["dot", "encoder"])
@pytest.mark.parametrize("pairs", [roll_pairs(4, 5), random_pairs(3, 7, 2)], ids=["roll", "random"])
def test_value_and_gradients_equal_the_obvious_twin(name, pairs, monkeypatch):
    monkeypatch.setattr("relatum.relation.heads.CHUNK", 17)
    torch.manual_seed(3)
    head = make_head(name, 6).double()
    z = torch.randn(pairs.rows, 6, dtype=torch.float64, requires_grad=True)
    twin = copy.deepcopy(head)
    logits = twin_logits(name, twin, z, pairs)
    t = pairs.tensors()[2].double()
    y = torch.sigmoid(logits)
    weight = 0.5 * ((1 - t) * y + t * (1 - y)) ** 2
    expected = (weight * nn.functional.binary_cross_entropy_with_logits(logits, t, reduction="none")).mean()
    expected_gradients = torch.autograd.grad(expected, [z, *twin.parameters()])
    for backend in ("auto", "torch", "reference"):
        ours = copy.deepcopy(head)
        if name == "encoder":
            ours.bn1.reset_running_stats()
        result = pair_loss(ours, z, pairs, backend=backend)
        assert result.loss.item() == pytest.approx(expected.item(), rel=1e-12)
        for gradient, right in zip(
            torch.autograd.grad(result.loss, [z, *ours.parameters()]), expected_gradients, strict=True
        ):
            assert torch.allclose(gradient, right, rtol=1e-9, atol=1e-15)
        correct = (logits > 0) == (t > 0.5)
        assert result.positive_accuracy.item() == pytest.approx(correct[t > 0.5].double().mean().item())
        assert result.negative_accuracy.item() == pytest.approx(correct[t < 0.5].double().mean().item())
        if name == "encoder":
            assert torch.allclose(ours.bn1.running_mean, twin.bn1.running_mean)


def test_the_table_of_heads():
    assert isinstance(make_head("relation", 8, 32, "sum"), RelationHead)
    assert type(make_head("dot", 8)) is DotHead
    encoder = make_head("encoder", 8)
    assert isinstance(encoder, EncoderHead)
    assert [encoder.linear1.out_features, encoder.linear2.out_features] == [256, 64]
    with pytest.raises(InputError, match="did you mean 'encoder'"):
        make_head("encodr", 8)
    with pytest.raises(ValueError, match="10 rows"):
        pair_loss(DotHead(), torch.randn(9, 4), roll_pairs(2, 5))


def test_scores_of_a_dot_product_are_symmetric():
    z_i, z_j = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
    for head in (DotHead(), EncoderHead(8)):
        assert torch.allclose(score(head, z_i, z_j), score(head, z_j, z_i))
        assert torch.allclose(score(head, z_i, z_j, symmetric=True), score(head, z_i, z_j))

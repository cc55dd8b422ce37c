import pytest
import torch

from relatum.bench import head as bench
from relatum.bench.plain_head import PlainHead
from relatum.relation import RelationHead, pair_loss, roll_pairs


@pytest.mark.parametrize(("K", "M"), [(2, 2), (3, 5), (6, 4)])
def test_the_plain_implementation_computes_the_same_loss_and_gradients(K, M):
    torch.manual_seed(1)
    ours, plain = RelationHead(5), PlainHead(5, K, M)
    plain.load_state_dict(ours.state_dict())
    z = torch.randn(K * M, 5, requires_grad=True)
    loss, rival = pair_loss(ours, z, roll_pairs(K, M)).loss, plain(z)
    assert torch.allclose(loss, rival, rtol=1e-5)
    a, b = (torch.autograd.grad(loss_, z)[0] for loss_ in (loss, rival))
    assert (a - b).norm() < 1e-4 * b.norm()


def test_both_steps_give_one_loss():
    assert torch.allclose(bench.make_step("ours", 4, 6, 8)(), bench.make_step("plain", 4, 6, 8)(), rtol=1e-5)


def test_measure_reports_the_contracts_fields(monkeypatch):
    monkeypatch.setattr(bench, "extra_bytes", lambda side, *shape: {"ours": 10, "plain": 100}[side])
    result = bench.measure(3, 4, 8, repeats=3)
    for name in (
        "what",
        "method",
        "views",
        "batch_size",
        "side",
        "backbone",
        "ours_seconds",
        "plain_seconds",
        "speedup",
    ):
        assert name in result
    assert result["what"] == "head"
    assert result["pairs"] == 4 * 6
    assert result["speedup"] == result["plain_seconds"] / result["ours_seconds"]
    assert (result["extra_bytes_ours"], result["extra_bytes_plain"]) == (10, 100)
    low, high = result["spread"]["ours"]["q1"], result["spread"]["ours"]["q3"]
    assert 0 < low <= high


@pytest.mark.slow
def test_memory_at_most_a_tenth_and_516096_pairs_under_a_gibibyte():
    ours, plain = (bench.extra_bytes(side, 32, 64, 64) for side in ("ours", "plain"))
    assert 0 < ours <= plain / 10
    assert bench.extra_bytes("ours", 64, 128, 64) < 2**30

from __future__ import annotations

import pytest
import torch

from relatum.config import Train
from relatum.training import optim


def test_learning_rates_are_functions_of_the_step() -> None:
    constant = Train(lr=0.1, epochs=10)
    assert [optim.learning_rate(constant, s, 10) for s in (0, 50, 99)] == [0.1] * 3
    step = Train(lr=0.1, epochs=8, schedule="step")
    rates = [optim.learning_rate(step, 10 * epoch, 10) for epoch in range(8)]
    assert rates == pytest.approx([0.1] * 4 + [0.01] * 2 + [0.001] * 2)  # ÷10 at 50 % and at 75 %
    cosine = Train(lr=1.0, epochs=10, schedule="cosine", warmup_epochs=1)
    assert optim.learning_rate(cosine, 0, 10) == pytest.approx(0.1)
    assert optim.learning_rate(cosine, 9, 10) == pytest.approx(1.0)
    assert optim.learning_rate(cosine, 55, 10) == pytest.approx(0.5)
    assert optim.learning_rate(cosine, 99, 10) < 1e-3


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_optimisers_equal_the_plain_ones(name: str) -> None:
    """The fused update against the same optimiser without fusing, with weight decay, over several steps."""
    train = Train(optimizer=name, lr=0.05, weight_decay=0.01)
    ours, plain = (torch.nn.Parameter(torch.linspace(-1, 1, 40).reshape(5, 8).clone()) for _ in range(2))
    first = optim.make_optimizer(train, [ours])
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    options = {} if name == "adam" else {"momentum": 0.9}
    second = kind([plain], lr=0.05, weight_decay=0.01, foreach=False, **options)
    for step in range(6):
        for parameter, optimizer in ((ours, first), (plain, second)):
            optimizer.zero_grad()
            (parameter.sin() * (step + 1)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-7)


def test_a_backbone_may_have_a_learning_rate_of_its_own() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    assert [len(g["params"]) for g in optim.parameter_groups(Train(), net, net[0])] == [4]
    train = Train(lr=1e-3, backbone_lr=1e-4)
    optimizer = optim.make_optimizer(train, optim.parameter_groups(train, net, net[0]))
    assert [set(g["params"]) for g in optimizer.param_groups] == [set(net[1].parameters()), set(net[0].parameters())]
    for rate in (1e-3, 1e-4):
        optim.set_learning_rate(optimizer, rate)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([rate, rate / 10])


def test_state_of_renewed_parameters_is_forgotten() -> None:
    a, b = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = optim.make_optimizer(Train(), [a, b])
    (a.sum() + b.sum()).backward()
    optimizer.step()
    optim.forget(optimizer, [b])
    assert a in optimizer.state
    assert b not in optimizer.state
    optim.set_learning_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_parameter_may_join_or_be_renewed_while_the_others_are_trained(name: str) -> None:
    """DINO and SwAV freeze prototypes for some epochs, DeepCluster reinitialises its head: against one tensor each."""
    train = Train(optimizer=name, lr=0.05, weight_decay=0.01)
    start = torch.linspace(-1, 1, 6)
    together = [torch.nn.Parameter(start.clone()) for _ in range(3)]
    alone = [torch.nn.Parameter(start.clone()) for _ in range(3)]
    optimizer = optim.make_optimizer(train, together)
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    options = {} if name == "adam" else {"momentum": 0.9}

    def plain(parameter: torch.nn.Parameter) -> torch.optim.Optimizer:
        return kind([parameter], lr=0.05, weight_decay=0.01, foreach=False, **options)

    singles = [plain(parameter) for parameter in alone]
    for step in range(6):
        if step == 4:  # the last one is renewed
            optim.forget(optimizer, together[2:])
            singles[2] = plain(alone[2])
        for parameters in (together, alone):
            for number, parameter in enumerate(parameters):
                parameter.grad = None
                if number != 1 or step > 2:  # the second one is frozen until then
                    (parameter.sin() * (step + 1)).sum().backward()
        optimizer.step()
        for number, single in enumerate(singles):
            if alone[number].grad is not None:
                single.step()
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-7)


def test_missing_momentum_starts_as_torch_starts_it() -> None:
    """The first update has the same bits as without the buffers of zeros."""
    train = Train(optimizer="sgd", lr=0.05, weight_decay=0.01)
    ours, plain = (torch.nn.Parameter(torch.linspace(-1, 1, 40).clone()) for _ in range(2))
    optimizers = [
        optim.make_optimizer(train, [ours]),
        torch.optim.SGD([plain], lr=0.05, momentum=0.9, weight_decay=0.01, fused=True),
    ]
    for _ in range(3):
        for parameter, optimizer in zip((ours, plain), optimizers, strict=True):
            parameter.grad = parameter.detach().cos()
            optimizer.step()
    assert torch.equal(ours, plain)

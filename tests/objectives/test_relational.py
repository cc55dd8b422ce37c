"""What `RelationalReasoning` says about a backbone; its loss and gradients are tested in tests/relation."""

from __future__ import annotations

import pytest
from torch import nn

from relatum import RelationalReasoning


def test_a_network_that_still_has_its_classifier_is_warned_of() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.fc: nn.Module = nn.Linear(8, 1000)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.fc(self.body(x))

    network = Network()
    with pytest.warns(UserWarning, match=r"logits are not a representation"):
        RelationalReasoning(network)
    network.fc = nn.Identity()
    RelationalReasoning(network)  # warnings are errors in tests


def test_a_name_is_not_a_backbone() -> None:
    with pytest.raises(TypeError, match=r"the backbone is an nn\.Module, not 'conv4'"):
        RelationalReasoning("conv4")  # type: ignore[arg-type]

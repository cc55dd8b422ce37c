"""What is particular to the batched torch path; its pixels are tested in test_parity."""

import numpy as np
import pytest
import torch

from relatum.views import POLICIES, sample, tensor


def params_for(name, views=6):
    return sample(
        POLICIES[name], seed=0, epoch=0, indices=np.arange(views), views=1, height=32, width=32, pad=4, side=32
    )


def test_sources_gather_from_a_resident_dataset():
    images = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)
    sources = torch.tensor([4, 4, 0, 1, 2, 0])
    params = params_for("relational").to("cpu")
    whole = tensor.make_views(images, sources, params, 32, (0.5,) * 3, (0.2,) * 3)
    assert torch.equal(whole, tensor.make_views(images[sources], None, params, 32, (0.5,) * 3, (0.2,) * 3))


@pytest.mark.parametrize("name", ["relational", "finetune", "rotation"])
def test_one_graph(name):
    """Dynamo traces the whole function without a break; `eager` as the backend needs no compiler."""
    images = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8)
    params = params_for(name).to("cpu")
    compiled = torch.compile(tensor.make_views, fullgraph=True, backend="eager")
    views = compiled(images, None, params, 32, (0.5,) * 3, (0.2,) * 3)
    assert torch.allclose(views, tensor.make_views(images, None, params, 32, (0.5,) * 3, (0.2,) * 3), atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, while inductor is imported
def test_inductor_gives_the_same_pixels():
    images = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8)
    params = params_for("relational").to("cpu")
    compiled = torch.compile(tensor.make_views, fullgraph=True)
    views = compiled(images, None, params, 32, (0.0,) * 3, (1.0,) * 3)
    expected = tensor.make_views(images, None, params, 32, (0.0,) * 3, (1.0,) * 3)
    assert (views - expected).abs().max() < 1 / 255

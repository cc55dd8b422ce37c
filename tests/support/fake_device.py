"""Training steps on a device without content: tensors have a shape, a type and a device, and no values.

On torch's `meta` device an operation with a tensor of another device is an error, and so is all that reads a value or
copies to the host (`.item()`, `.cpu()`, `.numpy()`, `nonzero`, masks as indices, `bincount`): on a GPU the host would
wait there. Fake CUDA tensors (`FakeTensorMode`) would show the same under CUDA's name, but a CPU build of torch cannot
differentiate, copy or index them: they need CUDA's device guard.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

META = torch.device("meta")


def empty(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and layout without content; float32 in place of float64."""
    kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device=META)


def move(module: nn.Module) -> None:
    """Replace all parameters and buffers of a module by tensors without content."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                part._parameters[name] = nn.Parameter(empty(parameter), requires_grad=parameter.requires_grad)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = empty(buffer)

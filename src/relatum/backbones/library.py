"""Backbones of other libraries by name: `timm:NAME` and `torchvision:NAME`, without their classifier.

A name that ends in `/small` gets a stem for small images: a 3×3 convolution with stride 1 and no max-pool, as is usual
for CIFAR-sized images, in place of the 7×7 convolution with stride 2.
"""

from __future__ import annotations

import torch
from torch import nn

from relatum import registry
from relatum.errors import InputError, unknown

_CLASSIFIERS = ("fc", "classifier", "head", "heads")
_LOGITS = 1000  # ImageNet's classes: the number of outputs if the classifier was not removed


def build(name: str) -> nn.Module:
    """A network of timm or torchvision with random weights and without its classifier; `name` as in the recipe."""
    library, model, small = registry.parse_library(name)
    network = _timm(model) if library == "timm" else _torchvision(model)
    if small:
        use_small_stem(network, name)
    return network


def _missing(library: str, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    advice = f"install it: pip install {library}."
    if not isinstance(error, ImportError):  # RuntimeError: the compiled part of torchvision is for another build
        advice = (
            f"torchvision was built for another torch than the one here ({torch.__version__}): install both from the"
            " same package index, as https://pytorch.org/get-started shows."
        )
    return InputError(f"{library} cannot be imported ({reason}); {advice}")


def _timm(model: str) -> nn.Module:
    try:
        import timm
    except Exception as error:  # it imports torchvision
        raise _missing("timm", error) from None
    if not timm.is_model(model):
        raise unknown("timm model", model, timm.list_models())
    network: nn.Module = timm.create_model(model, pretrained=False, num_classes=0)
    return network


def _torchvision(model: str) -> nn.Module:
    try:
        from torchvision import models
    except Exception as error:
        raise _missing("torchvision", error) from None
    try:
        network: nn.Module = models.get_model(model, weights=None)
    except ValueError:
        raise unknown("torchvision model", model, models.list_models()) from None
    name = classifier_name(network)
    if name is None:
        raise InputError(f"torchvision:{model} has no classifier to remove; write a module:function that removes it.")
    setattr(network, name, nn.Identity())
    return network


def classifier_name(network: nn.Module) -> str | None:
    """The name of the part that turns features into class scores, or None."""
    for name, part in network.named_children():
        if name in _CLASSIFIERS and any(isinstance(module, nn.Linear) for module in part.modules()):
            return name
    return None


def gives_logits(network: nn.Module) -> bool:
    """Whether the network still ends in the classifier of ImageNet's 1,000 classes."""
    name = classifier_name(network)
    if name is None:
        return False
    layers = [module for module in getattr(network, name).modules() if isinstance(module, nn.Linear)]
    return layers[-1].out_features == _LOGITS


def use_small_stem(network: nn.Module, name: str = "this network") -> None:
    """Replace a 7×7/2 first convolution by a 3×3/1 one, and remove the max-pool behind it."""
    first = getattr(network, "conv1", None)
    if not isinstance(first, nn.Conv2d):
        raise InputError(
            f"{name} has no convolution `conv1`, so it cannot get a stem for small images; leave out /small."
        )
    bias = first.bias is not None
    stem = nn.Conv2d(first.in_channels, first.out_channels, 3, stride=1, padding=1, bias=bias)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    if stem.bias is not None:
        torch.nn.init.zeros_(stem.bias)
    network.conv1 = stem
    if isinstance(getattr(network, "maxpool", None), nn.Module):
        network.maxpool = nn.Identity()

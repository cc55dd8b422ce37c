"""Shared by all backbones: initialisation, construction by name and seed, and the size of a representation."""

from __future__ import annotations

import importlib
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from relatum import registry, rng
from relatum.backbones import library
from relatum.errors import InputError, require_channels, require_positive


def initialise(network: nn.Module) -> None:
    """Convolutions from N(0, √(2 / (k²·out))), batch-norm weight 1 and bias 0 (the authors' initialisation)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
            nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / fan_out))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


@contextmanager
def seeded(*name: int) -> Iterator[None]:
    """Modules built inside draw their weights from the seed `name`; the caller's random state does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.torch_seed(rng.WEIGHTS, *name))
        yield


@contextmanager
def seeded_dropout(device: torch.device, *name: int) -> Iterator[None]:
    """What modules draw inside (dropout, stochastic depth) is a function of `name`; the caller's state does not change.

    Torch's modules draw from the global generators, whose state no checkpoint contains. `torch.manual_seed` would take
    20 times as long without a GPU: it formats a stack trace.
    """
    seed = rng.torch_seed(rng.DROPOUT, *name)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif device.type == "mps":
            torch.mps.manual_seed(seed)
        yield


class TooLarge(Exception):
    """A network has more parameters than `at_most` allows."""


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Raise `TooLarge` while a network with more parameters than this is built, before all are in memory."""
    thread, left = threading.get_ident(), number

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal left
        if parameter is not None and threading.get_ident() == thread:
            left -= parameter.numel()
            if left < 0:
                raise TooLarge(name)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def build(backbone: str | nn.Module | Callable[[], nn.Module], *, seed: int = 0) -> nn.Module:
    """A backbone from a registered name, a `module:function`, a function, or a module, which is returned unchanged.

    `module:function` is imported and called: pass only names that the user gave. A name that was read from a file must
    go through `registry.backbone_from_file` first.
    """
    if isinstance(backbone, nn.Module):
        return backbone
    with seeded(seed):
        network: Any = _constructor(backbone)() if isinstance(backbone, str) else backbone()
    if isinstance(backbone, str) and isinstance(network, nn.Module) and library.gives_logits(network):
        module, _, name = backbone.partition(":")
        better = f"--backbone {module.split('.')[0]}:{name} removes it"
        raise InputError(
            f"backbone '{backbone}' ends in a classifier of 1,000 classes: its logits are not a representation."
            f" {better if module.split('.')[0] in registry.LIBRARIES else 'Remove its last layer'}."
        )
    if not isinstance(network, nn.Module):
        raise InputError(f"backbone '{backbone}' returned a {type(network).__name__}, not a torch.nn.Module.")
    if has_lazy_weights(network):  # the first images would draw them, from another seed and too late to load weights
        raise InputError(
            f"backbone '{backbone}' has lazy layers whose weights do not exist yet: pass images through the network"
            " once in the function that returns it."
        )
    return network


def _constructor(name: str) -> Callable[[], Any]:
    if ":" not in name:
        return registry.resolve(registry.find(registry.BACKBONES, "backbone", name).target)
    module, _, attribute = name.partition(":")
    if module in registry.LIBRARIES:
        return lambda: library.build(name)
    if module == "object":
        raise InputError(
            f"this run was trained with a custom backbone ({attribute}): pass it to load_backbone(run, backbone=...)."
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last: a file in the working directory never replaces an installed module
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        advice = "Give module:function."
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            advice = f"Install {error.name}, or put its file on the Python path."
        raise InputError(f"backbone '{name}' cannot be imported: {error}. {advice}") from error


def feature_size(backbone: nn.Module, side: int = 32) -> int:
    """The size d of a representation: what a pass over two blank images gives, or `num_features` if that fails.

    A network may take images of another size only. What others declare is not always the size of the output: in timm,
    `num_features` of MobileNetV3 is that of the last feature map, and one more layer follows (576 and 1,024).
    """
    declared = getattr(backbone, "num_features", None)
    known = declared if type(declared) is int and declared > 0 else None
    if known is not None and type(backbone).__module__.startswith("relatum."):
        return known
    try:
        output = _try(backbone, side, "give the size of a representation: num_features=...")
    except InputError:
        if known is None:
            raise
        return known
    return int(representations(output, count=2).shape[1])


def has_lazy_weights(module: nn.Module) -> bool:
    """Whether the shape of some weights is not known yet: those of a `LazyLinear` that has seen no input."""
    tensors = (*module.parameters(), *module.buffers())
    return any(is_lazy(tensor) for tensor in tensors)


def has_idle_weights(backbone: nn.Module, side: int) -> bool:
    """Whether some trained weights do not influence representations, such as those of a classifier that is not called.

    Two blank images are passed in eval mode.
    """
    weights = [p for p in backbone.parameters() if p.requires_grad]
    with evaluating(backbone):
        z = backbone(blank_images(backbone, side))
    if not z.requires_grad:
        return bool(weights)
    return any(gradient is None for gradient in torch.autograd.grad(z.sum(), weights, allow_unused=True))


def image_settings(backbone: nn.Module) -> dict[str, Any]:
    """Side, mean and standard deviation of a backbone's images, as far as its `info` states them."""
    info = getattr(backbone, "info", None) or {}  # missing for a module of the user
    if not isinstance(info, Mapping):
        raise InputError(f"the backbone's info is a dict with side, mean and std, not {type(info).__name__}.")
    found = {name: info[name] for name in ("side", "mean", "std") if info.get(name) is not None}
    for name, value in found.items():
        if name == "side":
            require_positive("the backbone's info: side", value)
        else:
            found[name] = require_channels(name, value)
    return found


def check_info(backbone: nn.Module) -> None:
    """Refuse a network whose `info` is its own: without relatum's, `embed` would prepare images in another way."""
    own = getattr(backbone, "info", None)
    if not isinstance(own, Mapping | None) or isinstance(getattr(type(backbone), "info", None), property):
        raise InputError(
            f"the backbone has an attribute 'info' of its own ({type(own).__name__}), where relatum keeps the side and"
            " the normalisation of its images: rename it, or wrap the network in a torch.nn.Sequential."
        )


def representations(output: Any, count: int) -> torch.Tensor:
    """The output of a backbone for `count` images, if it is a tensor (count, d) of floating-point numbers."""
    if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != count or not output.shape[1]:
        given = f"shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else f"a {type(output).__name__}"
        raise InputError(f"a backbone must give (N, d) representations; this one gives {given} for {count} images.")
    if not output.is_floating_point() or output.layout is not torch.strided:
        kind = str(output.dtype if output.layout is torch.strided else output.layout).removeprefix("torch.")
        raise InputError(f"a backbone must give representations of floating-point numbers; this one gives {kind}.")
    return output


def check_side(backbone: nn.Module, name: str, side: int, small_side: int | None = None) -> None:
    """Refuse a network of others that does not take images of this size; it says so by failing.

    Any network may be too deep for small views.
    """
    if ":" in name:
        _try(backbone, side, f"{name} may need another size: --side, for example --side 224")
    if small_side:
        _try(backbone, small_side, f"small views may need another size for {name}: --set views.small_side={side}")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to eval mode, and afterwards restore the mode of each sub-module (some may be frozen separately)."""
    modes = [(m, m.training) for m in module.modules()]
    with suppress(NotImplementedError):  # a program of torch.export has no modes
        module.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def blank_images(backbone: nn.Module, side: int) -> torch.Tensor:
    """Two black images, of the type and on the device of a backbone's weights."""
    reference = next(backbone.parameters(), torch.empty(0))
    return torch.zeros(2, 3, side, side, dtype=reference.dtype, device=reference.device)


def _try(backbone: nn.Module, side: int, advice: str) -> Any:
    """What the backbone gives for two blank images."""
    try:
        with torch.no_grad(), evaluating(backbone):
            return backbone(blank_images(backbone, side))
    except Exception as error:  # a custom network may need other sizes or channels
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"a pass over two blank {side} × {side} images failed ({reason}); {advice}.") from error

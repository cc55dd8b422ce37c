"""The parts of a run, built from its recipe: the objective with its backbone, the batches, the compiled backbone."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from relatum import backbones, objectives
from relatum.backbones import recompute
from relatum.config import Recipe
from relatum.config.methods import METHODS
from relatum.errors import InputError
from relatum.objectives import Context, Objective
from relatum.runs.weights import check_storable, load_state, read_backbone
from relatum.system.progress import Display
from relatum.training.batches import BatchMaker, small_side
from relatum.training.resolve import Resolved


def make_objective(resolved: Resolved, custom_backbone: nn.Module | None = None, *, init: bool = True) -> Objective:
    """The recipe's objective with its weights drawn from the seed, or read from the recipe's `init`."""
    recipe, images = resolved.recipe, resolved.images
    backbone = custom_backbone
    if backbone is None:
        backbone = backbones.build(recipe.backbone.name, seed=recipe.seed)
    side = recipe.data.side or images.side
    small = small_side(recipe, side) if recipe.views.small_number else None
    backbones.check_side(backbone, recipe.backbone.name, side, small)
    if recipe.run.kernels == "numba" and recipe.run.precision == "32":
        from relatum.backbones import fused  # numba is imported only where it is used

        fused.attach(backbone)
    if recipe.init and init:
        load_state(backbone, read_backbone(recipe.init)[0], recipe.init)
    num_features = backbones.feature_size(backbone, side)
    _check_network(backbone, trained=recipe.train.epochs > 0)
    with backbones.seeded(recipe.seed, 1):
        objective = objectives.build(
            recipe.method,
            backbone,
            num_features,
            recipe.objective,
            Context(
                num_images=len(images),
                num_classes=images.num_classes,
                side=side,
                kernels=recipe.run.kernels,
            ),
        )
    check_storable(backbone.state_dict())  # before hours of training
    if recipe.run.recompute:
        for encoder in objective.encoders():
            recompute.attach(encoder)
    return objective.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _check_network(backbone: nn.Module, *, trained: bool) -> None:
    """Refuse a network of the user that cannot be trained, or whose weights could not be used afterwards."""
    backbones.check_info(backbone)
    _check_float32(backbone)
    for name, value in backbone.state_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(
                f"the backbone has NaN or infinite values in {name} before training. A mask of infinite values must not"
                " be a part of the state dict: register_buffer(..., persistent=False)."
            )
    if not trained:
        return
    if not any(weight.requires_grad for weight in backbone.parameters()):
        raise InputError(
            "no weight of the backbone needs a gradient, so nothing would be trained. relatum.load_backbone gives"
            " frozen networks: call backbone.requires_grad_(True)."
        )
    if any(isinstance(module, torch.jit.ScriptModule) for module in backbone.modules()):
        raise InputError(
            "TorchScript cannot be trained: a copy of it loses its weights. Pass the module it is made of."
        )
    try:
        backbone.train(backbone.training)
    except NotImplementedError as error:  # a program of torch.export
        raise InputError(f"the backbone cannot be trained: {error}") from None


def _check_float32(backbone: nn.Module) -> None:
    """Refuse weights of another precision: views are float32, and mixed precision casts them as needed."""
    for name, weight in backbone.named_parameters():
        if weight.dtype != torch.float32:
            kind = str(weight.dtype).removeprefix("torch.")
            raise InputError(
                f"the backbone's weights must be float32; '{name}' is {kind}. Convert it with backbone.float();"
                " precision='bf16-mixed' makes the arithmetic cheaper."
            )


def make_batches(resolved: Resolved, objective: Objective, fabric: Fabric) -> BatchMaker:
    """The batches of this process; too few images for a single step of the method are an error."""
    recipe = resolved.recipe
    shared = recipe.train.sync == "global"
    least = objective.min_images if shared else objective.min_images * fabric.world_size
    if recipe.train.epochs and recipe.train.batch_size < max(least, fabric.world_size):
        many = f" on {fabric.world_size} devices" * (fabric.world_size > 1)
        raise InputError(
            f"{recipe.method} needs at least {max(least, fabric.world_size)} images per step{many} (--batch-size)."
        )
    maker = BatchMaker(
        resolved.images,
        recipe,
        labels=resolved.labels,
        uses_labels=METHODS[recipe.method].loss_uses_labels(recipe.objective),
        min_images=objective.min_images,
        rank=fabric.global_rank,
        world=fabric.world_size,
        shared=shared,
        device=fabric.device,
    )
    if recipe.train.epochs and not maker.steps_per_epoch:
        least = recipe.train.batch_size if recipe.train.drop_last else least
        where = f" on {fabric.world_size} devices" * (fabric.world_size > 1)
        raise InputError(
            f"a step of {recipe.method}{where} needs at least {least} images; there are {len(resolved.images)}."
        )
    return maker


def compile_where_asked(
    recipe: Recipe, objective: Objective, maker: BatchMaker, fabric: Fabric, display: Display
) -> Recipe:
    """Compile the backbone if the recipe asks for it; a failure is one warning, and the recipe records it."""
    if recipe.run.compile != "on" or recipe.train.epochs == 0:
        return recipe
    not_compiled = replace(recipe, run=replace(recipe.run, compile="off"))
    parts: list[nn.Module] = []
    objective.accelerate(parts.append)
    if not parts:
        display.print(f"{recipe.method} has nothing to compile")
        return not_compiled
    side, count = recipe.data.side or 32, recipe.views.number * -(-recipe.train.batch_size // maker.world)
    display.print("compiling the backbone (about a minute the first time)")
    example = torch.zeros(count, 3, side, side).contiguous(memory_format=torch.channels_last)
    objective.to(maker.device)
    failure = compile_backbone(objective, example.to(maker.device), fabric)
    if failure is None:
        return recipe
    display.warn(f"torch.compile failed, continuing without it: {failure}")
    return not_compiled


def compile_backbone(objective: Objective, example: Tensor, fabric: Fabric) -> str | None:
    """Compile the parts of the objective that gain from it and try them once; weights and buffers do not change.

    Returns:
        None, or the reason why it is not compiled (then everything is as before).
    """
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    compiled: list[nn.Module] = []

    def compile(module: nn.Module) -> None:
        module.compile(dynamic=False)
        compiled.append(module)

    try:
        objective.train()
        objective.accelerate(compile)
        if not compiled:  # a method without a part that gains from it
            return None
        with fabric.autocast():
            z = objective.backbone(example)
        z.float().square().sum().backward()
    except Exception as error:  # any failure of a compiler means: go on without it
        for module in compiled:
            module._compiled_call_impl = None  # type: ignore[assignment]
        torch._dynamo.reset()
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
    finally:
        objective.zero_grad(set_to_none=True)
        objective.load_state_dict(before)
    return None


def use_deterministic_kernels(recipe: Recipe) -> None:
    """Make a GPU as deterministic as its libraries allow: some operations have only a racing kernel."""
    if recipe.run.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True, warn_only=True)

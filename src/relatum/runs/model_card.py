"""A folder for the Hugging Face Hub: `model.safetensors`, `config.json` and a model card, `README.md`."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from relatum.errors import InputError
from relatum.runs import names
from relatum.runs.results import STEP
from relatum.runs.weights import save_weights
from relatum.system.files import write_json, write_text
from relatum.system.text import printable

_KNOWN = (*("backbone", "num_features", "mean", "std", "side", "dataset", "method", "preset", "version"), STEP)
_CARD = """---
library_name: relatum
pipeline_tag: image-feature-extraction
license: mit
tags:
- self-supervised-learning
- relational-reasoning
---

# {title}

A {backbone} backbone that maps an image to {num_features} numbers. It was trained {how} with
relatum (Self-Supervised Relational Reasoning for Representation Learning, Patacchiola & Storkey, NeurIPS 2020).

```python
import relatum

backbone = relatum.load_backbone("path/to/this/folder")
vector = backbone(backbone.transform("photo.jpg")[None])
vectors = relatum.embed(backbone, "photos/")
```

| | |
| --- | --- |
{rows}

Change the licence above if the training images or weights have another one. No accuracy is stated here: measure it on
your data with `relatum evaluate`.
"""


def write_folder(out: Path, state: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    """Write the folder; an existing folder with other files is refused."""
    expected = {names.HUB_WEIGHTS, "config.json", "README.md"}
    if out.exists() and not (out.is_dir() and {path.name for path in out.iterdir()} <= expected):
        raise InputError(f"{out} exists and is not a folder that an export wrote; choose another --out.")
    out.mkdir(parents=True, exist_ok=True)
    save_weights(out / names.HUB_WEIGHTS, state, info)
    known = {name: info[name] for name in _KNOWN if name in info}  # other tools act on keys such as `auto_map`
    write_json(out / "config.json", {**known, "library_name": "relatum", "model_type": "relatum-backbone"})
    write_text(out / "README.md", card(known))


def card(info: Mapping[str, Any]) -> str:
    """The model card."""
    info = {name: _plain(value) if isinstance(value, str) else value for name, value in info.items()}
    method, dataset = info.get("method"), info.get("dataset")
    how = " ".join(
        part for part in (f"by the method {method}" if method else "", f"on {dataset}" if dataset else "") if part
    )
    rows = "\n".join(f"| {name} | {json.dumps(value).strip(chr(34))} |" for name, value in sorted(info.items()))
    backbone = str(info.get("backbone", "custom"))
    title = f"{backbone}, {how}" if how else backbone
    return _CARD.format(
        title=title,
        backbone=backbone,
        num_features=info.get("num_features", "several"),
        how=how or "elsewhere",
        rows=rows,
    )


def _plain(text: str) -> str:
    """A text on one line of the card without markup: the name of a dataset may be that of any folder."""
    return html.escape(" ".join(printable(text).split()), quote=False).replace("|", "&#124;").replace("`", "&#96;")

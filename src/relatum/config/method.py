"""The type of a row in the table of methods. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Method:
    """A row of the table of methods.

    Attributes:
        target: the objective's class, `module:attribute`.
        title: the method's name as the paper writes it.
        summary: one line of description.
        options: the dataclass of its options, the recipe's `objective` table.
        defaults: dotted recipe keys that the method sets.
        official: recipe keys that `preset = "official"` sets on top.
        uses_labels: whether the loss needs labels. If it is False, batches contain none.
        semi_supervised: whether `--labels` may show it a fraction of the labels.
        label_option: for a semi-supervised method, the boolean option that passes the visible labels to the loss.
        trains: False for random weights.
    """

    target: str
    title: str
    summary: str
    options: type
    defaults: Mapping[str, Any] = field(default_factory=dict)
    official: Mapping[str, Any] = field(default_factory=dict)
    uses_labels: bool = False
    semi_supervised: bool = False
    label_option: str = ""
    trains: bool = True

    def loss_uses_labels(self, options: Any) -> bool:
        """Whether batches carry labels when the method runs with these options."""
        return self.uses_labels or bool(self.label_option and getattr(options, self.label_option))

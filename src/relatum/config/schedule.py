"""Learning rate schedules that training and finetuning share: pure functions of time."""

from __future__ import annotations


def step_decay(epoch: int, epochs: int) -> float:
    """The paper's step schedule: 1, then 1/10 from 50 % of the epochs on, then 1/100 from 75 % on."""
    return float(0.1 ** ((2 * epoch >= epochs) + (4 * epoch >= 3 * epochs)))

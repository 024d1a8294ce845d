"""The description of a repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .._audit.audit import Audit
from .candidates import Means
from .cost import Work

NOTABLE = 1.0  # percent of the products' time: below it no cheaper repair is searched


@dataclass
class RepairedLayer:
    """A layer before and after the repair. `unsafe`, `left`: pairs that can saturate, before and after; if
    several engines were asked for, the largest number. `how`: what made the layer safe."""

    name: str
    operator: str
    pairs: int
    unsafe: int
    left: int = 0
    how: str = ""
    reason: str = ""  # why no order makes it safe
    copied_channels: int = 0  # how many the layer's input got
    noise: float = 0.0  # the mean squared change of shortened weights, in squared stored steps
    is_gathered: bool = False  # whether a Gather in front orders its channels
    shortened: int = 0  # how many weights changed
    halved: int = 0  # how many outputs have weights of 7 bits
    means: Means = field(default_factory=Means)


@dataclass
class Repair:
    """The repair of a model. `before`, `after`: its audits. `sums`: describes the float sums whose order
    changes. `out`: the path of the repaired model; until it is written, `after` is the audit of a temporary
    file. `price`: what the repair adds to the time of the model's products, in percent, as the planner's
    costs predict. `cheaper`: options of the command with a lower price, and that price."""

    before: Audit
    engines: list[str]
    layers: list[RepairedLayer] = field(default_factory=list)
    orders: int = 0
    sums: list[str] = field(default_factory=list)
    copied_channels: int = 0  # their number in all tensors
    # outputs of the graph that a Gather puts back in the stored order
    gathers: list[str] = field(default_factory=list)
    max_depth: float = 0.0
    max_noise: float = 0.0
    depth: float = 0.0  # percent of the model's multiply-adds that copied channels add
    work: "Work | None" = None
    # the exact variant of the model with new order and stored weights, if weights were shortened
    ordered: Any = None
    after: Any = None
    check: Any = None
    not_checked: str = ""  # why outputs were not compared, though the repair moves them
    out: str = ""
    price: float = 0.0
    cheaper: "list[tuple[str, float]]" = field(default_factory=list)
    # what range.undo_reduce_range() changed before the repair; `before` is the audit of its result
    widened: Any = None

    @property
    def is_proven(self) -> bool:
        return self.after.is_proven

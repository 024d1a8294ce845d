"""The table of engines: which products each engine adds in int16. The library has the table
(intact/engines.h)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .._formats.model import QuantizedLayer
from .._library import check, ffi, isa_of, lib, text, type_of

_PAIRS = {
    getattr(lib, f"INTACT_ENGINE_PAIRS_{name.upper()}"): name
    for name in ("none", "depths", "halves", "within_tap", "flattened", "kernel_row", "kernel_column")
}


@dataclass(frozen=True)
class Engine:
    """An engine. `name`: for options. `words`: for people. `versions`: the measured ones, with commas
    between. `skips_padding`: whether padding is not multiplied."""

    name: str
    words: str
    versions: str
    skips_padding: bool


@functools.cache
def engines() -> dict[str, Engine]:
    """The engines by name."""
    found = {}
    for index in range(lib.intact_engine_count()):
        info = ffi.new("intact_engine_info *", {"struct_size": ffi.sizeof("intact_engine_info")})
        check(lib.intact_engine_describe(index, info))
        name = text(info.name)
        found[name] = Engine(name, text(info.words), text(info.versions), bool(info.skips_padding))
    return found


def pairs_of(engine: Engine | str, layer: QuantizedLayer, isa: str = "avx2", is_wide: bool = True) -> str:
    """The pairs in which an engine adds a layer's products in int16 on a CPU whose best instruction set is
    `isa`: "depths", "halves" (adjacent depths that begin anew after ⌈K/2⌉, an odd number), "within_tap",
    "flattened", "kernel_row" (adjacent taps of a row of the kernel), "kernel_column" (adjacent taps of the kernel read column by
    column), or "none": also for a layer that the engine computes in floats. `is_wide`: as in intact_engine_layer.

    Raises `Error` if nothing is known about the layer's operator and types in this engine."""
    name = engine if isinstance(engine, str) else engine.name
    if layer.float_in == engines()[name].words:
        return "none"
    weights = layer.weights
    asked = {
        "struct_size": ffi.sizeof("intact_engine_layer"),
        "a_type": type_of("a_type", "u8" if layer.is_shifted else layer.a_type),
        "b_type": type_of("b_type", layer.b_type),
        "depth": len(weights),
        "groups": 1,
        "group_inputs": 1,
        "group_outputs": 1,
        "isa": isa_of(isa),
        "is_wide": int(is_wide),
    }
    if layer.is_convolution:
        asked |= {
            "depth": weights[0].size,
            "groups": layer.groups,
            "group_inputs": weights.shape[-1],
            "group_outputs": len(weights) // layer.groups,
        }
    names = [ffi.new("char[]", word.encode()) for word in (name, layer.operator)]
    asked |= {"engine": names[0], "op": names[1]}
    answer = ffi.new("intact_engine_answer *", {"struct_size": ffi.sizeof("intact_engine_answer")})
    check(lib.intact_engine_ask(ffi.new("intact_engine_layer *", asked), answer))
    return _PAIRS[answer.pairs]

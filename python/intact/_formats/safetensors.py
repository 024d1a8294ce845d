"""Weights in groups from safetensors files: GPTQ, AWQ, compressed-tensors and torchao.

Files may be hostile: the shapes of the tensors of a layer must fit each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import numpy as np

from .._library import Error, counted, excerpt, invalid
from .._plans.grouped_weights import GROUPS, GroupedWeights, nibbles

_CONFIGS = "config.json", "quantize_config.json", "quant_config.json"
_AUTO_ROUND = {"auto_round": "gptq_v2", "auto_round:gptqmodel": "gptq_v2", "auto_round:auto_gptq": "gptq"}
_AWQ_ORDER = 0, 2, 4, 6, 1, 3, 5, 7  # of the columns of a word, from the low bits on


def read_safetensors(path: Path) -> Iterator[tuple[str, GroupedWeights]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise invalid(
            f"{excerpt(path)}: to read it, install the package safetensors: pip install safetensors"
        ) from None
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise invalid(f"{excerpt(path)}: is a folder without safetensors files; expected some")
    places, origins, notes = {}, {}, {}
    for file in files:
        try:
            opened = safe_open(file, "numpy")
        except (SafetensorError, OSError) as error:
            raise invalid(f"{excerpt(file)}: is no safetensors file: {excerpt(error)}") from None
        for name in opened.keys():
            if name in places:
                raise invalid(
                    f"{excerpt(path)}: tensor {excerpt(name)!r} is in {origins[name]} and in {excerpt(file.name)}; "
                    "expected it in one file"
                )
            places[name], origins[name] = opened, excerpt(file.name)
        notes |= opened.metadata() or {}
    config = _config(path if path.is_dir() else path.parent)
    for name in places:
        layer, dot, kind = name.rpartition(".")
        tensors = _Tensors(places, layer + dot)
        try:
            weights = _read(kind, tensors, config, notes)
        except Error as error:
            raise invalid(f"{excerpt(path)}: layer {excerpt(layer)!r}: {error.message}") from None
        if weights is not None:
            yield layer or name, weights


def _config(folder: Path) -> dict:
    """How the model was quantized: `quantization_config` of config.json, or the file that older programs
    write."""
    for name in _CONFIGS:
        try:
            config = json.loads((folder / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise invalid(f"{excerpt(folder / name)}: is no JSON file: {excerpt(error)}") from None
        if name == _CONFIGS[0]:
            config = config.get("quantization_config") if isinstance(config, dict) else None
        if isinstance(config, dict):
            return config
    return {}


class _Tensors:
    """The tensors of a layer."""

    def __init__(self, places: dict, prefix: str):
        self._places, self.prefix = places, prefix

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self._places

    def type(self, name: str) -> str:
        return self._places[self.prefix + name].get_slice(self.prefix + name).get_dtype()

    def get(self, name: str, dims: int | None = None) -> np.ndarray | None:
        """None if there is no such tensor. `dims`: how many dimensions it must have."""
        if name not in self:
            return None
        try:
            array = self._places[self.prefix + name].get_tensor(self.prefix + name)
        except (AttributeError, TypeError):  # NumPy alone has no bfloat16 and no 8-bit floats
            raise invalid(
                f"{name}: is of type {self.type(name)}; to read it, install the package ml_dtypes"
            ) from None
        if 0 in array.shape:
            raise invalid(f"{name}: has shape {array.shape}; expected at least 1 in each dimension")
        if dims is not None and array.ndim != dims:
            raise invalid(f"{name}: has {array.ndim} dimensions; expected {dims}")
        return array

    def require(self, name: str, dtype: type | None, dims: int | None = None) -> np.ndarray:
        array = self.get(name, dims)
        if array is None:
            raise invalid(
                f"{name}: is missing; expected a tensor (a folder may be given to read all its files)"
            )
        if dtype is not None and array.dtype != dtype:
            raise invalid(f"{name}: has dtype {array.dtype}; expected {np.dtype(dtype)}")
        return array

    def scales(self, name: str) -> np.ndarray:
        """float16 if it holds all values of the tensor, else float32."""
        array = self.require(name, None)
        if str(array.dtype) not in ("float32", "float16", "bfloat16"):
            raise invalid(f"{name}: has dtype {array.dtype}; expected float32, float16 or bfloat16")
        if array.dtype == np.float16:
            return array
        wide = array.astype(np.float32)
        with np.errstate(over="ignore"):
            half = wide.astype(np.float16)
        return half if array.dtype != np.float32 and np.array_equal(half, wide) else wide

    def bias(self, n: int) -> np.ndarray | None:
        bias = self.get("bias")
        if bias is not None and bias.shape != (n,):
            raise invalid(f"bias: has shape {bias.shape}; expected {(n,)}")
        return None if bias is None else bias.astype(np.float32)


def _read(kind: str, tensors: _Tensors, config: dict, notes: dict) -> GroupedWeights | None:
    """The weights of a layer, from the tensor that holds them: the last part of its name is `kind`. None: the
    tensor is another."""
    if kind == "qweight":
        weights = _gptq_or_awq(tensors, config)
    elif kind == "weight_packed":
        weights = _packed(tensors, config)
    elif kind == "weight" and "weight_scale" in tensors and tensors.type("weight") == "I8":
        weights = _int8(tensors, "weight", "weight_scale", "weight_zero_point", _scheme_sizes(config))
    elif kind == "_weight_qdata":
        weights = _torchao(tensors, notes)
    else:
        return None
    if weights is not None:
        weights.bias = tensors.bias(weights.n)
    return weights


def _group(k: int, groups: int, sizes: list, has_order: bool = False) -> int:
    """The depths of a group; 0: all. `sizes`: the depths of a group that the file describes, -1 for all;
    empty: none are described. `has_order`: the file has the group of each depth."""
    group = 0 if groups == 1 else next((group for group in GROUPS if -(-k // group) == groups), None)
    if group is None:
        raise invalid(
            f"groups: are {groups} of {k} depths; expected groups of 16, 32, 64, 128 or 256 depths, or one group"
        )
    if sizes and (group or k) not in [
        k if size == -1 else min(size, k) for size in sizes if isinstance(size, int)
    ]:
        given = " or ".join(excerpt(repr(size)) for size in sizes)
        raise invalid(
            f"group_size: is {given}; expected {group or -1}, because {counted(k, 'depth')} have {counted(groups, 'group')}"
        )
    if group and k % group and not sizes and not has_order:
        raise invalid(
            f"groups: are {groups} of {k} depths; expected a multiple of {group} depths, or a group_size in "
            "config.json"
        )
    return group


def _sizes(config: dict) -> list:
    """The group sizes of GPTQ and AWQ; none if layers may have sizes of their own."""
    size = config.get("group_size", config.get("q_group_size"))
    return [] if size is None or config.get("dynamic") or config.get("extra_config") else [size]


def _schemes(config: dict) -> list[dict]:
    """How compressed-tensors quantized the weights of each group of layers."""
    groups = config.get("config_groups")
    schemes = (
        [group.get("weights") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    return [scheme for scheme in schemes if isinstance(scheme, dict)]


def _scheme_sizes(config: dict) -> list:
    return [-1 if scheme.get("group_size") is None else scheme["group_size"] for scheme in _schemes(config)]


def _sized(name: str, array: np.ndarray, shape: tuple) -> np.ndarray:
    if array.shape != shape:
        raise invalid(f"{name}: has shape {array.shape}; expected {shape}")
    return array


def _bytes_of(words: np.ndarray) -> np.ndarray:
    """The bytes of each row of int32 words, from the low bits on."""
    return np.ascontiguousarray(words.astype("<i4", copy=False)).view(np.uint8)


def _numbers(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """`count` numbers of 4 or 8 bits of each row of words."""
    return (nibbles(_bytes_of(words)) if bits == 4 else _bytes_of(words))[:, :count]


def _pairs(numbers: np.ndarray) -> np.ndarray:
    """Rows of numbers of 4 bits, two in a byte."""
    even = numbers if numbers.shape[1] % 2 == 0 else np.pad(numbers, ((0, 0), (0, 1)))
    return even[:, 0::2] | even[:, 1::2] << 4


def _check_order(name: str, order: np.ndarray | None, k: int, group: int) -> None:
    """`order`: the group of each depth."""
    if order is not None and not np.array_equal(order, np.arange(k) // (group or k)):
        raise invalid(
            f"{name}: is another order of the groups (act-order, desc_act); expected depth // {group or k}"
        )


def _gptq_or_awq(tensors: _Tensors, config: dict) -> GroupedWeights:
    qweight, qzeros = (tensors.require(name, np.int32, 2) for name in ("qweight", "qzeros"))
    scales = tensors.scales("scales")
    if scales.ndim != 2:
        raise invalid(f"scales: has {scales.ndim} dimensions; expected 2")
    groups, n = scales.shape
    if qweight.shape[1] * 8 == n:
        return _awq(qweight, qzeros, scales, config)
    if qweight.shape[1] != n:
        raise invalid(
            f"qweight: has {qweight.shape[1]} columns, and scales has {n}; expected equal numbers (GPTQ), or an eighth "
            "(AWQ)"
        )
    given = config.get("bits")
    widths = ([given] if isinstance(given, int) else []) + [4, 8]
    bits = next((bits for bits in widths if qzeros.shape == (groups, -(-n * bits // 32))), None)
    if bits not in (4, 8):
        shape = "" if bits else f" because qzeros has shape {qzeros.shape}"
        raise invalid(f"bits: is {bits or 'unknown'}{shape}; expected 4 or 8")
    g_idx = tensors.get("g_idx", 1)
    k = qweight.shape[0] * 32 // bits if g_idx is None else len(g_idx)
    _sized("qweight", qweight, (-(-k * bits // 32), n))
    group = _group(k, groups, _sizes(config), g_idx is not None)
    _check_order("g_idx", g_idx, k, group)
    points = _numbers(_gptq_zeros(qzeros, bits, n, config), bits, n).T
    return GroupedWeights(
        _bytes_of(qweight.T),
        np.ascontiguousarray(scales.T),
        k,
        group,
        f"u{bits}",
        np.ascontiguousarray(points),
    )


def _gptq_format(config: dict) -> str:
    """ "gptq" or "gptq_v2", which stores zero points as they are."""
    method, packing, kind = (
        config.get(name) for name in ("quant_method", "packing_format", "checkpoint_format")
    )
    if method not in (None, "gptq", "auto-round"):
        raise invalid(f"quant_method: is {excerpt(method)!r}; expected 'gptq' or 'auto-round'")
    if kind not in (None, "gptq", "gptq_v2"):
        raise invalid(f"checkpoint_format: is {excerpt(kind)!r}; expected 'gptq' or 'gptq_v2'")
    if packing is None and method != "auto-round":
        return kind or "gptq"
    packed = _AUTO_ROUND.get(packing) if isinstance(packing, str) else None
    if packed is None:
        raise invalid(
            f"packing_format: is {excerpt(packing)!r}; expected {', '.join(map(repr, _AUTO_ROUND))}"
        )
    if kind not in (None, packed):
        raise invalid(
            f"checkpoint_format: is {kind!r}; expected {packed!r}, because packing_format is {packing!r}"
        )
    return packed


def _gptq_zeros(words: np.ndarray, bits: int, n: int, config: dict) -> np.ndarray:
    """Packed zero points. The format "gptq" stores them minus 1. GPTQModel subtracts from whole words, so a
    zero point of 0 borrows from the next one. Other programs do not, and read its stored value in different
    ways."""
    if _gptq_format(config) == "gptq_v2":
        return words
    highest = 2**bits - 1
    meta = config.get("meta")
    writer = str(meta.get("quantizer")) if isinstance(meta, dict) else ""
    if "gptqmodel" not in writer and np.any(_numbers(words, bits, n) == highest):
        raise invalid(
            f"qzeros: stores {highest}, which programs read as different zero points; expected 0 to {highest - 1}"
        )
    return (words.view(np.uint32) + np.uint32(0xFFFFFFFF // highest)).view(np.int32)


def _awq(qweight: np.ndarray, qzeros: np.ndarray, scales: np.ndarray, config: dict) -> GroupedWeights:
    version = str(config.get("version") or "gemm").lower()
    if version != "gemm":
        raise invalid(f"version: is {excerpt(version)!r}; expected 'gemm'")
    (k, words), groups = qweight.shape, len(scales)
    group = _group(k, groups, _sizes(config))

    def columns(packed: np.ndarray) -> np.ndarray:
        numbers = np.empty((len(packed), words, 8), np.uint8)
        numbers[..., _AWQ_ORDER] = _numbers(packed, 4, 8 * words).reshape(numbers.shape)
        return numbers.reshape(len(packed), -1).T

    points = columns(_sized("qzeros", qzeros, (groups, words)))
    return GroupedWeights(
        _pairs(columns(qweight)), np.ascontiguousarray(scales.T), k, group, "u4", np.ascontiguousarray(points)
    )


def _columns_of_scales(name: str, scales: np.ndarray, n: int) -> np.ndarray:
    """N×groups, from one scale, from one for each column, or from all."""
    if scales.size == 1:
        return np.full((n, 1), scales.ravel()[0])
    if scales.ndim == 1:
        scales = scales[:, None]
    if scales.ndim != 2 or len(scales) != n:
        raise invalid(f"{name}: has shape {scales.shape}; expected a row for each of {n} columns")
    return scales


def _packed_bits(words: int, k: int, config: dict) -> int:
    """The bits of a number: 32 // bits numbers are in a word."""
    given = [scheme["num_bits"] for scheme in _schemes(config) if "num_bits" in scheme]
    fitting = [
        bits
        for bits in given or (4, 8)
        if not isinstance(bits, int) or not 1 <= bits <= 32 or words == -(-k // (32 // bits))
    ]
    for bits in fitting:
        if bits not in (4, 8):
            raise invalid(f"num_bits: is {excerpt(bits)}; expected 4 or 8")
    widths = set(fitting)
    if len(widths) != 1:
        expected = " or ".join(map(str, sorted(set(given)) or (4, 8)))
        raise invalid(
            f"weight_packed: has {words} words for a depth of {k}; expected {expected} bits for each depth"
        )
    return widths.pop()


def _packed(tensors: _Tensors, config: dict) -> GroupedWeights:
    """compressed-tensors, format "pack-quantized": numbers plus 8 or 128, in words."""
    words, shape = tensors.require("weight_packed", np.int32, 2), tensors.require("weight_shape", None, 1)
    if len(shape) != 2 or shape.dtype.kind not in "iu" or shape[0] != len(words) or shape[1] < 1:
        raise invalid(f"weight_shape: is {excerpt(shape)}; expected {len(words)} and the depth")
    n, k = (int(extent) for extent in shape)
    bits = _packed_bits(words.shape[1], k, config)
    scales = _columns_of_scales("weight_scale", tensors.scales("weight_scale"), n)
    groups = scales.shape[1]
    g_idx = tensors.get("weight_g_idx", 1)
    group = _group(k, groups, _scheme_sizes(config), g_idx is not None)
    _check_order("weight_g_idx", g_idx, k, group)
    points = tensors.get("weight_zero_point")
    if points is not None and points.dtype == np.int32 and points.ndim == 2:
        points = _numbers(_sized("weight_zero_point", points, (-(-n * bits // 32), groups)).T, bits, n).T
    elif points is not None:
        points = _unsigned("weight_zero_point", points, bits, n, groups)
    return GroupedWeights(
        _bytes_of(words),
        scales,
        k,
        group,
        f"u{bits}",
        None if points is None else np.ascontiguousarray(points),
    )


def _unsigned(name: str, points: np.ndarray, bits: int, n: int, groups: int) -> np.ndarray:
    """Zero points of signed numbers, for numbers plus 8 or 128."""
    points = _sized(name, _columns_of_scales(name, points, n), (n, groups))
    half = 1 << bits - 1
    numbers = points.astype(np.float64)
    if not np.all((numbers == np.rint(numbers)) & (numbers >= -half) & (numbers < half)):
        raise invalid(f"{name}: has a value that is no integer from {-half} to {half - 1}")
    return (numbers + half).astype(np.uint8)


def _int8(
    tensors: _Tensors, weight: str, scale: str, zero_point: str, sizes: list, bits: int = 8
) -> GroupedWeights:
    """Signed numbers, each in a byte. `bits`: of a number; numbers of 4 bits are packed. `sizes`: as in
    _group()."""
    b = tensors.require(weight, np.int8, 2)
    n, k = b.shape
    scales = _columns_of_scales(scale, tensors.scales(scale), n)
    group = _group(k, scales.shape[1], sizes)
    points = tensors.get(zero_point)
    has_points = points is not None and bool(points.astype(np.float32).any())
    if bits == 8 and not has_points:
        return GroupedWeights(b, scales, k, group, "s8")
    half = 1 << bits - 1
    if np.any((b < -half) | (b >= half)):
        raise invalid(f"{weight}: has a value outside {-half} to {half - 1}")
    numbers = b.view(np.uint8) + np.uint8(half)
    return GroupedWeights(
        numbers if bits == 8 else _pairs(numbers),
        scales,
        k,
        group,
        f"u{bits}",
        _unsigned(zero_point, points, bits, n, scales.shape[1]) if has_points else None,
    )


def _torchao(tensors: _Tensors, notes: dict) -> GroupedWeights | None:
    """Tensors of torchao, whose class is in the file's metadata. None: a class whose numbers are no
    integers."""
    note = notes.get(f"{tensors.prefix}weight", "")
    try:
        note = json.loads(note)
        kind, data = note["_type"], note.get("_data", {})
        target = data["target_dtype"]["_data"] if kind == "IntxUnpackedToInt8Tensor" else "int8"
        block = data.get("block_size")
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
        raise invalid(
            f"the file's metadata: describe the weight by {excerpt(note)!r}; expected a class of torchao"
        ) from None
    if kind == "Int4Tensor":
        raise invalid(
            "Int4Tensor: has zero points that are floats; expected IntxUnpackedToInt8Tensor or Int8Tensor"
        )
    if kind not in ("Int8Tensor", "IntxUnpackedToInt8Tensor"):
        return None
    if "_weight_act_pre_scale" in tensors:
        raise invalid("_weight_act_pre_scale: is given; expected activations without scales of their own")
    bits = 4 if target in ("int1", "int2", "int3", "int4") else 8
    if block is not None and not (isinstance(block, list) and len(block) == 2):
        raise invalid(f"block_size: is {excerpt(block)}; expected the columns and the depths of a group")
    return _int8(
        tensors, "_weight_qdata", "_weight_scale", "_weight_zero_point", block[1:] if block else [], bits
    )

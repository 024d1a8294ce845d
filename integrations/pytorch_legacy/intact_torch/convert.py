"""convert(): swaps operators of a model that PyTorch quantized for intact's."""

import copy
import dataclasses
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.ao.nn.quantized as nnq
import torch.ao.nn.quantized.dynamic as nnqd
import torch.nn.intrinsic.quantized as nniq
import torch.nn.intrinsic.quantized.dynamic as nniqd

from .modules import OURS, Conv, ConvAdd, DynamicLinear, Functional, Linear, Quantize


class Options(NamedTuple):
    mode: str
    max_isa: str
    per_row: bool


@dataclasses.dataclass
class Conversion:
    """What convert() did to each layer: (name, kind) or (name, kind, reason)."""

    swapped: List[Tuple[str, str]] = dataclasses.field(default_factory=list)
    fused: List[Tuple[str, str]] = dataclasses.field(default_factory=list)
    left: List[Tuple[str, str, str]] = dataclasses.field(default_factory=list)

    def __str__(self):
        lines = [f"swapped {len(self.swapped)}, fused {len(self.fused)}, left {len(self.left)}"]
        lines += [f"  swapped  {name}: {kind}" for name, kind in self.swapped]
        lines += [f"  fused    {name}: {how}" for name, how in self.fused]
        lines += [f"  left     {name}: {kind}: {reason}" for name, kind, reason in self.left]
        return "\n".join(lines)


def conversion(model: torch.nn.Module) -> Conversion:
    """The report of the convert() that returned `model`. Copies keep it, but torch 1.13 drops it from copies of a model that
    fuse_residual had to trace."""
    if not isinstance(getattr(model, "intact_conversion", None), Conversion):
        raise TypeError(
            f"model is a {type(model).__name__} without a report; expected a model that convert() returned"
        )
    return model.intact_conversion


def is_converted(model: torch.nn.Module) -> bool:
    """Whether `model` has operators of intact."""
    return any(
        isinstance(module, OURS)
        or isinstance(module, torch.fx.GraphModule)
        and any(map(_is_ours, module.graph.nodes))
        for module in model.modules()
    )


def _namespace(node: torch.fx.Node) -> str:
    """The namespace of the operator that a graph's node calls, such as "intact" or "quantized"; "" if it calls none."""
    if node.op != "call_function":
        return ""
    return getattr(getattr(node.target, "overloadpacket", node.target), "_qualified_op_name", "").rpartition(
        "::"
    )[0]


def _operator(node: torch.fx.Node):
    """The target of a node. A default overload is replaced by its operator."""
    if isinstance(node.target, torch._ops.OpOverload) and node.target._overloadname == "default":
        return node.target.overloadpacket
    return node.target


def _is_ours(node: torch.fx.Node) -> bool:
    return _namespace(node) == "intact"


# --- params from PyTorch's packed weights ------------------------------------------------------------------------


def _linear_params(weight, bias, name: str, options: Options):
    return torch.classes.intact.Linear(weight, _float(bias), name, options.mode, options.max_isa)


def _conv_params(
    weight, bias, stride, padding, output_padding, dilation, groups, transposed, name, options: Options
):
    dims = weight.dim() - 2
    # PyTorch packs a one-dimensional convolution as two-dimensional, with the values of a height of 1 first.
    arrays = [list(values)[-dims:] for values in (stride, padding, output_padding, dilation)]
    return torch.classes.intact.Conv(
        weight, _float(bias), *arrays, groups, transposed, name, options.mode, options.max_isa
    )


def _float(bias: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if bias is None else bias.detach().to(torch.float32)


def _unpacked_linear(packed, name: str, options: Options):
    return _linear_params(*torch.ops.quantized.linear_unpack(packed), name, options)


def _unpacked_conv1d(packed, name: str, options: Options):
    return _unpacked_conv(packed, name, options, torch.ops.quantized.conv1d_unpack(packed))


def _unpacked_conv(packed, name: str, options: Options, weight_bias=None):
    weight, bias = weight_bias or packed.unpack()
    return _conv_params(
        weight,
        bias,
        packed.stride(),
        packed.padding(),
        packed.output_padding(),
        packed.dilation(),
        packed.groups(),
        packed.transpose(),
        name,
        options,
    )


# --- modules -----------------------------------------------------------------------------------------------------


class Left(Exception):
    """Why a module stays as it is."""


# The saturating mode computes what engines compute. With 7 bits no engine saturates, so PyTorch's layer stays.
_SEVEN_BITS = "PyTorch gives it 7 bits of its input (reduce_range), which do not saturate; intact uses 8"


def _linear(module, name: str, options: Options) -> torch.nn.Module:
    params = _linear_params(*module._weight_bias(), name, options)
    return Linear(params, isinstance(module, nniq.LinearReLU), module.scale, module.zero_point)


def _dynamic_linear(module, name: str, options: Options) -> torch.nn.Module:
    if module._packed_params.dtype != torch.qint8:
        raise Left(f"its weights are {module._packed_params.dtype}")
    reduce_range = module.version is not None and module.version >= 4  # as in its forward()
    if reduce_range and options.mode == "saturating":
        raise Left(_SEVEN_BITS)
    params = _linear_params(*module._weight_bias(), name, options)
    return DynamicLinear(params, isinstance(module, nniqd.LinearReLU), options.per_row, reduce_range)


def _conv(module, name: str, options: Options) -> torch.nn.Module:
    if module.padding_mode != "zeros":
        raise Left(f"its padding_mode is {module.padding_mode!r}")
    weight, bias = module._weight_bias()
    params = _conv_params(
        weight,
        bias,
        module.stride,
        module.padding,
        module.output_padding,
        module.dilation,
        module.groups,
        module.transposed,
        name,
        options,
    )
    relu = isinstance(module, (nniq.ConvReLU1d, nniq.ConvReLU2d, nniq.ConvReLU3d))
    return Conv(params, relu, module.scale, module.zero_point)


def _quantize(module, name: str, options: Options) -> torch.nn.Module:
    if module.dtype not in (torch.quint8, torch.qint8):
        raise Left(f"its dtype is {module.dtype}")
    return Quantize(float(module.scale), int(module.zero_point), module.dtype, name)


def _functional(module, name: str, options: Options) -> torch.nn.Module:
    ours = copy.copy(module)
    ours.__class__ = Functional
    ours.layer = name
    return ours


# Only exact types: a subclass may compute something else.
_MODULES: Dict[type, Callable] = {
    nnq.Linear: _linear,
    nniq.LinearReLU: _linear,
    nnqd.Linear: _dynamic_linear,
    nniqd.LinearReLU: _dynamic_linear,
    nnq.Conv1d: _conv,
    nnq.Conv2d: _conv,
    nnq.Conv3d: _conv,
    nniq.ConvReLU1d: _conv,
    nniq.ConvReLU2d: _conv,
    nniq.ConvReLU3d: _conv,
    nnq.Quantize: _quantize,
    nnq.QFunctional: _functional,
    nnq.ConvTranspose1d: _conv,
    nnq.ConvTranspose2d: _conv,
    nnq.ConvTranspose3d: _conv,
}

_QUANTIZED_PACKAGES = (
    "torch.ao.nn.quantized",
    "torch.nn.quantized",
    "torch.nn.intrinsic.quantized",
    "torch.ao.nn.intrinsic.quantized",
    "torch.ao.nn.sparse.quantized",
)
_CONTAINERS = (
    nnq.modules.linear.LinearPackedParams,
    nnq.modules.embedding_ops.EmbeddingPackedParams,
    nnqd.modules.rnn.PackedParameter,
)  # of weights; the report names their owners instead
_FLOAT_PRODUCTS = (
    torch.nn.Linear,
    torch.nn.modules.conv._ConvNd,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)
# of layers that have own entries in the report
_COMPOSED = (torch.nn.quantizable.MultiheadAttention, torch.nn.quantizable.LSTM)


def _kind(module: torch.nn.Module) -> str:
    """The kind of a swapped module in the report."""
    kind = type(module).__name__
    return (
        f"{kind} (add, add_relu; its other calls are PyTorch's)" if type(module) is nnq.QFunctional else kind
    )


_ALREADY = "it is intact's already, and stays unchanged"


def _reason_to_leave(module: torch.nn.Module) -> Optional[str]:
    """Why a module that convert() does not know stays; None if the report does not mention it."""
    if isinstance(module, OURS):
        return _ALREADY
    if isinstance(module, torch.jit.ScriptModule):
        return "it is scripted; expected the module before scripting"
    if isinstance(module, _COMPOSED):
        return "its layers are reported separately; the operators between them are PyTorch's"
    if isinstance(module, _FLOAT_PRODUCTS):
        return "PyTorch did not quantize it"
    known = next((base for base in type(module).__mro__[1:] if base in _MODULES), None)
    if known is not None and not type(module).__module__.startswith(_QUANTIZED_PACKAGES):
        return f"a subclass of PyTorch's {known.__name__} may compute something else"
    if not type(module).__module__.startswith(_QUANTIZED_PACKAGES) or isinstance(module, _CONTAINERS):
        return None
    if type(module).__module__.startswith("torch.ao.nn.quantized.dynamic"):
        return "intact has dynamic quantization for linear layers only"
    if isinstance(module, (nnq.DeQuantize, nnq.FloatFunctional)):
        return "it has no product with weights: PyTorch's own operator computes it"
    return "intact has no operator for it"


def _in_place_of(old: torch.nn.Module, new: torch.nn.Module) -> torch.nn.Module:
    """`new`, with the attributes that users may have set on `old`."""
    new.training = old.training
    new._forward_hooks, new._forward_pre_hooks = old._forward_hooks, old._forward_pre_hooks
    return new


def _swap_modules(module: torch.nn.Module, name: str, options: Options, report: Conversion, made: dict):
    """The module that replaces `module`. Children are replaced in place. `made`: the results by id of modules already seen."""
    if id(module) in made:
        return made[id(module)]
    made[id(module)] = module
    make = _MODULES.get(type(module))
    if make is not None:
        try:
            made[id(module)] = _in_place_of(module, make(module, name, options))
            report.swapped.append((name, _kind(module)))
            return made[id(module)]
        except (
            Left,
            RuntimeError,
        ) as reason:  # RuntimeError: our operators refuse it, or qnnpack does not unpack it
            report.left.append((name, type(module).__name__, str(reason).splitlines()[0]))
            return module
    reason = _reason_to_leave(module)
    if reason is not None:
        report.left.append((name, type(module).__name__, reason))
    if isinstance(module, torch.jit.ScriptModule):
        return module
    for child_name, child in list(module._modules.items()):
        if child is not None:
            path = f"{name}.{child_name}" if name else child_name
            module._modules[child_name] = _swap_modules(child, path, options, report, made)
    return module


# --- calls in FX graphs ------------------------------------------------------------------------------------------

_quantized, _intact = torch.ops.quantized, torch.ops.intact

# By PyTorch's operator: ours, and the function that unpacks its weights.
_CALLS = {
    _quantized.linear: (_intact.linear, _unpacked_linear),
    _quantized.linear_relu: (_intact.linear_relu, _unpacked_linear),
    _quantized.conv1d: (_intact.conv, _unpacked_conv1d),
    _quantized.conv1d_relu: (_intact.conv_relu, _unpacked_conv1d),
    _quantized.conv2d: (_intact.conv, _unpacked_conv),
    _quantized.conv2d_relu: (_intact.conv_relu, _unpacked_conv),
    _quantized.conv3d: (_intact.conv, _unpacked_conv),
    _quantized.conv3d_relu: (_intact.conv_relu, _unpacked_conv),
    _quantized.linear_dynamic: (_intact.linear_dynamic, _unpacked_linear),
    _quantized.linear_relu_dynamic: (_intact.linear_dynamic, _unpacked_linear),
}

_SUMS = {_quantized.add: _intact.add, _quantized.add_relu: _intact.add_relu}
_QUANTIZES = (
    torch.quantize_per_tensor,
    torch.ops.aten.quantize_per_tensor,
    torch.ops.aten.quantize_per_tensor.tensor_qparams,
)


def _weights_of(node: torch.fx.Node) -> Optional[str]:
    """The attribute with the weights of a call, if torch.ao.quantization made the call (by its arguments)."""
    if _operator(node) not in _CALLS or len(node.args) < 2 or getattr(node.args[1], "op", "") != "get_attr":
        return None
    if _is_dynamic(node):
        return node.args[1].target
    return node.args[1].target if len(node.args) == 4 and not node.kwargs else None


def _is_dynamic(node: torch.fx.Node) -> bool:
    return _CALLS[_operator(node)][0] is _intact.linear_dynamic


def _reduces_range(node: torch.fx.Node) -> bool:
    return bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("reduce_range", False))


def _swap_quantize(graph_module, node: torch.fx.Node, layer: str) -> Optional[str]:
    """Why a call of quantize_per_tensor stays, if it does."""
    names = ("input", "scale", "zero_point", "dtype")
    given = {**dict(zip(names, node.args)), **node.kwargs}
    if set(given) != set(names):
        return "its arguments are not known"
    if given["dtype"] not in (torch.quint8, torch.qint8):
        return f"its dtype is {given['dtype']}"
    if not isinstance(given["input"], torch.fx.Node) or not all(
        map(lambda name: _is_a_number(graph_module, given[name]), ("scale", "zero_point"))
    ):
        return "it quantizes a list of tensors, or its scale is computed"
    node.args = tuple(given[name] for name in names)
    node.kwargs = {"layer": layer}
    node.target = _intact.quantize
    return None


def _is_a_number(graph_module, argument) -> bool:
    """Whether `argument` is a number, or the module's tensor of one number."""
    if not isinstance(argument, torch.fx.Node):
        return not isinstance(argument, (list, tuple))
    if argument.op != "get_attr":
        return False
    value = _attribute(graph_module, argument.target)
    return not isinstance(value, torch.Tensor) or value.numel() == 1


def _swap_calls(graph_module: torch.fx.GraphModule, name: str, options: Options, report: Conversion) -> None:
    prefix = f"{name}." if name else ""
    users: Dict[str, list] = {}  # calls by the attribute with their weights
    for node in graph_module.graph.nodes:
        layer, kind, reason = prefix + node.name, str(_operator(node)), None
        if node.op == "call_function" and _operator(node) in _QUANTIZES:
            kind, reason = "quantize_per_tensor", _swap_quantize(graph_module, node, layer)
            if reason is None:
                report.swapped.append((layer, kind))
        elif _is_ours(node):
            reason = _ALREADY
        elif _namespace(node) != "quantized":
            continue
        elif _weights_of(node) is not None:
            if _is_dynamic(node) and _reduces_range(node) and options.mode == "saturating":
                reason = _SEVEN_BITS
            else:
                users.setdefault(_weights_of(node), []).append(node)
        elif _operator(node) in _SUMS and len(node.args) >= 2:
            report.swapped.append((layer, kind))
            node.target, node.kwargs = _SUMS[_operator(node)], {**node.kwargs, "layer": layer}
        elif _operator(node) in _CALLS or _operator(node) in _SUMS:
            reason = "its arguments are not as torch.ao.quantization gives them"
        else:
            reason = "PyTorch's own operator computes it"
        if reason is not None:
            report.left.append((layer, kind, reason))
    loading = _Loading(options)
    for attribute, nodes in users.items():
        _swap_products(graph_module, prefix, attribute, nodes, options, report, loading)
    if loading.weights:
        graph_module.register_load_state_dict_post_hook(loading)
        _preserve(graph_module, "_load_state_dict_post_hooks")
    graph_module.recompile()


def _preserve(module: torch.nn.Module, attribute: str) -> None:
    """Makes copies keep an attribute."""
    if hasattr(module, "preserved_attr_names"):  # convert_fx() of torch 1.13 made `module`
        module.preserved_attr_names = module.preserved_attr_names | {attribute}
    elif isinstance(module, torch.fx.GraphModule):
        module.meta.setdefault("_user_preserved_attributes", {})[attribute] = getattr(module, attribute)


class _Loading:
    """A hook that runs after a converted graph loads a state. It converts weights that PyTorch packed to intact's."""

    def __init__(self, options: Options):
        self.options = options
        # by attribute: PyTorch's attribute, the function that unpacks it, the layer
        self.weights: Dict[str, tuple] = {}

    def __call__(self, module, incompatible_keys):
        for attribute, (theirs, unpacked, layer) in self.weights.items():
            packed = getattr(module, theirs)
            if not packed._has_method("max_isa"):  # intact's params have this method
                setattr(module, attribute, unpacked(packed, layer, self.options))


def _swap_products(
    graph_module,
    prefix: str,
    attribute: str,
    nodes: list,
    options: Options,
    report: Conversion,
    loading: "_Loading",
) -> None:
    """Swaps calls that share their weights."""
    kinds = [(prefix + node.name, str(_operator(node))) for node in nodes]
    unpacked = _CALLS[_operator(nodes[0])][1]
    try:
        params = unpacked(_attribute(graph_module, attribute), kinds[0][0], options)
    except RuntimeError as error:  # qnnpack unpacks two dimensions only
        reason = str(error).splitlines()[0]
        report.left += [(*kind, reason) for kind in kinds]
        return
    report.swapped += kinds
    held = [node for node in graph_module.graph.nodes if node.op == "get_attr" and node.target == attribute]
    # with calls that stay PyTorch's
    is_shared = any(user not in nodes for node in held for user in node.users)
    ours = f"{attribute}_intact" if is_shared else attribute
    owner_path, _, leaf = ours.rpartition(".")
    setattr(graph_module.get_submodule(owner_path), leaf, params)
    if not owner_path:
        loading.weights[ours] = (attribute, unpacked, kinds[0][0])
    for node in nodes:
        operator, weights = _CALLS[_operator(node)][0], node.args[1]
        if is_shared:
            with graph_module.graph.inserting_before(node):
                weights = graph_module.graph.create_node("get_attr", ours)
        rest = node.args[2:]
        if _is_dynamic(node):
            rest = (options.per_row, _operator(node) is _quantized.linear_relu_dynamic, _reduces_range(node))
        node.args, node.kwargs, node.target = (node.args[0], weights, *rest), {}, operator


def _attribute(graph_module, path: str):
    owner_path, _, leaf = path.rpartition(".")
    return getattr(graph_module.get_submodule(owner_path), leaf)


def _value(graph_module, argument) -> float:
    """The value of a scale or zero point in a graph. It is a number or a tensor of the module."""
    if not isinstance(argument, torch.fx.Node):
        return argument
    return _attribute(graph_module, argument.target).item()


def _fuse_residuals(graph_module: torch.fx.GraphModule, name: str, report: Conversion) -> None:
    """Replaces convolutions and sums of their outputs with ConvAdd."""
    prefix = f"{name}." if name else ""
    modules = dict(graph_module.named_modules())
    calls: Dict[str, int] = {}
    for node in list(graph_module.graph.nodes):
        # was a batch norm
        if node.op == "call_module" and type(modules[node.target]) is torch.nn.Identity and node.args:
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
        elif node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1

    def is_fusable(node) -> bool:
        return (
            isinstance(node, torch.fx.Node)
            and node.op == "call_module"
            and len(node.users) == 1
            and len(node.args) == 1
            and calls[node.target] == 1
            and type(modules[node.target]) is Conv
            and not modules[node.target].relu
        )

    for add in list(graph_module.graph.nodes):
        if add.op != "call_function" or add.target not in (*_SUMS, *_SUMS.values()) or len(add.args) < 2:
            continue
        scale, zero_point = (
            *add.args[2:4],
            *(add.kwargs[key] for key in ("scale", "zero_point") if key in add.kwargs),
        )
        for conv, residual in (add.args[:2], add.args[1::-1]):
            if conv is residual or not is_fusable(conv) or not isinstance(residual, torch.fx.Node):
                continue
            old = modules[conv.target]
            fused = ConvAdd(
                old.params,
                add.target in (_quantized.add_relu, _intact.add_relu),
                _value(graph_module, scale),
                _value(graph_module, zero_point),
                old.scale,
                old.zero_point,
            )
            owner_path, _, leaf = conv.target.rpartition(".")
            setattr(graph_module.get_submodule(owner_path), leaf, _in_place_of(old, fused))
            with graph_module.graph.inserting_before(add):
                node = graph_module.graph.call_module(conv.target, (conv.args[0], residual))
            add.replace_all_uses_with(node)
            graph_module.graph.erase_node(add)
            graph_module.graph.erase_node(conv)
            report.fused.append((prefix + conv.target, f"with {add.name}"))
            report.swapped = [entry for entry in report.swapped if entry[0] != prefix + add.name]
            break
    held = _held(graph_module)
    graph_module.graph.eliminate_dead_code()
    for scale in held - _held(graph_module):  # copies would not have these
        if scale in graph_module._buffers:
            delattr(graph_module, scale)
    graph_module.recompile()


def _held(graph_module) -> set:
    """The attributes that a graph reads."""
    return {node.target for node in graph_module.graph.nodes if node.op == "get_attr"}


# --- all of it ---------------------------------------------------------------------------------------------------


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return isinstance(module, OURS) or super().is_leaf_module(module, name)


def convert(
    model: torch.nn.Module,
    mode: str = "exact",
    max_isa: str = "any",
    *,
    dynamic: str = "tensor",
    fuse_residual: bool = False,
    inplace: bool = False,
) -> torch.nn.Module:
    """Returns `model`, which PyTorch quantized, with its products on intact.

    mode            "exact": the same bytes on every CPU. "saturating": what FBGEMM and oneDNN compute without VNNI; with
                    max_isa="avx2" or "avx512" any machine computes what they compute there. Dynamic layers with reduce_range
                    are left: their 7 bits do not saturate.
    max_isa         the newest ISA whose kernels may run: "avx2", "avx512", …, "any".
    dynamic         how layers of quantize_dynamic() quantize their input: "tensor" (one scale, as in PyTorch) or "row" (a scale
                    for each row, more accurate). Both use 8 bits, also with reduce_range.
    fuse_residual   convolutions add the residual of a block before they round. They round once, PyTorch twice: faster, but
                    other bytes. torch.fx traces the model unless it is a GraphModule. If the output of the convolution
                    broadcasts to the residual, they are added like PyTorch's.
    inplace         changes `model` instead of a copy.

    conversion(result) reports what was swapped, what was left and why.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("model is a ScriptModule; expected the model before it was scripted or traced")
    if dynamic not in ("tensor", "row"):
        raise ValueError(f"dynamic is {dynamic!r}; expected 'tensor' or 'row'")
    torch.ops.intact.check_options(mode, max_isa)
    options = Options(mode, max_isa, dynamic == "row")
    if not inplace:
        model = copy.deepcopy(model)
    if fuse_residual and not isinstance(model, torch.fx.GraphModule):
        model = torch.fx.GraphModule(model, _Tracer().trace(model))
    report = Conversion()
    model = _swap_modules(model, "", options, report, {})
    for name, module in model.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            _swap_calls(module, name, options, report)
            if fuse_residual:
                _fuse_residuals(module, name, report)
    model.intact_conversion = report
    _preserve(model, "intact_conversion")
    return model

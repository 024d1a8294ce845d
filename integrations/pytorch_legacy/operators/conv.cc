// Convolutions of one to three dimensions, transposed or not. torch.classes.intact.Conv holds weights, bias
// and geometry. The operators:
//
//   intact::conv           quint8 or qint8 → the same type, requantized
//   intact::conv_relu      conv with ReLU before requantization
//   intact::conv_add       conv and conv_relu that add a residual before requantization. The bytes differ
//   intact::conv_add_relu  from a convolution and an addition, between which PyTorch rounds to 8 bits once
//                          more. The residual may broadcast. If it does not, but conv_scale and
//                          conv_zero_point are given, the output is rounded to these, and intact::add
//                          computes the sum
//
// They take tensors of PyTorch's shapes ([N, C, L], [N, C, H, W], [N, C, D, H, W]), and return such tensors,
// channels last in memory. Inputs of another layout are copied. Extents and batch may differ in each call.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "integrations/pytorch_legacy/operators/common.h"

namespace intact_torch {
namespace {

struct Geometry {
  std::vector<int64_t> stride, padding, output_padding, dilation;  // outermost first, one for each dimension
  int64_t groups = 1;
  bool transposed = false;
};

/// Quantization of a convolution's output if the residual must be added after rounding. scale 0: not given.
struct Unfused {
  double scale = 0;
  int64_t zero_point = 0;
};

class Conv : public torch::CustomClassHolder {
 public:
  Conv(at::Tensor weight, c10::optional<at::Tensor> bias, Geometry geometry, Options options)
      : weight_(std::move(weight)),
        bias_(std::move(bias)),
        geometry_(std::move(geometry)),
        options_(std::move(options)) {
    CheckOptions(options_);
    CheckGeometry();
    quantization_ = QuantizationOf(weight_, geometry_.transposed ? 1 : 0, output_channels(), options_);
    CheckBias(bias_, output_channels(), options_);
  }

  const at::Tensor& weight() const { return weight_; }
  const c10::optional<at::Tensor>& bias() const { return bias_; }
  const Geometry& geometry() const { return geometry_; }
  const Options& options() const { return options_; }

  at::Tensor Run(const at::Tensor& input, const c10::optional<at::Tensor>& residual, double scale,
                 int64_t zero_point, bool relu, Unfused unfused = {}) {
    const CallKey key = KeyOf(input, residual, scale, zero_point, relu, options_);
    CheckInput(input);
    const auto plan = plans_.Get(key, [&] { return MakePlan(key); });

    const at::Tensor pixels = ChannelsLast(input);
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = std::max<int64_t>(input.size(0), 1);  // an empty batch also needs the output's extents
    args.threads = Threads();
    for (int64_t i = 0; i < dims(); ++i) args.input[i] = input.size(2 + i);
    intact_run_info info = INTACT_RUN_INFO_INIT;
    Check(intact_conv_prepare(plan->handle(), &args, &info), options_);

    std::vector<int64_t> sizes = {input.size(0), output_channels()};
    sizes.insert(sizes.end(), info.output, info.output + dims());
    if (residual && unfused.scale != 0 && !at::is_expandable_to(residual->sizes(), sizes)) {
      return Sum(*residual, Run(input, c10::nullopt, unfused.scale, unfused.zero_point, false), scale,
                 zero_point, relu);
    }
    const at::Tensor addend = residual ? CheckedResidual(*residual, sizes) : at::Tensor();
    if (dims() == 1) sizes.insert(sizes.begin() + 2, 1);
    at::Tensor output = at::_empty_affine_quantized(sizes, at::TensorOptions().dtype(input.scalar_type()),
                                                    scale, zero_point, Format());
    if (output.numel() > 0) {
      const at::Tensor scratch = Scratch(info.scratch_bytes);
      args.a = pixels.data_ptr();
      args.c = output.data_ptr();
      args.residual = residual ? addend.data_ptr() : nullptr;
      args.scratch = scratch.data_ptr();
      args.scratch_bytes = info.scratch_bytes;
      Check(intact_conv_run(plan->handle(), &args), options_);
    }
    return dims() == 1 ? output.squeeze(2) : output;
  }

 private:
  int64_t dims() const { return weight_.dim() - 2; }
  int64_t input_channels() const {
    return geometry_.transposed ? weight_.size(0) : weight_.size(1) * geometry_.groups;
  }
  int64_t output_channels() const {
    return geometry_.transposed ? weight_.size(1) * geometry_.groups : weight_.size(0);
  }

  void CheckGeometry() const {
    if (dims() < 1 || dims() > INTACT_MAX_SPATIAL || weight_.numel() == 0) {
      Fail(options_.layer, "weight has shape ", weight_.sizes(),
           "; expected 3 to 5 dimensions, none of them 0");
    }
    const std::pair<const char*, const std::vector<int64_t>&> arrays[] = {
        {"stride", geometry_.stride},
        {"padding", geometry_.padding},
        {"output_padding", geometry_.output_padding},
        {"dilation", geometry_.dilation}};
    for (const auto& [name, values] : arrays) {
      if (static_cast<int64_t>(values.size()) != dims()) {
        Fail(options_.layer, name, " has ", values.size(), " values; expected ", dims());
      }
    }
    for (const auto& [name, values] :
         {arrays[0], arrays[3]}) {  // 0 means the default for intact, but not for PyTorch
      if (std::ranges::any_of(values, [](int64_t value) { return value < 1; })) {
        Fail(options_.layer, name, " is ", at::IntArrayRef(values), "; expected values above 0");
      }
    }
    const int64_t divided = weight_.size(0);  // the other number of channels is a multiple of groups
    if (geometry_.groups < 1 || divided % geometry_.groups != 0) {
      Fail(options_.layer, "groups is ", geometry_.groups, "; expected a divisor of ", divided);
    }
  }

  void CheckInput(const at::Tensor& input) const {
    if (input.dim() == dims() + 2 && input.size(1) == input_channels()) return;
    Fail(options_.layer, "input has shape ", input.sizes(), "; expected ", dims() + 2, " dimensions and ",
         input_channels(), " channels");
  }

  // PyTorch gives the sum the first operand's shape. The residual comes first: it is usually the larger one.
  at::Tensor Sum(const at::Tensor& residual, const at::Tensor& output, double scale, int64_t zero_point,
                 bool relu) const {
    using Add = at::Tensor(const at::Tensor&, const at::Tensor&, double, int64_t, c10::string_view);
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(relu ? "intact::add_relu" : "intact::add", "")
        .typed<Add>()
        .call(residual, output, scale, zero_point, options_.layer);
  }

  at::Tensor CheckedResidual(const at::Tensor& residual, const std::vector<int64_t>& sizes) const {
    if (!at::is_expandable_to(residual.sizes(), sizes)) {
      Fail(options_.layer, "residual has shape ", residual.sizes(), "; expected the output's, ",
           at::IntArrayRef(sizes), ", or a shape that broadcasts to it");
    }
    return ChannelsLast(residual.expand(sizes));
  }

  // PyTorch has no name for the layout NWC, so it is handled as NHWC of height 1.
  at::MemoryFormat Format() const {
    return dims() == 3 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  }

  at::Tensor ChannelsLast(const at::Tensor& tensor) const {
    return (dims() == 1 ? tensor.unsqueeze(2) : tensor).contiguous(Format());
  }

  // The weights as [output channel][taps …][channel of the group], dense.
  at::Tensor ChannelsLastWeights() const {
    const at::Tensor values = weight_.int_repr();
    if (!geometry_.transposed) return values.movedim(1, -1).contiguous();
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes[0] /= geometry_.groups;
    sizes.insert(sizes.begin(), geometry_.groups);
    return values.contiguous().view(sizes).movedim(1, -1).contiguous();
  }

  intact::Conv MakePlan(const CallKey& key) const {
    intact::ConvDesc desc = intact::MakeConvDesc();
    desc.spatial_dims = static_cast<int32_t>(dims());
    desc.transposed = geometry_.transposed ? 1 : 0;
    desc.input_channels = input_channels();
    desc.output_channels = output_channels();
    desc.groups = geometry_.groups;
    for (int64_t i = 0; i < dims(); ++i) {
      const auto at = static_cast<size_t>(i);
      desc.input[i] = INTACT_ANY_EXTENT;
      desc.kernel[i] = weight_.size(2 + i);
      desc.stride[i] = geometry_.stride[at];
      desc.dilation[i] = geometry_.dilation[at];
      desc.pad_begin[i] = desc.pad_end[i] = geometry_.padding[at];
      desc.output_pad[i] = geometry_.output_padding[at];
    }
    const Arithmetic arithmetic(key, quantization_, bias_, options_);
    desc.linear = arithmetic.desc();
    return Made(intact::Conv::Create(desc, ChannelsLastWeights().data_ptr()), options_);
  }

  at::Tensor weight_;
  c10::optional<at::Tensor> bias_;
  Geometry geometry_;
  Options options_;
  WeightQuantization quantization_;
  PlanCache<CallKey, intact::Conv> plans_;
};

using ConvPointer = c10::intrusive_ptr<Conv>;
using State = std::tuple<at::Tensor, c10::optional<at::Tensor>, std::vector<int64_t>, std::vector<int64_t>,
                         std::vector<int64_t>, std::vector<int64_t>, int64_t, bool, std::string, std::string,
                         std::string>;  // as __init__

ConvPointer FromState(const State& state) {
  const auto& [weight, bias, stride, padding, output_padding, dilation, groups, transposed, layer, mode,
               max_isa] = state;
  return c10::make_intrusive<Conv>(weight, bias,
                                   Geometry{stride, padding, output_padding, dilation, groups, transposed},
                                   Options{layer, mode, max_isa});
}

State ToState(const ConvPointer& self) {
  const Geometry& geometry = self->geometry();
  const Options& options = self->options();
  return {self->weight(),          self->bias(),      geometry.stride, geometry.padding,
          geometry.output_padding, geometry.dilation, geometry.groups, geometry.transposed,
          options.layer,           options.mode,      options.max_isa};
}

at::Tensor RunConv(const at::Tensor& input, const ConvPointer& params, double scale, int64_t zero_point) {
  return params->Run(input, c10::nullopt, scale, zero_point, false);
}

at::Tensor RunConvRelu(const at::Tensor& input, const ConvPointer& params, double scale, int64_t zero_point) {
  return params->Run(input, c10::nullopt, scale, zero_point, true);
}

at::Tensor RunConvAdd(const at::Tensor& input, const at::Tensor& residual, const ConvPointer& params,
                      double scale, int64_t zero_point, double conv_scale, int64_t conv_zero_point) {
  return params->Run(input, residual, scale, zero_point, false, {conv_scale, conv_zero_point});
}

at::Tensor RunConvAddRelu(const at::Tensor& input, const at::Tensor& residual, const ConvPointer& params,
                          double scale, int64_t zero_point, double conv_scale, int64_t conv_zero_point) {
  return params->Run(input, residual, scale, zero_point, true, {conv_scale, conv_zero_point});
}

}  // namespace
}  // namespace intact_torch

TORCH_LIBRARY_FRAGMENT(intact, library) {
  using intact_torch::ConvPointer;
  using Values = std::vector<int64_t>;
  library.class_<intact_torch::Conv>("Conv")
      .def(torch::init([](at::Tensor weight, c10::optional<at::Tensor> bias, Values stride, Values padding,
                          Values output_padding, Values dilation, int64_t groups, bool transposed,
                          std::string layer, std::string mode, std::string max_isa) {
        return intact_torch::FromState({std::move(weight), std::move(bias), std::move(stride),
                                        std::move(padding), std::move(output_padding), std::move(dilation),
                                        groups, transposed, std::move(layer), std::move(mode),
                                        std::move(max_isa)});
      }))
      .def("with_weights",
           [](const ConvPointer& self, at::Tensor weight, c10::optional<at::Tensor> bias) {
             intact_torch::State state = intact_torch::ToState(self);
             std::get<0>(state) = std::move(weight);
             std::get<1>(state) = std::move(bias);
             return intact_torch::FromState(state);
           })
      .def("weight", [](const ConvPointer& self) { return self->weight(); })
      .def("bias", [](const ConvPointer& self) { return self->bias(); })
      .def("stride", [](const ConvPointer& self) { return self->geometry().stride; })
      .def("padding", [](const ConvPointer& self) { return self->geometry().padding; })
      .def("output_padding", [](const ConvPointer& self) { return self->geometry().output_padding; })
      .def("dilation", [](const ConvPointer& self) { return self->geometry().dilation; })
      .def("groups", [](const ConvPointer& self) { return self->geometry().groups; })
      .def("transposed", [](const ConvPointer& self) { return self->geometry().transposed; })
      .def("layer", [](const ConvPointer& self) { return self->options().layer; })
      .def("mode", [](const ConvPointer& self) { return self->options().mode; })
      .def("max_isa", [](const ConvPointer& self) { return self->options().max_isa; })
      .def_pickle([](const ConvPointer& self) { return intact_torch::ToState(self); },
                  [](const intact_torch::State& state) { return intact_torch::FromState(state); });
  for (const char* name : {"conv", "conv_relu"}) {
    const std::string schema = std::string(name) +
                               "(Tensor input, __torch__.torch.classes.intact.Conv params, "
                               "float output_scale, int output_zero_point) -> Tensor";
    library.def(schema.c_str());
  }
  for (const char* name : {"conv_add", "conv_add_relu"}) {
    const std::string schema = std::string(name) +
                               "(Tensor input, Tensor residual, __torch__.torch.classes.intact.Conv params, "
                               "float output_scale, int output_zero_point, float conv_scale=0., "
                               "int conv_zero_point=0) -> Tensor";
    library.def(schema.c_str());
  }
}

// For every backend, so that a message with the layer's name reports a tensor of the wrong kind.
TORCH_LIBRARY_IMPL(intact, CompositeExplicitAutograd, library) {
  library.impl("conv", intact_torch::RunConv);
  library.impl("conv_relu", intact_torch::RunConvRelu);
  library.impl("conv_add", intact_torch::RunConvAdd);
  library.impl("conv_add_relu", intact_torch::RunConvAddRelu);
}

// Linear layers. torch.classes.intact.Linear holds weights and bias. The operators:
//
//   intact::linear          quint8 or qint8 → the same type       y = x·Wᵀ + b, requantized
//   intact::linear_relu     quint8 or qint8 → the same type       with ReLU before requantization
//   intact::linear_dynamic  float32 → float32                     x is quantized to u8 when it is read
//
// They take a tensor whose last dimension is the depth; all other dimensions are rows. linear_dynamic ignores
// reduce_range. It informs intact_torch.compare() that PyTorch's layer uses 7 bits of the activations.
#include "integrations/pytorch_legacy/operators/common.h"

namespace intact_torch {
namespace {

class Linear : public torch::CustomClassHolder {
 public:
  Linear(at::Tensor weight, c10::optional<at::Tensor> bias, Options options)
      : weight_(std::move(weight)), bias_(std::move(bias)), options_(std::move(options)) {
    CheckOptions(options_);
    if (weight_.dim() != 2 || weight_.numel() == 0) {
      Fail(options_.layer, "weight has shape ", weight_.sizes(), "; expected [outputs, inputs]");
    }
    quantization_ = QuantizationOf(weight_, 0, n(), options_);
    CheckBias(bias_, n(), options_);
  }

  const at::Tensor& weight() const { return weight_; }
  const c10::optional<at::Tensor>& bias() const { return bias_; }
  const Options& options() const { return options_; }

  at::Tensor Run(const at::Tensor& input, double scale, int64_t zero_point, bool relu) {
    const CallKey key = KeyOf(input, c10::nullopt, scale, zero_point, relu, options_);
    const auto plan = static_plans_.Get(
        key, [&] { return MakePlan(Arithmetic(key, quantization_, bias_, options_).desc()); });
    at::Tensor output = at::_empty_affine_quantized(
        OutputSizes(input), at::TensorOptions().dtype(input.scalar_type()), scale, zero_point);
    RunPlan(*plan, input, output);
    return output;
  }

  at::Tensor RunDynamic(const at::Tensor& input, bool per_row, bool relu) {
    CheckReal("input", input, options_);
    const auto plan = dynamic_plans_.Get({per_row, relu}, [&] {
      return MakePlan(Arithmetic(per_row, relu, quantization_, bias_, options_).desc());
    });
    at::Tensor output = at::empty(OutputSizes(input), at::TensorOptions().dtype(at::kFloat));
    RunPlan(*plan, input, output);
    return output;
  }

 private:
  int64_t n() const { return weight_.size(0); }
  int64_t k() const { return weight_.size(1); }

  intact::Gemm MakePlan(const intact_linear_desc& arithmetic) const {
    intact::GemmDesc desc = intact::MakeGemmDesc();
    desc.n = n();
    desc.k = k();
    desc.b_stride_k = 1;
    desc.b_stride_n = k();
    desc.linear = arithmetic;
    const at::Tensor values = weight_.int_repr().contiguous();
    return Made(intact::Gemm::Create(desc, values.data_ptr()), options_);
  }

  std::vector<int64_t> OutputSizes(const at::Tensor& input) const {
    if (input.dim() == 0 || input.size(-1) != k()) {
      Fail(options_.layer, "input has shape ", input.sizes(), "; expected a last dimension of ", k());
    }
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = n();
    return sizes;
  }

  void RunPlan(const intact::Gemm& plan, const at::Tensor& input, const at::Tensor& output) const {
    if (output.numel() == 0) return;
    const at::Tensor rows = input.contiguous();
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = input.numel() / k();
    args.a = rows.data_ptr();
    args.c = output.data_ptr();
    args.threads = Threads();
    intact_run_info info = INTACT_RUN_INFO_INIT;
    Check(intact_gemm_prepare(plan.handle(), &args, &info), options_);
    const at::Tensor scratch = Scratch(info.scratch_bytes);
    args.scratch = scratch.data_ptr();
    args.scratch_bytes = info.scratch_bytes;
    Check(intact_gemm_run(plan.handle(), &args), options_);
  }

  at::Tensor weight_;
  c10::optional<at::Tensor> bias_;
  Options options_;
  WeightQuantization quantization_;
  PlanCache<CallKey, intact::Gemm> static_plans_;
  PlanCache<std::pair<bool, bool>, intact::Gemm> dynamic_plans_;
};

using LinearPointer = c10::intrusive_ptr<Linear>;
using State =
    std::tuple<at::Tensor, c10::optional<at::Tensor>, std::string, std::string, std::string>;  // as __init__

LinearPointer FromState(const State& state) {
  const auto& [weight, bias, layer, mode, max_isa] = state;
  return c10::make_intrusive<Linear>(weight, bias, Options{layer, mode, max_isa});
}

State ToState(const LinearPointer& self) {
  const Options& options = self->options();
  return {self->weight(), self->bias(), options.layer, options.mode, options.max_isa};
}

at::Tensor RunLinear(const at::Tensor& input, const LinearPointer& params, double scale, int64_t zero_point) {
  return params->Run(input, scale, zero_point, false);
}

at::Tensor RunLinearRelu(const at::Tensor& input, const LinearPointer& params, double scale,
                         int64_t zero_point) {
  return params->Run(input, scale, zero_point, true);
}

at::Tensor RunLinearDynamic(const at::Tensor& input, const LinearPointer& params, bool per_row, bool relu,
                            bool /*reduce_range*/) {
  return params->RunDynamic(input, per_row, relu);
}

}  // namespace
}  // namespace intact_torch

TORCH_LIBRARY_FRAGMENT(intact, library) {
  using intact_torch::LinearPointer;
  library.class_<intact_torch::Linear>("Linear")
      .def(torch::init([](at::Tensor weight, c10::optional<at::Tensor> bias, std::string layer,
                          std::string mode, std::string max_isa) {
        return intact_torch::FromState(
            {std::move(weight), std::move(bias), std::move(layer), std::move(mode), std::move(max_isa)});
      }))
      .def("with_weights",
           [](const LinearPointer& self, at::Tensor weight, c10::optional<at::Tensor> bias) {
             intact_torch::State state = intact_torch::ToState(self);
             std::get<0>(state) = std::move(weight);
             std::get<1>(state) = std::move(bias);
             return intact_torch::FromState(state);
           })
      .def("weight", [](const LinearPointer& self) { return self->weight(); })
      .def("bias", [](const LinearPointer& self) { return self->bias(); })
      .def("layer", [](const LinearPointer& self) { return self->options().layer; })
      .def("mode", [](const LinearPointer& self) { return self->options().mode; })
      .def("max_isa", [](const LinearPointer& self) { return self->options().max_isa; })
      .def_pickle([](const LinearPointer& self) { return intact_torch::ToState(self); },
                  [](const intact_torch::State& state) { return intact_torch::FromState(state); });
  library.def(
      "linear(Tensor input, __torch__.torch.classes.intact.Linear params, float output_scale, "
      "int output_zero_point) -> Tensor");
  library.def(
      "linear_relu(Tensor input, __torch__.torch.classes.intact.Linear params, float output_scale, "
      "int output_zero_point) -> Tensor");
  library.def(
      "linear_dynamic(Tensor input, __torch__.torch.classes.intact.Linear params, bool per_row=False, "
      "bool relu=False, bool reduce_range=False) -> Tensor");
}

// For every backend, so that a message with the layer's name reports a tensor of the wrong kind.
TORCH_LIBRARY_IMPL(intact, CompositeExplicitAutograd, library) {
  library.impl("linear", intact_torch::RunLinear);
  library.impl("linear_relu", intact_torch::RunLinearRelu);
  library.impl("linear_dynamic", intact_torch::RunLinearDynamic);
}

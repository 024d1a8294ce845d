#include "tests/verify/mutants/mutant_parts.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "reference/models/lowering.h"
#include "reference/models/operands.h"

namespace intact::verify {
namespace {

using reference::Model;

class MutantTarget : public Target {
 public:
  MutantTarget(std::string name, Computation gemm, ConvComputation conv)
      : name_(std::move(name)), gemm_(std::move(gemm)), conv_(std::move(conv)) {}
  std::string Name() const override { return name_; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    const Model model = ExpectedModel(LinearOf(operation), options.isa);
    const auto* gemm = std::get_if<reference::Gemm>(&operation);
    if (gemm != nullptr && gemm_) return gemm_(*gemm, model);
    if (gemm == nullptr && conv_) return conv_(std::get<reference::Conv>(operation), model);
    return Error{INTACT_UNSUPPORTED,
                 "target " + name_ + " runs no " + (gemm != nullptr ? "GEMMs" : "convolutions")};
  }

 private:
  std::string name_;
  Computation gemm_;
  ConvComputation conv_;
};

}  // namespace

std::vector<uint8_t> Compute(const reference::Gemm& gemm, Model model) {
  return reference::Outputs(gemm, reference::Accumulators(gemm, model));
}

std::vector<uint8_t> Compute(const reference::Conv& conv, Model model) {
  return reference::Outputs(conv, reference::Accumulators(conv, model));
}

std::vector<uint8_t> PadWith(const reference::Conv& conv, uint8_t value, Model model) {
  if (conv.geometry.IsTransposed()) return Compute(conv, model);
  const reference::ConvGeometry& from = conv.geometry;
  reference::Conv padded = conv;
  for (reference::Axis& axis : padded.geometry.axes) {
    axis = {axis.input + axis.pad_begin + axis.pad_end, axis.kernel, axis.stride, axis.dilation, 0, 0};
  }
  const auto& [d, h, w] = padded.geometry.axes;
  padded.a.assign(static_cast<size_t>(padded.geometry.InputPixels() * from.input_channels), value);
  auto row = conv.a.begin();
  for (int64_t image = 0; image < from.batch; ++image) {
    for (int64_t id = 0; id < from.axes[0].input; ++id) {
      for (int64_t ih = 0; ih < from.axes[1].input; ++ih) {
        const int64_t at =
            ((image * d.input + id + from.axes[0].pad_begin) * h.input + ih + from.axes[1].pad_begin) *
                w.input +
            from.axes[2].pad_begin;
        const int64_t length = from.axes[2].input * from.input_channels;
        std::copy_n(row, length, padded.a.begin() + at * from.input_channels);
        row += length;
      }
    }
  }
  return Compute(padded, model);
}

std::optional<float> TakeResidual(reference::Requantization* q) {
  const auto* const added = q->post_ops.Find<core::AddResidual>();
  if (added == nullptr) return std::nullopt;
  const float addend = q->residual * added->scale;
  q->post_ops = q->post_ops.Without<core::AddResidual>();
  return addend;
}

Mutant MakeMutant(const char* name, Computation gemm, ConvComputation conv, std::string fault,
                  std::string_view problem, Cause cause, std::string detail) {
  const Result<Problem> parsed = Problem::Parse(problem);
  assert(parsed);
  return {std::make_unique<MutantTarget>(name, std::move(gemm), std::move(conv)), std::move(fault), *parsed,
          cause, std::move(detail)};
}

}  // namespace intact::verify

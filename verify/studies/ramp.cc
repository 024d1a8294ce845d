#include "verify/studies/ramp.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/audit.h"
#include "verify/studies/layer_check.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

std::vector<int32_t> Values(intact_type type, const std::vector<uint8_t>& bytes) {
  std::vector<int32_t> values;
  values.reserve(bytes.size());
  for (const uint8_t byte : bytes) values.push_back(core::DecodeInt8(type, byte));
  return values;
}

int Sign(int64_t x) { return (x > 0) - (x < 0); }

/// The sign of each column's slope.
std::vector<int> Slopes(const reference::Gemm& gemm) {
  const reference::Operands operands(gemm);
  std::vector<int> slopes;
  slopes.reserve(static_cast<size_t>(gemm.n));
  for (int64_t n = 0; n < gemm.n; ++n) {
    const std::vector<int32_t> column = operands.CenteredColumn(n);
    slopes.push_back(Sign(std::accumulate(column.begin(), column.end(), int64_t{0})));
  }
  return slopes;
}

void AttributeKink(const reference::Gemm& gemm, bool predicted, Kink* kink) {
  kink->pairs = SaturatedPairs(gemm, kink->m, kink->n);
  if (kink->pairs.empty()) kink->pairs = SaturatedPairs(gemm, kink->m - 1, kink->n);
  kink->pair_count = std::ssize(kink->pairs);
  kink->explained = predicted && !kink->pairs.empty();
  if (kink->pair_count > kMaxPairsListed) kink->pairs.resize(kMaxPairsListed);
}

}  // namespace

int64_t Ramp::ColumnsWithKinks() const {
  std::set<int64_t> with_kinks;
  for (const Kink& kink : kinks) with_kinks.insert(kink.n);
  return std::ssize(with_kinks);
}

int64_t Ramp::ShownColumn() const {
  std::vector<int64_t> counts(static_cast<size_t>(columns));
  for (const Kink& kink : kinks) ++counts[static_cast<size_t>(kink.n)];
  return std::ranges::max_element(counts) - counts.begin();
}

int64_t Ramp::Unexplained() const {
  return std::ranges::count_if(kinks, [](const Kink& kink) { return !kink.explained; });
}

bool Ramp::Passed() const { return Saturates(mode, isa) ? Unexplained() == 0 : kinks.empty(); }

Result<Layer> AsRamp(Layer layer) {
  if (layer.conv() != nullptr || layer.grouped() != nullptr) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{}/layer.json: operator: is \"{}\"; a ramp probes a linear layer", layer.folder,
                             layer.op)};
  }
  reference::Gemm& gemm = layer.gemm();
  if (gemm.IsDynamic() || gemm.HasResidual() || !core::IsInt8(gemm.c_type)) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{}/layer.json: has {}; a ramp probes 8-bit activations and outputs without a "
                             "residual",
                             layer.folder,
                             gemm.IsDynamic()     ? "dynamic activations"
                             : gemm.HasResidual() ? "a residual"
                                                  : fmt::format("{} outputs", core::NameOf(gemm.c_type)))};
  }
  const auto depth = static_cast<size_t>(gemm.k);
  if (layer.is_ramp) {
    for (size_t i = 0; i < gemm.a.size(); ++i) {
      if (gemm.a[i] == gemm.a[i - i % depth]) continue;
      return Error{
          INTACT_INVALID_ARGUMENT,
          fmt::format("{}/activations.npy: row {} is not constant; expected a ramp, as layer.json says",
                      layer.folder, i / depth)};
    }
    return layer;
  }
  layer.is_ramp = true;
  gemm.m = 256;
  gemm.a.clear();
  const int low = core::LowestOf(gemm.a_type);
  for (int a = low; a < low + 256; ++a) gemm.a.insert(gemm.a.end(), depth, static_cast<uint8_t>(a));
  return layer;
}

Ramp FindKinks(const Layer& ramp, const std::vector<uint8_t>& output) {
  const reference::Gemm& gemm = ramp.gemm();
  const auto outputs_of = [&](reference::Model model) {
    return Values(gemm.c_type, reference::Outputs(gemm, reference::Accumulators(gemm, model)));
  };
  Ramp result;
  result.layer = ramp.name;
  result.steps = gemm.m;
  result.columns = gemm.n;
  result.outputs = Values(gemm.c_type, output);
  result.exact = outputs_of(reference::Model::kExact);
  for (int64_t m = 0; m < gemm.m; ++m) {
    result.activations.push_back(core::DecodeInt8(gemm.a_type, gemm.a[static_cast<size_t>(m * gemm.k)]));
  }
  const std::vector<int32_t> maddubs = outputs_of(reference::Model::kMaddubs);
  const std::vector<int> slopes = Slopes(gemm);
  for (int64_t m = 1; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      const auto row = static_cast<size_t>(m);
      const auto at = static_cast<size_t>(m * gemm.n + n);
      const auto before = at - static_cast<size_t>(gemm.n);
      Kink kink{m,
                n,
                result.activations[row - 1],
                result.activations[row],
                result.outputs[before],
                result.outputs[at],
                false,
                {},
                0};
      const int allowed = slopes[static_cast<size_t>(n)] * Sign(kink.activation - kink.activation_before);
      const int step = Sign(kink.output - kink.output_before);
      if (step == 0 || step == allowed) continue;
      AttributeKink(gemm, maddubs[before] == kink.output_before && maddubs[at] == kink.output, &kink);
      result.kinks.push_back(std::move(kink));
    }
  }
  return result;
}

Result<Ramp> RunRamp(const Target& target, const Layer& ramp, intact_mode mode, intact_isa isa) {
  reference::Gemm gemm = ramp.gemm();
  gemm.mode = mode;
  RunOptions options;
  options.isa = isa;
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, target.Run(std::move(gemm), options));
  Ramp result = FindKinks(ramp, output);
  result.mode = mode;
  result.isa = isa;
  return result;
}

Result<Ramp> RunRamp(const Layer& ramp, intact_mode mode, intact_isa isa) {
  return RunRamp(IntactTarget(), ramp, mode, isa == INTACT_ISA_ANY ? BestIsa() : isa);
}

}  // namespace intact::verify

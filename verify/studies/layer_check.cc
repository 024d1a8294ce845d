#include "verify/studies/layer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "core/result.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/judge.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {

bool LayerCheck::Passed() const {
  if (against_expected) return against_expected->differing == 0;
  const bool is_as_predicted = !against_model || against_model->differing == 0;
  return is_as_predicted && !is_broken && against_exact.Unexplained() == 0;
}

std::string InWords(const Identity& identity, const Comparison& exact) {
  if (identity.Found() || exact.parts.empty()) return InWords(identity);
  return fmt::format("each of {} outputs has an arithmetic, but no single one reproduces them all: {}",
                     exact.outputs, PartsInWords(exact));
}

namespace {

/// Runs the operation and compares. `check` already has target, mode and ISA.
std::optional<Error> Examine(const Oracle& oracle, const std::optional<Expectation>& expectation,
                             const Target* named, LayerCheck* check) {
  RunOptions options;
  const IntactTarget own;
  const Target& target = named != nullptr ? *named : own;
  if (named == nullptr) {
    options.isa = check->isa;
  }
  ASSIGN_OR_RETURN(const std::vector<uint8_t> output, RunChecked(target, oracle, options));
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  check->against_exact = Explain(target, oracle, options, output, kAll);
  if (named != nullptr) {
    check->identity = Identify(oracle, output);
    check->is_broken = IsBroken(target, oracle, options, output, &check->against_exact);
  } else {
    check->model = ExpectedModel(oracle.linear(), check->isa);
    check->against_model = CompareBytes(oracle.type(), oracle.Wrapped({check->model}), output);
  }
  if (expectation) {
    check->expect_file = expectation->file;
    check->against_expected = CompareBytes(oracle.type(), expectation->output, output);
    check->expected_identity = Identify(oracle, expectation->output);
    check->expected_against_exact = Compare(oracle, expectation->output, std::nullopt, kAll);
  }
  return std::nullopt;
}

}  // namespace

std::string EnginesInWords(const reference::Arithmetic& arithmetic, const EngineLayer& layer) {
  // Equal models of this layer become one.
  reference::Model model = arithmetic.model;
  model.skips_padding = false;
  if (model.order == reference::DepthOrder::kFlattened && layer.PairingsAgree()) {
    model.order = reference::DepthOrder::kTaps;
  }
  const auto depth = static_cast<int32_t>(layer.depth);
  const bool begins_anew = model.cut.Cuts(depth) && (depth + 1) / 2 % 2 == 1;
  model.cut = begins_anew ? reference::Cut{depth, depth} : reference::Cut();
  for (const intact_engine_pairs pairs : PairsOf(layer)) {
    if (model != MaddubsOf(pairs, layer.depth)) continue;
    std::vector<EngineUse> engines = EnginesWith(pairs, layer, arithmetic.model.skips_padding);
    const auto with_avx2 = [](const EngineUse& use) { return !use.only_with_avx512; };
    if (!engines.empty() && std::ranges::none_of(engines, with_avx2)) {
      for (EngineUse& use : engines) use.only_with_avx512 = false;
      return "as " + InWords(engines) + " on CPUs with AVX-512 and no VNNI";
    }
    std::erase_if(engines, std::not_fn(with_avx2));
    return "as " + InWords(engines) + " on CPUs with AVX2 and no AVX-512 or VNNI";
  }
  return {};
}

std::vector<Recorded> ExplainRecorded(const Layer& layer, const std::vector<Expectation>& outputs) {
  std::vector<Recorded> recorded;
  const EngineLayer as_engines_see_it = EngineLayerOf(layer.operation);
  const Oracle oracle(layer.operation);
  for (const Expectation& output : outputs) {
    recorded.push_back({output.file, layer.name, as_engines_see_it, Identify(oracle, output.output),
                        Compare(oracle, output.output, std::nullopt, kMaxDifferencesListed)});
  }
  return recorded;
}

Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation, const LayerTarget& by) {
  LayerCheck check;
  check.target = by.name;
  check.layer = layer.name;
  check.op = layer.op;
  check.mode = mode;
  check.isa = isa == INTACT_ISA_ANY && by.target == nullptr ? BestIsa() : isa;
  reference::Operation operation = layer.operation;
  if (by.target == nullptr) LinearOf(operation).mode = mode;
  check.audits = AuditEachPairing(operation, layer.reduce_range);
  const std::optional<Error> error = Examine(std::move(operation), expectation, by.target, &check);
  if (error) return *error;
  return check;
}

}  // namespace intact::verify

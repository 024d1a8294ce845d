#include "verify/studies/layer_check.h"

#include <fmt/format.h>

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

std::string EnginesInWords(const reference::Arithmetic& arithmetic, const PairedShape& shape) {
  reference::Model plain = reference::Model::kMaddubs;
  plain.order = arithmetic.model.order;
  plain.skips_padding = arithmetic.model.skips_padding;
  if (arithmetic.model != plain || plain.order == reference::DepthOrder::kChannels) return {};
  const bool is_flattened = plain.order == reference::DepthOrder::kFlattened;
  const intact_pairing pairing = is_flattened ? INTACT_PAIRING_FLATTENED : INTACT_PAIRING_WITHIN_TAP;
  return "as " + EnginesOf(pairing, shape, plain.skips_padding) + " on CPUs with AVX2 and no AVX-512 or VNNI";
}

std::vector<Recorded> ExplainRecorded(const Layer& layer, const std::vector<Expectation>& outputs) {
  std::vector<Recorded> recorded;
  const PairedShape shape = layer.conv() != nullptr ? ShapeOf(layer.conv()->geometry) : PairedShape();
  const Oracle oracle(layer.operation);
  for (const Expectation& output : outputs) {
    recorded.push_back({output.file, layer.name, shape, Identify(oracle, output.output),
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

#include "verify/layer_check.h"

#include <limits>

#include "verify/targets/intact_target.h"

namespace intact::verify {

bool LayerCheck::Passed() const {
  if (against_expected) return against_expected->differing == 0;
  return against_model.differing == 0 && against_exact.Unexplained() == 0;
}

namespace {

/// Runs `operation` and compares; the check knows already what is asked for.
template <class Operation>
std::optional<Error> Examine(const Operation& operation, const std::optional<Expectation>& expectation,
                             LayerCheck* check) {
  RunOptions options;
  options.mode = check->mode;
  options.isa = check->isa;
  const IntactTarget target;
  const Result<std::vector<uint8_t>> output = RunOn(target, operation, options);
  if (!output) return output.error();
  Result<Comparison> comparison = Verify(target, operation, options, std::numeric_limits<int64_t>::max());
  if (!comparison) return comparison.error();
  check->against_exact = std::move(*comparison);

  check->model = ExpectedModel(check->mode, check->isa);
  const std::vector<uint8_t> predicted =
      reference::Outputs(operation, reference::Accumulators(operation, check->model));
  check->against_model = CompareBytes(operation.c_type, predicted, *output);
  if (expectation) {
    check->expect_file = expectation->file;
    check->against_expected = CompareBytes(operation.c_type, expectation->output, *output);
  }
  return std::nullopt;
}

}  // namespace

Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation) {
  LayerCheck check;
  check.layer = layer.name;
  check.op = layer.op;
  check.mode = mode;
  check.isa = isa == INTACT_ISA_ANY ? BestIsa() : isa;
  const std::optional<Error> error = VisitOperation(layer, [&](const auto& operation) {
    check.audit = AuditReduceRange(operation, layer.reduce_range);
    return Examine(operation, expectation, &check);
  });
  if (error) return *error;
  return check;
}

}  // namespace intact::verify

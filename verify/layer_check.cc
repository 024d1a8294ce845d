#include "verify/layer_check.h"

#include <limits>

#include "verify/targets/intact_target.h"

namespace intact::verify {

bool LayerCheck::Passed() const {
  if (against_expected) return against_expected->differing == 0;
  return against_model.differing == 0 && against_exact.Unexplained() == 0;
}

Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation) {
  const reference::Gemm& gemm = layer.gemm;
  LayerCheck check;
  check.layer = layer.name;
  check.op = layer.op;
  check.mode = mode;
  check.isa = isa == INTACT_ISA_ANY ? BestIsa() : isa;

  RunOptions options;
  options.mode = mode;
  options.isa = check.isa;
  const IntactTarget target;
  const Result<std::vector<uint8_t>> output = target.Run(gemm, options);
  if (!output) return output.error();
  Result<Comparison> comparison = Verify(target, gemm, options, std::numeric_limits<int64_t>::max());
  if (!comparison) return comparison.error();
  check.against_exact = std::move(*comparison);

  check.model = ExpectedModel(mode, check.isa);
  const std::vector<uint8_t> predicted = reference::Outputs(gemm, reference::Accumulators(gemm, check.model));
  check.against_model = CompareBytes(gemm.c_type, predicted, *output);
  if (expectation) {
    check.expect_file = expectation->file;
    check.against_expected = CompareBytes(gemm.c_type, expectation->output, *output);
  }
  check.audit = AuditReduceRange(gemm, layer.reduce_range);
  return check;
}

}  // namespace intact::verify

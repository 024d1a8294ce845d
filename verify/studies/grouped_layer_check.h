// Runs a layer with grouped weights (grouped_layer.h), and explains outputs that engines recorded.
#ifndef INTACT_VERIFY_STUDIES_GROUPED_LAYER_CHECK_H_
#define INTACT_VERIFY_STUDIES_GROUPED_LAYER_CHECK_H_

#include <intact/grouped.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verify/explain/judge.h"
#include "verify/studies/layer_check.h"

namespace intact::verify {

struct GroupedLayerCheck {
  std::string layer, operation;  // "linear_grouped s8u4f32, 4×64×128 in groups of 32"
  std::string by;                // the ISA or the target
  Judgement judgement;           // of the output
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  std::string expect_file;
  std::optional<int64_t> unexpected;  // outputs that differ from the file's
  /// Outputs that engines recorded, by file, judged as if any arithmetic were claimed.
  std::vector<std::pair<std::string, Judgement>> recorded;

  /// Whether the output equals the expected output. Without an expected output: whether the output is as
  /// claimed.
  bool Passed() const { return unexpected ? *unexpected == 0 : judgement.Passed(); }
};

/// Runs a layer with grouped weights on `target`. If `isa` is not ANY, `target` is our own kernels.
/// `recorded`: outputs to explain. `expected`: the output that the layer should have.
Result<GroupedLayerCheck> CheckGroupedLayer(const Layer& layer, const Target& target, const std::string& by,
                                            intact_isa isa, const std::vector<Expectation>& recorded,
                                            const std::optional<Expectation>& expected);

std::string ToText(const GroupedLayerCheck& check);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_GROUPED_LAYER_CHECK_H_

// Runs a layer and says how what came out relates to what should: the exact reference, the model of the mode
// that was asked for, and an output that somebody else computed.
#ifndef INTACT_VERIFY_LAYER_CHECK_H_
#define INTACT_VERIFY_LAYER_CHECK_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/models.h"
#include "verify/audit.h"
#include "verify/compare.h"
#include "verify/layer.h"

namespace intact::verify {

/// What a layer's output was compared with by wish of the user.
struct Expectation {
  std::string file;
  std::vector<uint8_t> output;
};

struct LayerCheck {
  std::string layer;
  std::string op;
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  Comparison against_exact;                           // lists every difference
  reference::Model model = reference::Model::kExact;  // what the mode computes on this ISA
  ByteComparison against_model;
  std::string expect_file;
  std::optional<ByteComparison> against_expected;
  Audit audit;

  /// Equal to the expected output; without one: as the model predicts, and every difference explained.
  bool Passed() const;
};

/// `isa`: exactly this one; ANY = the library's choice. Fails if the machine cannot run it.
Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_LAYER_CHECK_H_

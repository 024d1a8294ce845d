// Runs a layer, by our own kernels or a target's, and says how what came out relates to what should: the
// exact reference, the model of the mode that was asked for, and an output that somebody else computed; and
// what that somebody computes.
#ifndef INTACT_VERIFY_STUDIES_LAYER_CHECK_H_
#define INTACT_VERIFY_STUDIES_LAYER_CHECK_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/models/models.h"
#include "verify/explain/audit.h"
#include "verify/explain/compare.h"
#include "verify/explain/identify.h"
#include "verify/explain/pairing.h"
#include "verify/problem/target.h"
#include "verify/studies/layer.h"

namespace intact::verify {

/// What a layer's output was compared with by wish of the user.
struct Expectation {
  std::string file;
  std::vector<uint8_t> output;
};

/// Whose kernels run a layer.
struct LayerTarget {
  std::string name;  // as the user named it
  const Target* target = nullptr;
};

/// What computed an output that some engine recorded, and how it differs from exact.
struct Recorded {
  std::string file;
  std::string layer;
  PairedShape shape;
  Identity identity;
  Comparison against_exact;
};

struct LayerCheck {
  std::string target;  // empty: our own kernels
  std::string layer;
  std::string op;
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  Comparison against_exact;                           // lists every difference
  reference::Model model = reference::Model::kExact;  // of our own: what the mode computes on this ISA
  std::optional<ByteComparison> against_model;        // likewise
  std::optional<Identity> identity;                   // of a target's: what it computed
  bool is_broken = false;                             // a target does not compute what it claims
  std::string expect_file;
  std::optional<ByteComparison> against_expected;
  std::optional<Identity> expected_identity;         // what made the expected output
  std::optional<Comparison> expected_against_exact;  // lists every difference
  std::vector<Recorded> recorded;                    // of the layer's folder
  std::vector<Audit> audits;  // one for each pairing that pairs other depths, the worst first

  /// Equal to the expected output; without one: as the model predicts, or as the target claims, and every
  /// difference explained.
  bool Passed() const;
};

/// What made outputs, in a line; of `exact`, their comparison, where no one arithmetic made them all.
std::string InWords(const Identity& identity, const Comparison& exact);

/// "as FBGEMM, ONNX Runtime on CPUs without VNNI": the engines that are known to sum as `arithmetic` does; "" if there are
/// none, or if it is exact.
std::string EnginesInWords(const reference::Arithmetic& arithmetic, const PairedShape& shape);

/// Explains each recorded output of a layer.
std::vector<Recorded> ExplainRecorded(const Layer& layer, const std::vector<Expectation>& outputs);

/// `isa`: exactly this one; ANY = the library's choice. Fails if the machine cannot run it. `by`: a target
/// instead of our own kernels, whom mode and ISA do not concern.
Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation, const LayerTarget& by = {});

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_LAYER_CHECK_H_

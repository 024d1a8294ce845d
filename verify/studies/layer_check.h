// Runs a layer with our own kernels or on a target. Compares the output with the exact reference, with the
// model of the requested mode, and with an output that another engine recorded. Identifies the arithmetic of
// this engine.
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

/// An output to compare the layer's output with.
struct Expectation {
  std::string file;
  std::vector<uint8_t> output;
};

/// The target that runs a layer.
struct LayerTarget {
  std::string name;  // the value of --target
  const Target* target = nullptr;
};

/// An output that an engine recorded: its arithmetic, and how it differs from exact.
struct Recorded {
  std::string file;
  std::string layer;
  EngineLayer as_engines_see_it;
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
  reference::Model model = reference::Model::kExact;  // our own kernels: what the mode computes on this ISA
  std::optional<ByteComparison> against_model;        // our own kernels only
  std::optional<Identity> identity;                   // targets: the arithmetic of the output
  bool is_broken = false;                             // the target does not compute what it claims
  std::string expect_file;
  std::optional<ByteComparison> against_expected;
  std::optional<Identity> expected_identity;         // the arithmetic of the expected output
  std::optional<Comparison> expected_against_exact;  // lists every difference
  std::vector<Recorded> recorded;                    // outputs in the layer's folder
  std::vector<Audit> audits;  // one for each pairing that differs for the layer, the worst first

  /// Whether the output equals the expected one. Without an expected output: whether the output is as the
  /// model predicts or as the target claims, and whether every difference is explained.
  bool Passed() const;
};

/// The arithmetic of outputs, in a line. If no single arithmetic made all outputs, the line lists
/// exact.parts. `exact`: the outputs' comparison with exact.
std::string InWords(const Identity& identity, const Comparison& exact);

/// "as FBGEMM, ONNX Runtime on CPUs with AVX2 and no AVX-512 or VNNI": the engines that are known to sum
/// `layer` as `arithmetic` does; "as no known engine on …" if there are none; "" if `arithmetic` is no maddubs
/// sequence.
std::string EnginesInWords(const reference::Arithmetic& arithmetic, const EngineLayer& layer);

/// Explains each recorded output of a layer.
std::vector<Recorded> ExplainRecorded(const Layer& layer, const std::vector<Expectation>& outputs);

/// `isa`: exactly this ISA; ANY = the library's choice. An error if the machine cannot run the ISA. `by`: a
/// target that runs the layer instead of our own kernels. Mode and ISA do not apply to targets.
Result<LayerCheck> CheckLayer(const Layer& layer, intact_mode mode, intact_isa isa,
                              const std::optional<Expectation>& expectation, const LayerTarget& by = {});

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_LAYER_CHECK_H_

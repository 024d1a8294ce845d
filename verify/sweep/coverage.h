// How much a sweep of random problems has met: for each register block that ran, at which of its edges, with
// which fills and types.
//
//   edges   rows, columns: fewer than a block, whole blocks, or whole blocks and a tail; depths: whole quads
//           or not (of a convolution: pixels, output channels of a group, channels of a tap)
//   types   of activations, weights and output
#ifndef INTACT_VERIFY_SWEEP_COVERAGE_H_
#define INTACT_VERIFY_SWEEP_COVERAGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "verify/problem/problem.h"
#include "verify/problem/random_problem.h"

namespace intact::verify {

/// The block in a kernel's name, "u8s8_gemm_8x48c4_avx512vnni": 8×48. 1×1 if there is none.
Block BlockIn(std::string_view kernel);

/// That block with what kind of kernel has it: "gemm 8x48".
std::string BlockName(std::string_view kernel);

class Coverage {
 public:
  static constexpr int kEdges = 3 * 3 * 2;
  static constexpr int kTypes = 2 * 2 * 5;
  /// Of edges, fills and types, that a block can meet.
  static size_t Combinations() { return kEdges * AllFills().size() * kTypes; }

  void Add(const Problem& problem, std::string_view kernel);

  /// What a block has met.
  struct Met {
    int64_t problems = 0;
    std::set<int> edges;
    std::set<Fill> fills;
    std::set<int> types;
    std::set<std::tuple<int, Fill, int>> combinations;
  };
  /// By ISA and name.
  const std::map<std::pair<intact_isa, std::string>, Met>& blocks() const { return blocks_; }
  int64_t problems() const { return problems_; }

 private:
  std::map<std::pair<intact_isa, std::string>, Met> blocks_;
  int64_t problems_ = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_COVERAGE_H_

// Converts lines of benchdnn, the test driver of oneDNN, to problem lines, and problem lines to lines of
// benchdnn. docs/problems.md lists what is converted and what is refused.
//
//   --matmul --dt=u8:s8:u8 --attr-scales=wei:per_oc --attr-zero-points=src:common:3 128x768:768x64
//   --conv --dt=u8:s8:s32 --dir=FWD_D mb1ic64ih56oc64oh56kh3ph1n"name"
#ifndef INTACT_VERIFY_PROBLEM_BENCHDNN_H_
#define INTACT_VERIFY_PROBLEM_BENCHDNN_H_

#include <intact/intact.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// One problem of benchdnn. Options that are absent have benchdnn's default.
struct BenchdnnCase {
  std::string driver;                                       // matmul, conv or deconv
  std::map<std::string, std::string, std::less<>> options;  // of the driver, without "--": one value for each
  std::string descriptor;

  bool operator==(const BenchdnnCase&) const = default;
  /// "" if the option is absent.
  std::string_view Option(std::string_view name) const;
  /// The line, without the program's name.
  std::string ToString() const;
};

/// The cases of a command line of benchdnn and of its batch files: one for each combination of the options'
/// values and each descriptor. A batch file is searched as given, then in the folders of earlier batch files.
/// Options that do not change a result are left out. Errors name an unknown option or an unreadable file.
Result<std::vector<BenchdnnCase>> ReadBenchdnn(std::string_view command);

/// The problem of a case. Problem lines have no tensors and no values of scales and clips: these come from
/// the problem's seed. Errors name the argument that problem lines cannot express.
Result<Problem> ProblemOf(const BenchdnnCase& one);

struct BenchdnnLine {
  std::string line;
  std::string
      left_out;  // words of the problem line that benchdnn lacks, and that do not change what is computed
};
/// The line of a GEMM or a convolution. Errors name the word of the problem line that benchdnn cannot
/// express.
Result<BenchdnnLine> BenchdnnLineOf(const Problem& problem);

/// Strides of a tensor in the order of its dimensions: batch, channels, then `extents`. Channels are innermost,
/// pixels have `pixel` elements. Strides beyond the largest size of a tensor are cut to one more than it.
std::vector<int64_t> ChannelsLastStrides(const std::vector<int64_t>& extents, int64_t pixel);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_BENCHDNN_H_

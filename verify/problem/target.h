// A target is anything that can run GEMMs, convolutions or both: our kernels, a peer, a user's plug-in, a
// mutant with a planted fault. Only verify/targets/ knows the kinds of targets.
#ifndef INTACT_VERIFY_PROBLEM_TARGET_H_
#define INTACT_VERIFY_PROBLEM_TARGET_H_

#include <intact/target.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "reference/contract/operation.h"
#include "verify/problem/failure.h"
#include "verify/problem/surroundings.h"

namespace intact::verify {

/// How a target is to run an operation, apart from its tensors.
struct RunSettings {
  intact_isa isa = INTACT_ISA_ANY;  // exactly this ISA; ANY = the target's own choice
  int32_t threads = 1;
  // Elements by which A's row stride exceeds k, a pixel's stride the input channels, or a column's stride m.
  int64_t a_pad = 0;
  int64_t c_pad = 0;    // the same for C, with n or the output channels
  int64_t res_pad = 0;  // the same for the residual
  // The residual is in C's memory. It has C's padding, c_pad, and elements of c_type's size.
  bool in_place = false;
  // How the plan is created and run: the run gives a convolution's extents; the caller provides the scratch
  // memory; the plan was saved and loaded. None of it may change the output. Targets without these features
  // ignore them.
  bool open_extents = false;
  bool own_scratch = false;
  bool saved = false;
  int64_t usual_m = 0;  // the expected rows of a GEMM's plan; 0: any
  // The items of a batch are item_pad elements apart, or each has a pointer.
  bool item_pointers = false;
  int64_t item_pad = 0;
  bool a_by_columns = false;  // A is K×M in memory
  bool b_by_columns = false;  // B is N×K in memory
  int64_t b_pad = 0;          // elements by which B's row stride exceeds n, or a column's stride k

  bool operator==(const RunSettings&) const = default;
};

struct RunOptions : RunSettings {
  std::string line;  // the problem line, for messages; "" if there is none
  // Whether a target in its own process (isolated_target.h) runs again with its tensors in all places that
  // are tried. If not, it runs in the usual place and in one other, which suffices for many problems.
  bool in_all_places = false;
  Surroundings surroundings;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string Name() const = 0;
  /// The arithmetic that it claims: see intact_target::arithmetic.
  virtual std::string Arithmetic() const { return "exact"; }
  /// The intact_target_feature bits that it supports.
  virtual uint64_t Features() const { return INTACT_TARGET_BIT(INTACT_TARGET_FEATURES) - 1; }
  /// This target in a new process; nullptr if it keeps nothing between runs.
  virtual std::unique_ptr<Target> Fresh() const { return nullptr; }
  /// The same for calls that may not return. Their time limit is a multiple of this target's slowest call,
  /// instead of the whole deadline.
  virtual std::unique_ptr<Target> FreshForHangs() const { return Fresh(); }
  /// The kind of its last run's error, if there was one.
  virtual Failure LastFailure() const { return {}; }
  /// Why it is not to be run any more; "" if it can be.
  virtual std::string WhyGivenUp() const { return {}; }
  /// What it wrote to stdout and stderr in the last run that wrote anything, if its output is captured.
  virtual std::string Printed() const { return {}; }
  /// Output bytes, dense rows of c_type: m×n for a GEMM, item after item;
  /// [batch][OD][OH][OW][output_channels] for a convolution. UNSUPPORTED if the machine or the target cannot
  /// run it.
  virtual Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                           const RunOptions& options) const = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_TARGET_H_

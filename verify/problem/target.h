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
  // Elements between rows of A: its row stride is k + a_pad. Of a convolution: between input pixels. Of an A
  // that is K×M: between columns.
  int64_t a_pad = 0;
  int64_t c_pad = 0;    // elements between rows of C, or between output pixels
  int64_t res_pad = 0;  // elements between rows or pixels of the residual
  // The residual is in C's memory. It has C's padding, c_pad, and elements of c_type's size.
  bool in_place = false;
  // How the plan is created and run. These settings must not change the output. Targets without these
  // features ignore them.
  bool open_extents = false;   // each run passes a convolution's extents
  bool own_scratch = false;    // the caller provides the scratch memory
  bool saved = false;          // the plan was saved and loaded
  int64_t usual_m = 0;         // the rows that a GEMM's plan expects; 0: unknown
  bool item_pointers = false;  // each item of a batch has a pointer
  int64_t item_pad = 0;        // without pointers: elements between adjacent items
  bool a_by_columns = false;   // A is K×M in memory
  bool b_by_columns = false;   // B is N×K in memory
  int64_t b_pad = 0;           // elements between rows of B, or between columns of a B that is N×K

  bool operator==(const RunSettings&) const = default;
};

struct RunOptions : RunSettings {
  std::string line;  // the problem line, for messages; "" if there is none
  // A target in its own process (isolated_target.h) runs with its tensors in the usual place, and again in
  // both other places. If false: again in one other place, which suffices if there are many problems.
  bool in_all_places = false;
  Surroundings surroundings;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string Name() const = 0;
  /// The claimed arithmetic: see intact_target::arithmetic.
  virtual std::string Arithmetic() const { return "exact"; }
  /// The supported intact_target_feature bits.
  virtual uint64_t Features() const { return INTACT_TARGET_BIT(INTACT_TARGET_FEATURES) - 1; }
  /// This target in a new process; nullptr if it keeps nothing between runs.
  virtual std::unique_ptr<Target> Fresh() const { return nullptr; }
  /// Fresh() for calls that may not return. The time limit of the new target is a multiple of this target's
  /// slowest call, instead of the whole deadline.
  virtual std::unique_ptr<Target> FreshForHangs() const { return Fresh(); }
  /// The kind of the last run's error, if there was an error.
  virtual Failure LastFailure() const { return {}; }
  /// Why the target must not be run any more; "" if it may be run.
  virtual std::string WhyGivenUp() const { return {}; }
  /// What the target wrote to stdout and stderr in the last run that wrote anything, if this is captured.
  virtual std::string Printed() const { return {}; }
  /// Output bytes, dense rows of c_type: m×n for a GEMM, item after item;
  /// [batch][OD][OH][OW][output_channels] for a convolution. UNSUPPORTED if the machine or the target cannot
  /// run it.
  virtual Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                           const RunOptions& options) const = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_TARGET_H_

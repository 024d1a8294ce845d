// A target is anything that can run GEMMs, convolutions or both: our kernels, a peer, a user's plug-in, a
// mutant with a planted fault. Only verify/targets/ knows what is behind one.
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

/// How a target is to run an operation, apart from its tensors: what makes a difference to it.
struct RunSettings {
  intact_isa isa = INTACT_ISA_ANY;  // exactly this ISA; ANY = the target's own choice
  int32_t threads = 1;
  int64_t a_pad =
      0;  // elements by which A's row stride exceeds k, or a pixel's the input channels; or a column's m
  int64_t c_pad = 0;    // the same for C and n, or the output channels
  int64_t res_pad = 0;  // and the residual
  // The residual lies where C is to be; as C, it has c_pad and elements of c_type's size.
  bool in_place = false;
  // How the plan comes about and runs: a convolution's extents are given with the run, memory is the
  // caller's, the plan was saved and loaded. None of it makes a difference, and targets without such a thing
  // run as ever.
  bool open_extents = false;
  bool own_scratch = false;
  bool saved = false;
  int64_t usual_m = 0;  // the rows that a GEMM's plan is made for; 0: any
  // Where the items of a batch are: item_pad elements apart, or each where its pointer says.
  bool item_pointers = false;
  int64_t item_pad = 0;
  bool a_by_columns = false;  // A is K×M in memory
  bool b_by_columns = false;  // B is N×K in memory
  int64_t b_pad = 0;          // elements by which B's row stride exceeds n, or a column's k

  bool operator==(const RunSettings&) const = default;
};

struct RunOptions : RunSettings {
  std::string line;  // the problem's, for messages; "" if it is of none
  // Whether a target in a process of its own (isolated_target.h) is to be run with its tensors in all places
  // that are tried; else, for there are many problems, in one beside the usual.
  bool in_all_places = false;
  Surroundings surroundings;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string Name() const = 0;
  /// What it claims to compute: see intact_target::arithmetic.
  virtual std::string Arithmetic() const { return "exact"; }
  /// The intact_target_feature bits of what it takes.
  virtual uint64_t Features() const { return INTACT_TARGET_BIT(INTACT_TARGET_FEATURES) - 1; }
  /// The same target in a process that has run nothing yet; nullptr if this one keeps nothing between runs.
  virtual std::unique_ptr<Target> Fresh() const { return nullptr; }
  /// The same, where calls may not return: they are given what others of this target took many times over,
  /// rather than the whole deadline.
  virtual std::unique_ptr<Target> FreshForHangs() const { return Fresh(); }
  /// What kind the error of its last run was of, if that had one.
  virtual Failure LastFailure() const { return {}; }
  /// Why there is no point in running it any more; "" as long as there is.
  virtual std::string WhyGivenUp() const { return {}; }
  /// What it wrote to stdout and stderr in the last run in which it wrote anything, where that is kept from
  /// them.
  virtual std::string Printed() const { return {}; }
  /// Output bytes, dense rows of c_type: of a GEMM m×n, item after item, of a convolution
  /// [batch][OD][OH][OW][output_channels]. UNSUPPORTED where the machine or the target cannot run it.
  virtual Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                           const RunOptions& options) const = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_TARGET_H_

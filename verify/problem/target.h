// A target is anything that can run GEMMs, convolutions or products with grouped weights: our kernels, a peer,
// a user's plug-in, a mutant with a planted fault. Only verify/targets/ knows the kinds of targets.
#ifndef INTACT_VERIFY_PROBLEM_TARGET_H_
#define INTACT_VERIFY_PROBLEM_TARGET_H_

#include <intact/target.h>

#include <array>
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
  // Unused elements between neighbours in memory.
  int64_t a_pad = 0;    // between rows of A, or pixels of the input; if a_by_columns, between columns of A
  int64_t c_pad = 0;    // between rows of C, or pixels of the output
  int64_t res_pad = 0;  // between rows or pixels of the residual
  // The residual is in C's memory: c_pad is its padding too, and its elements are as large as C's.
  bool in_place = false;
  // The fields below do not change the output. Targets that lack the next three features ignore these three
  // fields.
  bool open_extents = false;   // each run gives the convolution's extents
  bool own_scratch = false;    // the caller provides the scratch memory
  bool saved = false;          // the plan is saved and loaded before it runs
  int64_t usual_m = 0;         // the expected rows of a GEMM's plan; 0: any
  bool item_pointers = false;  // a run gets a pointer to each item of a batch, instead of a stride
  int64_t item_pad = 0;        // unused elements between the items of a batch; 0 with item_pointers
  bool a_by_columns = false;   // A is K×M in memory
  bool b_by_columns = false;   // B is N×K in memory
  int64_t b_pad = 0;           // unused elements between rows of B; if b_by_columns, between columns of B;
                               // bytes with grouped weights
  int32_t calls = 1;           // runs of one plan in the same memory; all must write the same bytes
  bool reused = false;         // the weights' memory held other weights in an earlier call
  // Of products with grouped weights only.
  int32_t parts = 0;           // a run is computed in so many parts, one after the other; 0: as a whole
  int64_t split = 0;           // rows of a run; 0: one run has all rows
  int64_t item = 0;            // rows of an item; the run is a batch of all items; 0: no batch
  bool b_is_kn = false;        // B's depths are rows; weights of 8 bits only
  bool scales_are_gn = false;  // B's scales and zero points as groups × columns
  int64_t expert_pad = 0;      // bytes between experts of B; elements between their scales

  bool operator==(const RunSettings&) const = default;
};

struct RunOptions : RunSettings {
  std::string line;  // the problem line, for messages; "" if there is none
  // A target in its own process (isolated_target.h) repeats each run with its tensors in another place. true:
  // in both other places; false: in one other place. One place suffices for a sweep of many problems.
  bool in_all_places = false;
  Surroundings surroundings;
};

/// The bits of all features.
inline constexpr uint64_t kAllFeatures = INTACT_TARGET_BIT(INTACT_TARGET_FEATURES) - 1;

/// The intact_target_feature bits that a target supports, for each kind of operation.
struct FeatureMasks {
  uint64_t gemm = kAllFeatures, conv = kAllFeatures;
  uint64_t grouped = 0;  // products with grouped weights; 0: the target has none
  uint64_t Of(const reference::Operation& operation) const {
    return std::array{gemm, conv, grouped}.at(operation.index());
  }
  bool operator==(const FeatureMasks&) const = default;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string Name() const = 0;
  /// The arithmetic that the target claims: see intact_target::arithmetic.
  virtual std::string Arithmetic() const { return "exact"; }
  virtual FeatureMasks Features() const { return {}; }
  /// This target in a new process. nullptr if the start failed, or if the target needs no new process because
  /// it keeps nothing between runs.
  virtual std::unique_ptr<Target> Fresh() const { return nullptr; }
  /// Fresh(), for calls that may not return: the time limit of the new target is a multiple of this target's
  /// slowest call, at most the deadline.
  virtual std::unique_ptr<Target> FreshForHangs() const { return Fresh(); }
  /// The kind of the last run's error, if the run failed.
  virtual Failure LastFailure() const { return {}; }
  /// The reason why callers must not run the target again; "" if they may.
  virtual std::string WhyGivenUp() const { return {}; }
  /// What the target wrote to stdout and stderr in the last run that wrote anything. "" if the target's
  /// output is not captured.
  virtual std::string Printed() const { return {}; }
  /// Output bytes, dense rows of c_type: m×n for a GEMM, item after item, and with grouped weights;
  /// [batch][OD][OH][OW][output_channels] for a convolution. UNSUPPORTED if the machine or the target cannot
  /// run the operation.
  virtual Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                           const RunOptions& options) const = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_TARGET_H_

// A run whose arguments have been checked: the object behind intact/bound.h.
#ifndef INTACT_KERNELS_PLANS_BOUND_RUN_H_
#define INTACT_KERNELS_PLANS_BOUND_RUN_H_

#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

class BoundRun {
 public:
  BoundRun() = default;
  virtual ~BoundRun() = default;
  BoundRun(const BoundRun&) = delete;
  BoundRun& operator=(const BoundRun&) = delete;

  /// Not thread-safe.
  virtual Error Run() = 0;
};

/// Nothing to compute.
class EmptyRun final : public BoundRun {
 public:
  Error Run() override { return {}; }
};

/// Scratch of a bound run on one thread: the caller's, or else its own.
class BoundScratch {
 public:
  /// `bytes`: what the run needs. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
  Error Set(void* scratch, size_t scratch_bytes, int64_t bytes) {
    if (scratch == nullptr && scratch_bytes == 0 && bytes > 0) {
      if (!own_.Resize(ScratchSize(bytes))) return {INTACT_OUT_OF_MEMORY, "no scratch memory"};
      scratch = own_.data();
      scratch_bytes = own_.size();
    }
    int threads = 1;
    ASSIGN_OR_RETURN(data_, ScratchOf(scratch, scratch_bytes, bytes, &threads));
    return {};
  }
  uint8_t* data() const { return data_; }

 private:
  AlignedBuffer<uint8_t> own_;
  uint8_t* data_ = nullptr;  // aligned to 64 bytes
};

/// A bound run that repeats a plain run of `args`, with all checks each time. `plan` outlives this object.
template <class Plan, class Args>
class CheckedRun final : public BoundRun {
 public:
  CheckedRun(const Plan& plan, const Args& args) : plan_(plan), args_(args) {}
  /// Checks the caller's scratch, if there is one. `bytes`: what a run on one thread needs.
  Error CheckScratch(int64_t bytes) {
    if (args_.scratch == nullptr && args_.scratch_bytes == 0) return {};
    return BoundScratch().Set(args_.scratch, args_.scratch_bytes, bytes);
  }
  /// Allocates scratch of `bytes` bytes unless the caller gives scratch.
  Error OwnScratch(int64_t bytes) {
    if (args_.scratch != nullptr || bytes == 0) return {};
    if (!own_.Resize(ScratchSize(bytes))) return {INTACT_OUT_OF_MEMORY, "no scratch memory"};
    args_.scratch = own_.data();
    args_.scratch_bytes = own_.size();
    return {};
  }
  Error Run() override { return plan_.Run(args_); }

 private:
  const Plan& plan_;
  Args args_;
  AlignedBuffer<uint8_t> own_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_BOUND_RUN_H_

// What a run of a node works with: the session's threads, memory, and transposition between NCHW and NHWC.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_RUN_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_RUN_H_

#include <intact/grouped.h>
#include <intact/intact.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <vector>

#include "../parts.h"
#include "ort.h"
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace intact::onnxruntime {

/// What the options of a session say; see docs/onnxruntime.md.
struct Settings {
  int32_t mode = INTACT_EXACT;       ///< an intact_mode
  int32_t max_isa = INTACT_ISA_ANY;  ///< an intact_isa, the cap
  int32_t threads = 1;               ///< most parts that a run is cut into
  double part_products = 1 << 18;    ///< of integrations::PartProducts()
  /// Outputs are the ones of ONNX Runtime's CPU provider on a CPU with AVX2 and no VNNI; `mode` is INTACT_EXACT.
  bool is_like_avx2 = false;
  bool is_nhwc = true;  ///< whether the provider asks for NHWC
  bool is_reproducible =
      false;  ///< no node may have bytes that depend on the CPU or on the number of threads
  bool quantizes_activations = false;  ///< of each MatMulNBits, whatever its accuracy level is
  /// Of a MatMulNBits that ONNX Runtime makes of a DequantizeLinear and a product: its accuracy level, and its depths of a block.
  int64_t nbits_level = 4, nbits_block = 32;
};

/// Elements of a tensor that one part of a loop over elements computes.
inline constexpr int64_t kElementsOfPart = 1 << 16;

/// Whether loops may use AVX2 and FMA: the CPU and the caps have them.
bool HasAvx2(const Settings& settings);
/// Whether loops may use AVX-512 F, BW, DQ and VL: the CPU and the caps have them.
bool HasAvx512(const Settings& settings);

/// The places of an operator's inputs and outputs among the inputs and outputs of a run; −1: the run does not have it.
struct Places {
  std::vector<int> inputs, outputs;
};

using integrations::PlanWork;

/// The order in which one thread computes a product.
struct Chunks {
  int count = 1;             ///< the number of chunks that the product is computed in
  bool is_reversed = false;  ///< begins with the last chunk
};

/// Describes to the thread sanitizer that writes before HandOver(object) happen before reads after
/// TakeOver(object). It does not see the atomics of ONNX Runtime's pool.
inline void HandOver([[maybe_unused]] void* object) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(object);
#endif
}
inline void TakeOver([[maybe_unused]] void* object) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(object);
#endif
}

/// One run of a node.
class Run {
 public:
  /// `places`: where the operator's inputs and outputs are among the run's. `memory`: the kind that Allocate() returns.
  Run(OrtKernelContext* context, const Places& places, const Settings& settings, const OrtMemoryInfo* memory);

  /// The input that the operator's definition has at `input`.
  Ort::ConstValue Input(size_t input) const {
    return context_.GetInput(static_cast<size_t>(places_.inputs.at(input)));
  }
  /// The elements of the output that the operator's definition has at `output`; null if nothing reads it.
  void* Output(const std::vector<int64_t>& shape, size_t output = 0) const {
    const int place = output < places_.outputs.size() ? places_.outputs[output] : -1;
    return place < 0 ? nullptr
                     : context_.GetOutput(static_cast<size_t>(place), shape).GetTensorMutableRawData();
  }
  /// Memory of the session's allocator, until the end of the run.
  void* Allocate(size_t bytes);

  /// Calls work(i) for each i in [0, count), on at most `most_parts` of the session's threads. Throws what one call throws.
  template <class Work>
  void ForEach(int64_t count, Work work, int64_t most_parts = std::numeric_limits<int64_t>::max()) const;
  /// How many parts a run of a plan is cut into.
  int PartsOf(const PlanWork& work) const;
  /// Runs a plan in PartsOf() parts. Each thread keeps scratch between runs. Any number of threads may, if there is one part.
  void Compute(const intact_gemm& plan, const intact_gemm_args& args, const PlanWork& work,
               Chunks chunks = {}) const;
  void Compute(const intact_conv& plan, const intact_conv_args& args, const PlanWork& work) const;
  void Compute(const intact_grouped& plan, const intact_grouped_args& args, const PlanWork& work) const;

  /// Writes the transpose of `matrices` row-major matrices of rows × columns elements, of one or four bytes.
  void Transpose(const void* source, void* target, size_t element_bytes, int64_t matrices, int64_t rows,
                 int64_t columns) const;

 private:
  struct Free {
    OrtAllocator* allocator;
    void operator()(void* memory) const { allocator->Free(allocator, memory); }
  };
  struct ReleaseAllocator {
    void operator()(OrtAllocator* allocator) const { Ort::GetApi().ReleaseAllocator(allocator); }
  };

  template <class Plan, class Args, class RunPart>
  void ComputeParts(const Plan& plan, const Args& args, const PlanWork& work, Chunks chunks,
                    RunPart run_part) const;

  Ort::KernelContext context_;
  const Places& places_;
  const Settings& settings_;
  const OrtMemoryInfo* allocated_;
  std::unique_ptr<OrtAllocator, ReleaseAllocator> allocator_;  // null before the first allocation
  std::vector<std::unique_ptr<void, Free>> memory_;
};

template <class Work>
void Run::ForEach(int64_t count, Work work, int64_t most_parts) const {
  const int64_t parts = std::min<int64_t>({count, settings_.threads, most_parts});
  if (parts <= 1) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  struct Call {
    Work& work;
    int64_t count, parts;
    std::atomic<bool> has_failed = false;
    std::exception_ptr failure;
  } call{work, count, parts, {}, {}};
  const auto call_part = [](void* data, size_t part) {
    TakeOver(data);
    auto& called = *static_cast<Call*>(data);
    const auto begin_of = [&](size_t p) { return called.count * static_cast<int64_t>(p) / called.parts; };
    try {
      for (int64_t i = begin_of(part); i < begin_of(part + 1); ++i) called.work(i);
    } catch (...) {
      if (!called.has_failed.exchange(true)) called.failure = std::current_exception();
    }
    HandOver(data);
  };
  HandOver(&call);
  context_.ParallelFor(call_part, static_cast<size_t>(parts), 0, &call);
  TakeOver(&call);
  if (call.failure) std::rethrow_exception(call.failure);
}

/// Writes the transpose of rows × columns elements. Strides: from a row of `source` and of `target` to the next one, in elements.
void Transpose(const float* source, int64_t source_stride, float* target, int64_t target_stride, int64_t rows,
               int64_t columns);
void Transpose(const uint8_t* source, int64_t source_stride, uint8_t* target, int64_t target_stride,
               int64_t rows, int64_t columns);

/// Throws the message of this thread's last call of intact, unless `status` is INTACT_OK.
void Check(intact_status status);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_RUN_H_

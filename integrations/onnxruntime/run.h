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
#include <span>
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

/// The slots of an operator's inputs and outputs; −1: the run does not have it.
struct Places {
  std::vector<int> inputs, outputs;
};

/// A place for a tensor in the runs of a node: an input of the node, an output, or a tensor between layers.
struct Slot {
  int input = -1, output = -1;                                               ///< which one; −1: none
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;  ///< except of an input
};

/// In which order a layer takes and makes the elements of tensors of N C … extents.
enum class ElementOrder {
  kChannelsFirst,  ///< as the graph has it
  kEither,         ///< input 0 and output 0 each as Run says
  kElementwise,    ///< in one order for all; inputs have one shape, except for the first extent
  kBroadcast,      ///< as the graph has it; the order of dimensions may decide bytes
};

/// The tensors of one run of a node.
class Tensors {
 public:
  /// `memory`: the kind that Allocate() returns.
  Tensors(OrtKernelContext* context, std::span<const Slot> slots, const OrtMemoryInfo* memory)
      : context_(context), slots_(slots), memory_(memory), tensors_(slots.size()) {}
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  const Ort::KernelContext& context() const { return context_; }
  /// The allocator of the session.
  OrtAllocator* Allocator();
  /// The tensor of a slot.
  Ort::ConstValue Get(int slot) const;
  /// Whether its elements are channels last. Its shape is N C … always.
  bool IsChannelsLast(int slot) const { return tensors_[static_cast<size_t>(slot)].is_channels_last; }
  /// Makes the tensor of a slot, and returns its elements.
  void* Make(int slot, const std::vector<int64_t>& shape, bool is_channels_last);
  /// Puts the elements of a channels-last tensor channels first. If it is an output of the node, the first call writes the output
  /// and keeps the channels-last tensor for later layers; the second call drops it. Calls transpose(source, target, element_bytes,
  /// shape).
  template <class Transpose>
  void PutChannelsFirst(int slot, Transpose transpose);
  /// Whether tensors of channels last have one shape, except perhaps the first extent. A model may describe wrong shapes.
  bool HaveOneShape(std::span<const int> slots) const;
  /// Whether a slot is an output of the node that only has channels last.
  bool IsUnfinished(int slot) const;
  /// Frees the memory of a tensor between layers.
  void Drop(size_t slot) { tensors_[slot] = {}; }

 private:
  struct ReleaseAllocator {
    void operator()(OrtAllocator* allocator) const { Ort::GetApi().ReleaseAllocator(allocator); }
  };
  struct Tensor {
    OrtValue* output = nullptr;  // of the node
    Ort::Value own{nullptr};
    bool is_channels_last = false;  // whether `own` is
  };

  Ort::KernelContext context_;
  std::span<const Slot> slots_;
  const OrtMemoryInfo* memory_;
  std::unique_ptr<OrtAllocator, ReleaseAllocator> allocator_;  // null before the first allocation
  std::vector<Tensor> tensors_;
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

template <class Transpose>
void Tensors::PutChannelsFirst(int slot, Transpose transpose) {
  const Slot& given = slots_[static_cast<size_t>(slot)];
  Tensor& tensor = tensors_[static_cast<size_t>(slot)];
  Ort::Value last = std::move(tensor.own);
  tensor.is_channels_last = false;
  if (tensor.output != nullptr) return;
  const std::vector<int64_t> shape = last.GetTensorTypeAndShapeInfo().GetShape();
  void* const target = Make(slot, shape, false);
  const bool is_byte =
      given.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 || given.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
  transpose(last.GetTensorRawData(), target, size_t{is_byte ? 1U : 4U}, std::span(shape));
  if (given.output < 0) return;
  tensor.own = std::move(last);
  tensor.is_channels_last = true;
}

/// One run of a layer.
class Run {
 public:
  /// `places`: where the operator's inputs and outputs are among the tensors.
  Run(Tensors& tensors, const Places& places, const Settings& settings)
      : tensors_(tensors), places_(places), settings_(settings) {}

  /// Prepares the inputs of a layer. `has_channels_last`: whether a layer of kEither makes channels last.
  void Begin(ElementOrder order, bool has_channels_last);
  /// Completes outputs of the node.
  void End();

  /// The input that the operator's definition has at `input`.
  Ort::ConstValue Input(size_t input) const { return tensors_.Get(places_.inputs.at(input)); }
  /// Whether the elements of an input or of output 0 are channels last, although the shape is N C ….
  bool IsChannelsLast(size_t input) const { return tensors_.IsChannelsLast(places_.inputs.at(input)); }
  bool IsOutputChannelsLast() const { return is_output_channels_last_; }
  /// The elements of the output that the operator's definition has at `output`; null if nothing reads it.
  void* Output(const std::vector<int64_t>& shape, size_t output = 0) const {
    const int place = output < places_.outputs.size() ? places_.outputs[output] : -1;
    return place < 0 ? nullptr : tensors_.Make(place, shape, output == 0 && is_output_channels_last_);
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

  void PutChannelsFirst(int slot) const;

  template <class Plan, class Args, class RunPart>
  void ComputeParts(const Plan& plan, const Args& args, const PlanWork& work, Chunks chunks,
                    RunPart run_part) const;

  Tensors& tensors_;
  const Places& places_;
  const Settings& settings_;
  bool is_output_channels_last_ = false;
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
  tensors_.context().ParallelFor(call_part, static_cast<size_t>(parts), 0, &call);
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

#include "kernels/runtime/threads.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <new>
#include <string>

#include "core/isas.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/valgrind.h"

namespace intact::kernels {

namespace {

// The least work for which a thread is used: about four microseconds, half the time that waking a thread
// takes. AVX2 computes 2^19 products in that time. Wider vectors and VNNI each double the products per
// instruction. Four times more for tiles is an estimate.
double LeastMultiplyAdds(core::Isa isa) {
  const core::IsaTraits& traits = core::TraitsOf(isa);
  double least = 1 << 19;
  if (core::IsCompiled(isa)) return least;
  if (traits.vectors.bytes > core::kYmm.bytes) least *= 2;
  if (traits.dot_products != core::DotProducts::kNone) least *= 2;
  return traits.has_tiles ? 4 * least : least;
}

// The calling thread's buffer; null if memory ran out. Not a thread_local: glibc ends the process if it has
// no memory to register the destructor.
AlignedBuffer<uint8_t>* ThreadBuffer() {
  using Buffer = AlignedBuffer<uint8_t>;
  struct Key {
    pthread_key_t value = 0;
    bool is_made = pthread_key_create(&value, [](void* buffer) { delete static_cast<Buffer*>(buffer); }) == 0;
  };
  static const Key kKey;
  if (!kKey.is_made) return nullptr;
  auto* buffer = static_cast<Buffer*>(pthread_getspecific(kKey.value));
  if (buffer != nullptr) return buffer;
  buffer = new (std::nothrow) Buffer;
  if (buffer == nullptr || pthread_setspecific(kKey.value, buffer) == 0) return buffer;
  delete buffer;
  return nullptr;
}

// Null if memory ran out.
uint8_t* ThreadScratch(int64_t bytes) {
  AlignedBuffer<uint8_t>* const buffer = ThreadBuffer();
  if (buffer == nullptr) return nullptr;
  const auto size = static_cast<size_t>(bytes);
  return buffer->size() >= size || buffer->Resize(size) ? buffer->data() : nullptr;
}

}  // namespace

Result<uint8_t*> ScratchOf(void* scratch, size_t scratch_bytes, int64_t share_bytes, int* threads,
                           int64_t shared_bytes) {
  const auto refused = [&](const std::string& why) {
    return Error{INTACT_INVALID_ARGUMENT, "scratch_bytes is " + std::to_string(scratch_bytes) + why};
  };
  if (scratch == nullptr) {
    if (scratch_bytes != 0) return refused(" and scratch is NULL; expected 0");
    const int64_t bytes = shared_bytes + share_bytes * *threads;
    if (bytes == 0) return static_cast<uint8_t*>(nullptr);
    uint8_t* const own = ThreadScratch(bytes);
    if (own == nullptr) return Error{INTACT_OUT_OF_MEMORY, "no scratch memory"};
    DefineForValgrind(own, static_cast<size_t>(bytes));
    return own;
  }
  const size_t least = ScratchSize(shared_bytes + share_bytes);
  if (scratch_bytes < least) return refused("; expected at least " + std::to_string(least));
  if (share_bytes > 0) {
    const size_t served = (scratch_bytes - ScratchSize(shared_bytes)) / static_cast<size_t>(share_bytes);
    *threads = static_cast<int>(std::min(static_cast<size_t>(*threads), served));
  }
  DefineForValgrind(scratch, scratch_bytes);
  auto* const given = static_cast<uint8_t*>(scratch);
  return given + (-reinterpret_cast<uintptr_t>(given) & 63);
}

// A run within a parallel region has one thread, unless OpenMP's settings allow nested regions.
int ThreadsOf(int32_t wanted, double multiply_adds, core::Isa isa) {
  if (wanted != 0) return wanted;
  const double least = LeastMultiplyAdds(isa);
  if (multiply_adds < 2 * least || omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  return static_cast<int>(std::min<double>(omp_get_max_threads(), multiply_adds / least));
}

// omp_get_num_procs() is a system call; a run on one thread makes none.
ThreadCount CountThreads(int parts, int threads) {
  threads = std::min(threads, parts);
  return {parts, threads == 1 ? 1 : std::min(threads, omp_get_num_procs())};
}

}  // namespace intact::kernels

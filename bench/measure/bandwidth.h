// Read bandwidth of one core. It bounds the speed of a GEMM of few rows, which reads its weights once.
//
// It is measured by generated loops of plain loads, with vectors of the ISA, over a buffer in large pages:
// one stream or several, with and without software prefetch. The fastest loop counts.
//
//   | stream 0: blocks of 256 bytes … | stream 1 … | … |      a step loads one block of each stream
#ifndef INTACT_BENCH_MEASURE_BANDWIDTH_H_
#define INTACT_BENCH_MEASURE_BANDWIDTH_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/function.h"

namespace intact::bench {

/// What a loop reads: ReadLoop::streams streams of stream_bytes each, block by block.
struct ReadArgs {
  const uint8_t* data;
  int64_t stream_bytes;
  int64_t blocks;  // blocks of each stream
};

struct ReadLoop {
  int streams = 1;
  int prefetch_bytes = 0;  // how far ahead; 0 = not at all
  jit::Function<void(const ReadArgs*)> run;
};

class ReadBandwidth {
 public:
  /// A buffer of about `bytes`, and the fastest loop over it.
  static Result<ReadBandwidth> Create(core::Isa isa, int64_t bytes);

  /// GB/s (10⁹ bytes) of passes over the buffer. An untimed pass fills the caches first.
  double Measure() const;
  /// "8 streams, prefetch 1024 bytes ahead".
  std::string Describe() const;

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(uint8_t* data) const noexcept;
  };
  using Buffer = std::unique_ptr<uint8_t[], Unmap>;
  ReadBandwidth(Buffer buffer, ReadLoop loop) : buffer_(std::move(buffer)), loop_(std::move(loop)) {}

  Buffer buffer_;
  ReadLoop loop_;
};

/// A buffer size that measures the bandwidth of one level of the memory hierarchy.
struct ReadSize {
  int64_t bytes = 0;
  std::string level;  // where it fits: "L1", "L2", "L3" or "memory"; "L3 or memory" if L3's size is unknown
  /// "bandwidth/read/64MiB".
  std::string Name() const;
};

/// Half of L1, half of L2, 16, 64 and 256 MiB, and a size beyond L3 if memory allows. An argument is 0 if the
/// size of that cache is unknown.
std::vector<ReadSize> ReadSizes(int64_t l1d_bytes, int64_t l2_bytes, int64_t l3_bytes);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_BANDWIDTH_H_

#include "bench/measure/bandwidth.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "bench/measure/peaks.h"
#include "core/isas.h"
#include "core/result.h"
#include "jit/assembler.h"
#include "jit/emitters/emitter.h"
#include "support/counted.h"
#include "verify/report/report_terminal.h"

namespace intact::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kBlockBytes = 256;
constexpr int kLineBytes = 64;
constexpr int kMaxStreams = 8;
constexpr std::array kStreams = {1, 4, kMaxStreams};
constexpr std::array kPrefetchBytes = {0, 1024};

// The buffer is a multiple of this, so that every loop reads all of it.
constexpr int64_t kUnitBytes = kMaxStreams * kBlockBytes;

constexpr Seconds kShortestTime(100e-6);
constexpr int kPasses = 3;

Result<jit::Code> Generate(core::Isa isa, const ReadLoop& loop) {
  namespace x86 = asmjit::x86;
  jit::Assembler session([&] {
    return fmt::format("read_{}x{}_prefetch{}_{}", loop.streams, kBlockBytes, loop.prefetch_bytes,
                       core::CompactName(isa));
  });
  jit::RegisterFile registers = jit::MakeRegisterFile(isa);
  const auto emitter = jit::MakeEmitter(isa, session.code(), registers);
  const jit::Gp args = registers.Argument();
  const jit::Gp stride = registers.NewGeneral("stride");
  const jit::Gp blocks = registers.NewGeneral("blocks");
  std::vector<jit::Gp> streams(static_cast<size_t>(loop.streams));
  for (jit::Gp& stream : streams) stream = registers.NewGeneral("stream");
  std::array<jit::Vec, 8> sinks;
  for (jit::Vec& sink : sinks) sink = registers.NewVector("sink");
  session.Begin(registers);
  x86::Assembler& code = session.code();
  code.mov(stride, x86::ptr(args, offsetof(ReadArgs, stream_bytes)));
  code.mov(blocks, x86::ptr(args, offsetof(ReadArgs, blocks)));
  code.mov(streams[0], x86::ptr(args, offsetof(ReadArgs, data)));
  for (size_t i = 1; i < streams.size(); ++i) code.lea(streams[i], x86::ptr(streams[i - 1], stride));
  const asmjit::Label step = code.newLabel();
  code.bind(step);
  size_t loads = 0;
  for (const jit::Gp& stream : streams) {
    for (int offset = 0; offset < kBlockBytes; offset += registers.vector_bytes()) {
      if (loop.prefetch_bytes != 0 && offset % kLineBytes == 0) {
        code.prefetcht0(x86::ptr(stream, offset + loop.prefetch_bytes));
      }
      emitter->Load(sinks[loads++ % sinks.size()], x86::ptr(stream, offset));
    }
    code.add(stream, kBlockBytes);
  }
  code.dec(blocks);
  code.jnz(step);
  session.End();
  return session.Finish(registers);
}

Result<ReadLoop> MakeLoop(core::Isa isa, int streams, int prefetch_bytes) {
  ReadLoop loop{streams, prefetch_bytes, {}};
  ASSIGN_OR_RETURN(jit::Code code, Generate(isa, loop));
  loop.run = jit::Function<void(const ReadArgs*)>(std::move(code));
  return loop;
}

Seconds Time(const ReadLoop& loop, const ReadArgs& args, int64_t passes) {
  const auto start = Clock::now();
  for (int64_t pass = 0; pass < passes; ++pass) loop.run(&args);
  return Clock::now() - start;
}

double Rate(const ReadLoop& loop, const uint8_t* data, size_t bytes) {
  const int64_t stream_bytes = static_cast<int64_t>(bytes) / loop.streams;
  const ReadArgs args = {data, stream_bytes, stream_bytes / kBlockBytes};
  const auto passes = static_cast<int64_t>(kShortestTime / Time(loop, args, 1)) + 1;
  Seconds best = Seconds::max();
  for (int i = 0; i < kPasses; ++i) best = std::min(best, Time(loop, args, passes));
  return 1e-9 * static_cast<double>(bytes) * static_cast<double>(passes) / best.count();
}

}  // namespace

void ReadBandwidth::Unmap::operator()(uint8_t* data) const noexcept { munmap(data, bytes); }

Result<ReadBandwidth> ReadBandwidth::Create(core::Isa isa, int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes / kUnitBytes, 1) * kUnitBytes);
  void* const mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{INTACT_OUT_OF_MEMORY, fmt::format("no memory for a buffer of {} bytes", size)};
  }
  Buffer buffer(static_cast<uint8_t*>(mapping), Unmap{size});
  (void)madvise(mapping, size, MADV_HUGEPAGE);  // a hint: without it the figure is what small pages give
  std::memset(mapping, 1, size);                // untouched pages all map to one zero page
  ReadLoop fastest;
  double best = 0;
  for (const int streams : kStreams) {
    for (const int prefetch_bytes : kPrefetchBytes) {
      ASSIGN_OR_RETURN(const ReadLoop loop, MakeLoop(YardstickOf(isa), streams, prefetch_bytes));
      const double rate = Rate(loop, buffer.get(), size);
      if (rate > best) fastest = loop;
      best = std::max(best, rate);
    }
  }
  return ReadBandwidth(std::move(buffer), std::move(fastest));
}

double ReadBandwidth::Measure() const { return Rate(loop_, buffer_.get(), buffer_.get_deleter().bytes); }

std::string ReadBandwidth::Describe() const {
  return fmt::format(
      "{}{}", support::Counted(loop_.streams, "stream"),
      loop_.prefetch_bytes == 0 ? "" : fmt::format(", prefetch {} bytes ahead", loop_.prefetch_bytes));
}

std::string ReadSize::Name() const {
  std::string size = verify::BytesText(bytes);
  std::erase(size, ' ');
  return "bandwidth/read/" + size;
}

std::vector<ReadSize> ReadSizes(int64_t l1d_bytes, int64_t l2_bytes, int64_t l3_bytes) {
  constexpr int64_t kMebi = int64_t{1} << 20;
  std::vector<int64_t> sizes = {l1d_bytes / 2, l2_bytes / 2, 16 * kMebi, 64 * kMebi, 256 * kMebi};
  const auto beyond_l3 = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * l3_bytes)));
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (l3_bytes != 0 && beyond_l3 <= memory / 4) sizes.push_back(beyond_l3);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<ReadSize> named;
  for (const int64_t bytes : sizes) {
    if (bytes == 0) continue;
    const char* level = bytes <= l1d_bytes  ? "L1"
                        : bytes <= l2_bytes ? "L2"
                        : bytes <= l3_bytes ? "L3"
                        : l3_bytes != 0     ? "memory"
                                            : "L3 or memory";
    named.push_back({bytes, level});
  }
  return named;
}

}  // namespace intact::bench

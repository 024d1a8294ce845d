// An engine that owns its threads and its memory. It prepares its layers once and allocates one arena for all
// of them. Then each thread computes one part of each layer, without allocations.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <thread>
#include <utility>
#include <vector>

int main() {
  constexpr int64_t rows = 96, width = 64;
  constexpr int layers = 6, threads = 3;
  const float scale = 1.0f / 64;
  std::vector<intact::Gemm> network;
  size_t scratch_bytes = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const std::vector<int8_t> weights(width * width, static_cast<int8_t>(layer % 2 + 1));
    intact::GemmDesc desc = intact::MakeGemmDesc();
    desc.n = desc.k = width;
    desc.usual_m = rows;  // the plan keeps the weight layout that is best for this number of rows
    desc.linear.c_type = INTACT_U8;
    desc.linear.scales = &scale;
    desc.linear.scale_count = 1;
    auto gemm = intact::Gemm::Create(desc, weights.data());
    if (!gemm) return std::fprintf(stderr, "Create: %s\n", gemm.error().message.c_str()), 1;
    const auto run = gemm->Prepare(rows);
    if (!run) return std::fprintf(stderr, "Prepare: %s\n", run.error().message.c_str()), 1;
    scratch_bytes = std::max(scratch_bytes, run->part_scratch_bytes);  // what one part of one layer needs
    network.push_back(std::move(*gemm));
  }

  std::vector<uint8_t> buffers[2] = {std::vector<uint8_t>(rows * width, 3),
                                     std::vector<uint8_t>(rows * width)};
  std::vector<uint8_t> arena(scratch_bytes * threads);
  std::barrier layer_end(threads);
  bool failed[threads] = {};
  const auto work = [&](int part) {
    const intact::RunOptions options = {.scratch = &arena[scratch_bytes * part],
                                        .scratch_bytes = scratch_bytes};
    for (int layer = 0; layer < layers; ++layer) {
      const intact::MatrixView<const uint8_t> input(buffers[layer % 2].data(), rows, width);
      const intact::MatrixView<uint8_t> output(buffers[1 - layer % 2].data(), rows, width);
      if (!network[layer].RunPart(input, output, part, threads, options).ok()) failed[part] = true;
      layer_end.arrive_and_wait();  // the next layer reads what all parts wrote
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int part = 0; part < threads; ++part) pool.emplace_back(work, part);
  }
  for (const bool part_failed : failed) {
    if (part_failed) return 1;
  }
  for (const uint8_t value : buffers[layers % 2]) {
    if (value != 24) return 1;  // 3·1·2·1·2·1·2
  }
  std::printf("%d layers on %d threads, %zu bytes of scratch\n", layers, threads, arena.size());
}

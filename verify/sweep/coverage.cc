#include "verify/sweep/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace intact::verify {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"gemm", "scheduled", "depthwise"};

// Reads digits from the front of `text`; −1 if there are none.
int64_t TakeNumber(std::string_view* text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return error == std::errc() ? number : -1;
}

// "8x48c4", "32of128x1c4", "4x64"
Block ParseBlock(std::string_view part) {
  const int64_t rows = TakeNumber(&part);
  if (part.starts_with("of")) {
    part.remove_prefix(2);
    TakeNumber(&part);
  }
  if (rows < 1 || !part.starts_with('x')) return {0, 0};
  part.remove_prefix(1);
  const int64_t columns = TakeNumber(&part);
  return columns < 1 ? Block{0, 0} : Block{rows, columns};
}

int Part(int64_t extent, int64_t block) { return extent < block ? 0 : extent % block == 0 ? 1 : 2; }

int EdgeOf(const Problem& p, const Block& block) {
  int64_t m = p.m;
  int64_t n = p.n;
  int64_t k = p.k;
  if (p.conv) {
    m = p.conv->OutputPixels() / p.conv->batch;
    n = p.conv->GroupOutputs();
    k = p.conv->GroupInputs();
    if (n == 1 && k == 1) n = p.conv->output_channels;  // depthwise
  }
  return (Part(m, block.rows) * 3 + Part(n, block.columns)) * 2 + (k % 4 == 0 ? 0 : 1);
}

// Any five numbers for the types of outputs do.
int TypesOf(const Problem& p) {
  return static_cast<int>(p.c_type) * 4 + (p.a_type == INTACT_S8 ? 2 : 0) + (p.b_type == INTACT_S8 ? 1 : 0);
}

}  // namespace

Block BlockIn(std::string_view kernel) {
  Block block = {0, 0};
  while (!kernel.empty()) {
    const size_t end = std::min(kernel.find('_'), kernel.size());
    const Block found = ParseBlock(kernel.substr(0, end));
    if (found.rows > 0) block = found;  // the last: filters come before
    kernel.remove_prefix(std::min(end + 1, kernel.size()));
  }
  return block.rows > 0 ? block : Block{};
}

std::string BlockName(std::string_view kernel) {
  const Block block = BlockIn(kernel);
  for (const std::string_view kind : kKinds) {
    if (kernel.find(kind) != std::string_view::npos) {
      return fmt::format("{} {}x{}", kind, block.rows, block.columns);
    }
  }
  return fmt::format("{}x{}", block.rows, block.columns);
}

void Coverage::Add(const Problem& problem, std::string_view kernel) {
  ++problems_;
  Met& met = blocks_[{problem.isa, BlockName(kernel)}];
  const int edge = EdgeOf(problem, BlockIn(kernel));
  const int types = TypesOf(problem);
  ++met.problems;
  met.edges.insert(edge);
  met.fills.insert(problem.fill);
  met.types.insert(types);
  met.combinations.emplace(edge, problem.fill, types);
}

}  // namespace intact::verify

#include "bench/workload.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/dispatch.h"

namespace intact::bench {
namespace {

constexpr std::array kExactOnly = {reference::Model::kExact};
constexpr std::array kTripleOnly = {reference::Model::kTriple};
constexpr std::array kEither = {reference::Model::kExact, reference::Model::kTriple};

constexpr int kFullRange = 255;
constexpr uint8_t kUnwritten = 0xa5;

Bytes Allocate(int64_t size) {
  Bytes bytes;
  if (!bytes.Resize(static_cast<size_t>(size))) throw std::bad_alloc();
  return bytes;
}

verify::Problem ProblemOf(const Case& c) {
  verify::Problem problem;
  problem.m = c.shape.m;
  problem.n = c.shape.n;
  problem.k = c.shape.k;
  problem.fill = c.weights.fill;
  if (c.amax != 0) problem.amax = c.amax;
  problem.c_type = INTACT_U8;
  problem.scale = verify::ScaleKind::kChannel;
  problem.activation = INTACT_ACTIVATION_RELU;
  return problem;
}

}  // namespace

Workload::Workload(const Case& c) : gemm_(verify::Materialize(ProblemOf(c))) {
  const int largest = c.amax != 0 ? c.amax : kFullRange;
  a_ = Allocate(gemm_.m * gemm_.k);
  std::ranges::copy(gemm_.a, a_.data());
  maximum_ = Allocate(gemm_.m * gemm_.k);
  std::fill_n(maximum_.data(), maximum_.size(), static_cast<uint8_t>(largest));

  probe_ = gemm_;
  probe_.m = kSampledRows + 1;
  probe_.a.clear();
  for (const int64_t row : SampledRows()) {
    probe_.a.insert(probe_.a.end(), a_.data() + row * gemm_.k, a_.data() + (row + 1) * gemm_.k);
  }
  probe_.a.insert(probe_.a.end(), maximum_.data(), maximum_.data() + gemm_.k);
  const reference::Operands operands(probe_);
  exact_ = reference::Accumulators(operands, reference::Model::kExact);
  triple_ = reference::Accumulators(operands, reference::Model::kTriple);
  probe_.a.clear();
  probe_.b.clear();
}

Bytes Workload::NewC(intact_type c_type) const {
  Bytes c = Allocate(gemm_.m * gemm_.n * reference::ElementSize(c_type));
  std::fill_n(c.data(), c.size(), kUnwritten);  // an earlier C's memory may hold the right result
  return c;
}

std::optional<reference::Model> Workload::Recognise(Contender* contender, intact_type c_type,
                                                    std::span<const reference::Model> models) const {
  Bytes c = NewC(c_type);
  Bytes c_of_maximum = NewC(c_type);
  if (!contender->Run(a_.data(), c.data()) || !contender->Run(maximum_.data(), c_of_maximum.data())) {
    return std::nullopt;
  }
  const auto found = std::ranges::find_if(
      models, [&](reference::Model model) { return Equals(c.data(), c_of_maximum.data(), c_type, model); });
  return found == models.end() ? std::nullopt : std::optional(*found);
}

bool Workload::Equals(const uint8_t* c, const uint8_t* c_of_maximum, intact_type c_type,
                      reference::Model model) const {
  reference::Gemm probe = probe_;
  probe.c_type = c_type;
  const std::vector<uint8_t> expected =
      reference::Outputs(probe, model == reference::Model::kTriple ? triple_ : exact_);
  const int64_t row_bytes = gemm_.n * reference::ElementSize(c_type);
  const auto is_row = [&](const uint8_t* actual, int64_t row, int64_t expected_row) {
    return std::equal(actual + row * row_bytes, actual + (row + 1) * row_bytes,
                      expected.begin() + expected_row * row_bytes);
  };
  const std::array<int64_t, kSampledRows> rows = SampledRows();
  for (int64_t i = 0; i < kSampledRows; ++i) {
    if (!is_row(c, rows[static_cast<size_t>(i)], i)) return false;
  }
  for (int64_t row = 0; row < gemm_.m; ++row) {
    if (!is_row(c_of_maximum, row, kSampledRows)) return false;
  }
  return true;
}

std::span<const reference::Model> AdmissibleModels(const Case& c) {
  if (!c.peer.empty()) return kEither;
  if (kernels::PairsSaturate(c.isa, c.mode)) return kTripleOnly;
  return kExactOnly;
}

}  // namespace intact::bench

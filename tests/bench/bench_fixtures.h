// Code that the tests of intact_bench share: a contender that computes with the reference and may spoil the
// result, recognition of its results, and results for reports.
#ifndef INTACT_TESTS_BENCH_BENCH_FIXTURES_H_
#define INTACT_TESTS_BENCH_BENCH_FIXTURES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/cases/case.h"
#include "bench/cases/contender.h"
#include "bench/cases/suites.h"
#include "bench/cases/workload.h"
#include "bench/measure/run.h"
#include "bench/report/results.h"
#include "core/isas.h"
#include "core/types.h"
#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"
#include "reference/contract/quantize.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"

namespace intact::bench {

/// Computes with the reference, by any model, and spoils the result.
class FakeContender final : public Contender {
 public:
  using Spoil = std::function<void(const uint8_t* a, uint8_t* c)>;

  FakeContender(const Workload& workload, const Case& c, reference::Model model, Spoil spoil = {})
      : is_conv_(c.shape.conv.has_value()), format_(c.format), model_(model), spoil_(std::move(spoil)) {
    if (is_conv_) {
      conv_ = workload.conv();
    } else {
      gemm_ = workload.gemm();
    }
    for (reference::Linear* operation :
         {static_cast<reference::Linear*>(&gemm_), static_cast<reference::Linear*>(&conv_)}) {
      operation->c_type = format_.c_type;
      operation->post_ops = workload.PostOpsOf(format_);
      if (format_ == kFloat) operation->scales = {1.0f};
    }
  }

  std::string Implementation() const override { return "fake"; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    ++runs;
    if (!writes) return true;
    std::ranges::copy(is_conv_ ? Compute(&conv_, a) : Compute(&gemm_, a), c);
    if (spoil_) spoil_(a, c);
    return !fails;
  }

  reference::Gemm* gemm() { return &gemm_; }
  reference::Conv* conv() { return &conv_; }

  int runs = 0;
  bool fails = false;
  bool writes = true;

 private:
  template <class Operation>
  std::vector<uint8_t> Compute(Operation* operation, const uint8_t* a) const {
    for (size_t i = 0; i < operation->a.size(); ++i) {
      float value = 0;
      if (format_ == kFloat) std::memcpy(&value, a + i * sizeof value, sizeof value);
      operation->a[i] = format_ == kFloat ? static_cast<uint8_t>(value) : a[i];
    }
    if constexpr (std::is_same_v<Operation, reference::Gemm>) {
      if (IsDynamic(format_.quantization)) Quantize(operation, a);
    }
    return reference::Outputs(*operation, reference::Accumulators(*operation, model_));
  }

  void Quantize(reference::Gemm* gemm, const uint8_t* a) const {
    gemm->a_quantization =
        format_ == kByRow ? INTACT_QUANTIZATION_DYNAMIC_ROWS : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
    gemm->a_source_type = INTACT_F32;
    gemm->a_source.assign(a, a + gemm->m * gemm->k * static_cast<int64_t>(sizeof(float)));
    reference::QuantizeActivations(gemm);
  }

  bool is_conv_;
  Format format_;
  reference::Gemm gemm_;
  reference::Conv conv_;
  reference::Model model_;
  Spoil spoil_;
};

inline Case SmallCase() {
  Case c;
  c.shape = {9, 40, 256};
  return c;
}

inline constexpr std::array kBoth = {reference::Model::kExact, reference::Model::kMaddubs};

/// The expected result of Workload::Recognise().
struct Recognised {
  const char* name;
  Shape shape;
  Format format;
};
// GoogleTest prints this instead of bytes.
inline void PrintTo(const Recognised& recognised, std::ostream* out) { *out << recognised.name; }

/// Tests of Recognise() (bench_test.cc), with the shapes of either file.
class Recognition : public testing::TestWithParam<Recognised> {
 protected:
  static Case What() {
    Case c;
    c.shape = GetParam().shape;
    c.format = GetParam().format;
    return c;
  }
  std::optional<reference::Model> Recognise(FakeContender fake,
                                            std::span<const reference::Model> models = kBoth) const {
    return workload_.Recognise(&fake, GetParam().format, models);
  }
  FakeContender Fake(reference::Model model, FakeContender::Spoil spoil = {}) const {
    return {workload_, What(), model, std::move(spoil)};
  }
  static int64_t RowBytes() { return GetParam().shape.n * core::BytesOf(GetParam().format.c_type); }
  static int64_t Bytes() { return GetParam().shape.Rows() * RowBytes(); }

  const Workload workload_{What()};
};

/// The ISAs with generated kernels.
inline std::vector<core::Isa> GeneratedIsas() {
  std::vector<core::Isa> isas;
  for (const core::Isa isa : core::kAllIsas) {
    if (core::IsCompiled(isa)) continue;
    if (intact_isa_available(static_cast<intact_isa>(isa)) != 0) isas.push_back(isa);
  }
  return isas;
}

/// Measures a suite as briefly as possible.
inline Results RunTiny(const Suite& suite, const std::vector<core::Isa>& isas = GeneratedIsas()) {
  Request request;
  request.suite = suite;
  request.budget = Seconds(0);
  request.isas = isas;
  Result<Results> results = Run(request, [](int64_t, int64_t) {});
  EXPECT_TRUE(results) << results.error().message;
  return results ? *results : Results{};
}

/// Results of two shapes on one ISA: intact takes 10 and 20 us. The peer, which saturates, takes 20 and 80
/// us.
inline Results MadeUpResults() {
  Results results;
  results.suite = "made up";
  results.weights = "laplace";
  results.machine.cpu = "A <CPU> & more";
  results.isas = {{INTACT_ISA_AVX2, true, ""}, {INTACT_ISA_AMX_INT8, false, "no tiles"}};
  results.peaks = {{"maddubs/ymm", 200}};
  results.reads = {{int64_t{16} << 20, "L3", 20}};
  results.peers = {{"onednn", "2.6.3"}};
  Row compute = {"avx2", {100, 100, 50}, 1, "maddubs/ymm", 200, 20, {}};  // 1e6 operations
  compute.timings = {{"intact", kS32, "ours", "exact", 10, 0.01},
                     {"intact", kU8, "ours", "exact", 10.5, 0.01},
                     {"onednn", kS32, "theirs", "saturates", 20, 0.02},
                     {"onednn", kU8, "theirs", "wrong: not timed", 0, 0}};
  Row few_rows = {"avx2", {1, 1000, 100}, 1, "maddubs/ymm", 200, 20,
                  {}};  // 100 kB of weights: 5 us at 20 GB/s
  few_rows.timings = {{"intact", kS32, "ours", "exact", 20, 0.01},
                      {"intact", kU8, "ours", "exact", 20, 0.01},
                      {"onednn", kS32, "theirs", "saturates", 80, 0.02},
                      {"onednn", kU8, "theirs", "exact", 40, 0.02}};
  results.rows = {compute, few_rows};
  results.first_calls = {{"avx2", "", 12.5, 3.25, 1.95}};
  return results;
}

}  // namespace intact::bench

#endif  // INTACT_TESTS_BENCH_BENCH_FIXTURES_H_

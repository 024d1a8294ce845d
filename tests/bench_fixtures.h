// What the tests of intact_bench share: a contender that computes by the reference and may be spoilt, what is
// recognised of it, and results to report.
#ifndef INTACT_TESTS_BENCH_FIXTURES_H_
#define INTACT_TESTS_BENCH_FIXTURES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/case.h"
#include "bench/contender.h"
#include "bench/results.h"
#include "bench/workload.h"
#include "reference/conv.h"
#include "reference/gemm.h"
#include "reference/models.h"

namespace intact::bench {

/// Computes by the reference, in whatever model, and spoils the result.
class FakeContender final : public Contender {
 public:
  using Spoil = std::function<void(const uint8_t* a, uint8_t* c)>;

  FakeContender(const Workload& workload, const Case& c, reference::Model model, Spoil spoil = {})
      : is_conv_(c.shape.conv.has_value()), c_type_(c.c_type), model_(model), spoil_(std::move(spoil)) {
    if (is_conv_) {
      conv_ = workload.conv();
    } else {
      gemm_ = workload.gemm();
    }
    for (reference::Operation* operation :
         {static_cast<reference::Operation*>(&gemm_), static_cast<reference::Operation*>(&conv_)}) {
      operation->c_type = c_type_;
      if (c_type_ == INTACT_F32) operation->scales = {1.0f};
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

  reference::Conv* conv() { return &conv_; }

  int runs = 0;
  bool fails = false;
  bool writes = true;

 private:
  template <class Operation>
  std::vector<uint8_t> Compute(Operation* operation, const uint8_t* a) const {
    for (size_t i = 0; i < operation->a.size(); ++i) {
      float value = 0;
      if (c_type_ == INTACT_F32) std::memcpy(&value, a + i * sizeof value, sizeof value);
      operation->a[i] = c_type_ == INTACT_F32 ? static_cast<uint8_t>(value) : a[i];
    }
    return reference::Outputs(*operation, reference::Accumulators(*operation, model_));
  }

  bool is_conv_;
  intact_type c_type_;
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

inline constexpr std::array kBoth = {reference::Model::kExact, reference::Model::kTriple};

/// What Workload::Recognise() is to tell.
struct Recognised {
  const char* name;
  Shape shape;
  intact_type c_type;
};
// What googletest prints instead of its bytes.
inline void PrintTo(const Recognised& recognised, std::ostream* out) { *out << recognised.name; }

/// The tests of it (bench_test.cc), for the shapes that either file gives.
class Recognition : public testing::TestWithParam<Recognised> {
 protected:
  static Case What() {
    Case c;
    c.shape = GetParam().shape;
    c.c_type = GetParam().c_type;
    return c;
  }
  std::optional<reference::Model> Recognise(FakeContender fake,
                                            std::span<const reference::Model> models = kBoth) const {
    return workload_.Recognise(&fake, GetParam().c_type, models);
  }
  FakeContender Fake(reference::Model model, FakeContender::Spoil spoil = {}) const {
    return {workload_, What(), model, std::move(spoil)};
  }
  static int64_t RowBytes() { return GetParam().shape.n * reference::ElementSize(GetParam().c_type); }
  static int64_t Bytes() { return GetParam().shape.m * RowBytes(); }

  const Workload workload_{What()};
};

/// Results of two shapes on one ISA: intact takes 10 and 20 us, the peer, which saturates, 20 and 80 us.
inline Results MadeUpResults() {
  Results results;
  results.suite = "made up";
  results.weights = "laplace";
  results.machine.cpu = "A <CPU> & more";
  results.isas = {{INTACT_ISA_AVX2, true, ""}, {INTACT_ISA_AMX_INT8, false, "no tiles"}};
  results.peaks = {{"triple/ymm", 200}};
  results.reads = {{int64_t{16} << 20, "L3", 20}};
  results.peers = {{"onednn", "2.6.3"}};
  Row compute = {"avx2", {100, 100, 50}, 1, "triple/ymm", 200, 20, {}};  // 1e6 operations
  compute.timings = {{"intact", "s32", "ours", "exact", 10, 0.01},
                     {"intact", "u8", "ours", "exact", 10.5, 0.01},
                     {"onednn", "s32", "theirs", "saturates", 20, 0.02},
                     {"onednn", "u8", "theirs", "wrong: not timed", 0, 0}};
  Row thin = {"avx2", {1, 1000, 100}, 1, "triple/ymm", 200, 20, {}};  // 100 kB of weights: 5 us at 20 GB/s
  thin.timings = {{"intact", "s32", "ours", "exact", 20, 0.01},
                  {"intact", "u8", "ours", "exact", 20, 0.01},
                  {"onednn", "s32", "theirs", "saturates", 80, 0.02},
                  {"onednn", "u8", "theirs", "exact", 40, 0.02}};
  results.rows = {compute, thin};
  results.first_calls = {{"avx2", "", 12.5, 3.25, 1.95}};
  return results;
}

}  // namespace intact::bench

#endif  // INTACT_TESTS_BENCH_FIXTURES_H_

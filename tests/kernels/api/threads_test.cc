// Eight threads create, run, save, load, tune and destroy plans at once. Some plans are their own, some are
// shared. The preset tsan checks this. Sanitizers do not see generated code, which writes only to the
// caller's output and scratch.
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <filesystem>
#include <intact/bound.hpp>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "kernels/runtime/threads.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/support/temp_path.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using verify::Problem;
using Bytes = std::vector<uint8_t>;

constexpr int kThreads = 8;
constexpr int kRounds = 4;

// Problems for every engine. The first two need the same functions. Every second problem has a plan that all
// threads share. The functions of the others are freed with the plans of each thread, and are generated
// again.
constexpr const char* kProblems[] = {
    "gemm u8s8s32 m=33 n=40 k=130 threads=2",
    "gemm u8s8s32 m=33 n=40 k=130 threads=0 fill=laplace scratch=yes",
    "gemm s8s8u8 m=5 n=70 k=67 za=-9 zb=3 bias=f32 scale=channel act=relu",
    "gemm u8s8f32 m=140 n=64 k=300 res=f32 arange=127 fill=stray threads=3",
    "gemm u8s8s32 m=9 n=20 k=64 mode=saturating isa=avx2 fill=ramp",
    "conv u8s8u8 in=9x8 c=16 o=24 kernel=3x3 pad=1x1 threads=2",
    "conv u8s8s32 in=9x8 c=16 o=24 kernel=3x3 pad=1x1 open=yes threads=2 scratch=yes",
    "conv s8s8u8 in=8x8 c=32 o=32 kernel=3x3 pad=1x1 groups=32 za=3",
    "conv u8s8s8 in=6x6 c=8 o=12 kernel=3x3 stride=2x2 pad=1x1 transposed=yes open=yes",
    "conv u8u8f32 in=7x7 c=3 o=17 kernel=3x3 stride=2x2 groups=1 batch=2",
    ("conv u8s8s32 in=9x8 c=5 o=20 kernel=3x3 pad=1x1 threads=2 pairing=flattened fill=bait mode=saturating "
     "isa=avx2"),
};

Result<intact_tune_info> Tune(Gemm* plan, const reference::Gemm& gemm) { return plan->Tune(gemm.m, 0); }
Result<intact_tune_info> Tune(Conv* plan, const reference::Conv& conv) {
  const auto& axes = conv.geometry.axes;  // all cases have two dimensions
  return plan->Tune({axes[1].input, axes[2].input}, 0);
}

intact_status RunOn(const Gemm& plan, const intact_gemm_args& args) {
  return intact_gemm_run(plan.handle(), &args);
}
intact_status RunOn(const Conv& plan, const intact_conv_args& args) {
  return intact_conv_run(plan.handle(), &args);
}

/// A thread's work on one problem. Returns failures as text.
class Case {
 public:
  virtual ~Case() = default;
  virtual std::string RunShared() const = 0;
  virtual std::string RunOwn() const = 0;
  virtual std::string RunLoaded(const std::string& path) const = 0;
  virtual std::string RunTuned() const = 0;
};

template <class Plan, class Operation>
class CaseOf : public Case {
 public:
  CaseOf(Operation operation, const verify::RunOptions& options, bool is_shared)
      : operation_(std::move(operation)),
        options_(options),
        expected_(reference::Outputs(
            operation_,
            reference::Accumulators(operation_, verify::ExpectedModel(operation_, options_.isa)))),
        is_shared_(is_shared) {
    if (is_shared) shared_ = Create();
  }

  std::string RunShared() const override { return is_shared_ ? Run(shared_) : RunOwn(); }
  std::string RunOwn() const override { return Run(Create()); }

  std::string RunLoaded(const std::string& path) const override {
    const Result<Plan> own = is_shared_ ? Result<Plan>(Error()) : Create();
    const Result<Plan>& plan = is_shared_ ? shared_ : own;
    if (!plan) return plan.error().message;
    if (const Error error = plan->Save(path); !error.ok()) return error.message;
    // In saturating mode the bytes depend on the ISA.
    std::string wrong = Run(Plan::Load(path, options_.isa));
    if (!wrong.empty()) return wrong;
    const Result<Bytes> image = plan->SaveMemory();
    if (!image) return image.error().message;
    Bytes room(image->size() + 63);
    uint8_t* const aligned = room.data() + (-reinterpret_cast<uintptr_t>(room.data()) & 63);
    std::ranges::copy(*image, aligned);
    return Run(Plan::LoadMemory(aligned, image->size(), options_.isa));
  }

  std::string RunTuned() const override {
    Result<Plan> plan = Create();
    if (!plan) return plan.error().message;
    const Result<intact_tune_info> tuned = Tune(&*plan, operation_);
    return tuned ? Run(plan) : tuned.error().message;
  }

 private:
  Result<Plan> Create() const { return verify::CreatePlan(operation_, options_); }

  std::string Run(const Result<Plan>& plan) const {
    if (!plan) return plan.error().message;
    const auto output = verify::RunGuarded(operation_, options_, [&](const auto& args) -> Error {
      const intact_status status = RunOn(*plan, args);
      return {status, intact_last_error()};
    });
    if (!output) return output.error().message;
    return *output == expected_ ? "" : std::string("wrong: ") + plan->Info().kernel;
  }

  const Operation operation_;
  const verify::RunOptions options_;
  const Bytes expected_;
  const bool is_shared_;
  Result<Plan> shared_ = Error();
};

std::unique_ptr<Case> MakeCase(const char* line, bool is_shared) {
  const Result<Problem> problem = Problem::Parse(line);
  EXPECT_TRUE(problem) << problem.error().message;
  const verify::RunOptions options = verify::RunOptionsOf(*problem);
  if (problem->conv) {
    return std::make_unique<CaseOf<Conv, reference::Conv>>(verify::MaterializeConv(*problem), options,
                                                           is_shared);
  }
  return std::make_unique<CaseOf<Gemm, reference::Gemm>>(verify::MaterializeGemm(*problem), options,
                                                         is_shared);
}

TEST(Threads, CreateRunSaveLoadTuneAndDestroyAtOnce) {
  std::vector<std::unique_ptr<Case>> cases;
  for (const char* line : kProblems) cases.push_back(MakeCase(line, cases.size() % 2 == 0));
  const std::string folder = TempPath();
  std::filesystem::create_directories(folder);
  std::barrier together(kThreads);
  const auto work = [&](size_t thread) {
    const std::string path = folder + "/" + std::to_string(thread % 4);  // two threads write to each file
    for (size_t step = 0; step < kRounds * cases.size(); ++step) {
      together.arrive_and_wait();
      // Either all threads use one problem, or each another one.
      const size_t number = (step + (step % 2) * thread) % cases.size();
      const Case& now = *cases[number];
      const bool is_written = (step / 2 + thread) % 4 == 1;
      EXPECT_EQ(is_written ? now.RunLoaded(path + "-" + std::to_string(number)) : now.RunOwn(), "")
          << kProblems[number];
      EXPECT_EQ(now.RunShared(), "") << kProblems[number];
      if ((step + thread) % 8 != 3) continue;
      EXPECT_EQ(now.RunTuned(), "") << kProblems[number];
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  }
  std::filesystem::remove_all(folder);
}

// Threads meet where kernels are generated: at the first run, preparation or bound run of a number of rows, and at the
// first run of parts.
TEST(Threads, MeetAtTheFirstRunOfAHeight) {
  constexpr int64_t kN = 33, kK = 70, kSide = 9, kInputs = 16;
  std::vector<uint8_t> a(kSide * kSide * kInputs);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>(i * 37 + i / 5);
  std::vector<int8_t> weights(size_t{9} * kInputs * kN);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 53 + i / 3);
  const auto together = [](const auto& work) {
    std::barrier begin(kThreads);
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        begin.arrive_and_wait();
        work(thread);
      });
    }
  };
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX_VNNI, INTACT_ISA_ANY}) {
    if (intact_isa_available(isa) == 0 && isa != INTACT_ISA_ANY) continue;
    GemmDesc product = MakeGemmDesc();
    product.n = kN;
    product.k = kK;
    product.linear.max_isa = isa;
    const Result<Gemm> gemm = Gemm::Create(product, weights.data());
    ASSERT_TRUE(gemm) << gemm.error().message;
    for (int64_t m = 2; m <= 12; ++m) {
      std::array<std::vector<int32_t>, kThreads> c;
      c.fill(std::vector<int32_t>(static_cast<size_t>(m * kN)));
      together([&](int thread) {
        intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
        args.m = m;
        args.a = a.data();
        args.c = c.at(static_cast<size_t>(thread)).data();
        args.threads = 1;
        intact_run_info info = INTACT_RUN_INFO_INIT;
        if (thread % 3 == 1) {
          EXPECT_EQ(intact_gemm_prepare(gemm->handle(), &args, &info), INTACT_OK);
        }
        if (thread % 3 != 2) {
          EXPECT_EQ(intact_gemm_run(gemm->handle(), &args), INTACT_OK);
          return;
        }
        Result<Bound> bound = Bound::Create(*gemm, args);
        ASSERT_TRUE(bound) << bound.error().message;
        EXPECT_TRUE(bound->Run().ok());
      });
      std::vector<int32_t> expected(static_cast<size_t>(m * kN));
      for (size_t i = 0; i < expected.size(); ++i) {
        for (size_t k = 0; k < kK; ++k) expected[i] += a[i / kN * kK + k] * weights[k * kN + i % kN];
      }
      for (const std::vector<int32_t>& own : c) EXPECT_EQ(own, expected) << intact_isa_name(isa) << " " << m;
    }
    ConvDesc layer = MakeConvDesc();
    layer.input_channels = kInputs;
    layer.output_channels = kN;
    layer.linear.max_isa = isa;
    for (const int i : {0, 1}) {
      layer.input[i] = kSide;
      layer.kernel[i] = 3;
      layer.pad_begin[i] = layer.pad_end[i] = 1;
    }
    std::array<std::vector<int32_t>, 2> c;
    c.fill(std::vector<int32_t>(kSide * kSide * kN));
    for (size_t i : {0, 1}) {
      const Result<Conv> conv = Conv::Create(layer, weights.data());
      ASSERT_TRUE(conv) << conv.error().message;
      intact_conv_args args = INTACT_CONV_ARGS_INIT;
      args.batch = 1;
      args.a = a.data();
      args.c = c.at(i).data();
      args.threads = 1;
      if (i == 0) {
        EXPECT_EQ(intact_conv_run(conv->handle(), &args), INTACT_OK);
        continue;
      }
      together([&](int part) {
        EXPECT_EQ(intact_conv_run_part(conv->handle(), &args, part, kThreads), INTACT_OK);
      });
    }
    EXPECT_EQ(c[0], c[1]) << intact_isa_name(isa);
  }
}

// Waking a thread takes longer than 1×64×64. Four threads need enough work for four.
TEST(Threads, AreNotWokenForLittleWork) {
  const int saved = omp_get_max_threads();
  omp_set_num_threads(4);
  for (const core::Isa isa : core::kAllIsas) {
    EXPECT_EQ(kernels::ThreadsOf(0, 1.0 * 64 * 64, isa), 1);
    EXPECT_EQ(kernels::ThreadsOf(0, 512.0 * 512 * 512, isa), 4);
    EXPECT_EQ(kernels::ThreadsOf(3, 1.0 * 64 * 64, isa), 3) << "the caller's wish";
  }
  // Four microseconds on AVX-512-VNNI are sixteen on AVX2.
  EXPECT_EQ(kernels::ThreadsOf(0, 16.0 * 256 * 256, core::Isa::kAvx2), 2);
  EXPECT_EQ(kernels::ThreadsOf(0, 16.0 * 256 * 256, core::Isa::kAvx512Vnni), 1);
  // The rule in a plan: each thread quantizes numbers in its own scratch memory.
  GemmDesc desc = MakeGemmDesc();
  const float scale = 1;
  desc.n = desc.k = 64;
  desc.linear.c_type = INTACT_F32;
  desc.linear.scales = &scale;
  desc.linear.scale_count = 1;
  desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
  desc.linear.a_source_type = INTACT_F32;
  const std::vector<int8_t> weights(64 * 64, 1);
  const Result<Gemm> gemm = Gemm::Create(desc, weights.data());
  ASSERT_TRUE(gemm) << gemm.error().message;
  const auto is_split = [&](int64_t m, int threads) {
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = m;
    args.threads = threads;
    intact_run_info info = INTACT_RUN_INFO_INIT;
    EXPECT_EQ(intact_gemm_prepare(gemm->handle(), &args, &info), INTACT_OK) << intact_last_error();
    return info.scratch_bytes > info.part_scratch_bytes;
  };
  EXPECT_FALSE(is_split(1, 0));
  EXPECT_FALSE(is_split(16, 0));
  if (omp_get_num_procs() > 1) {
    EXPECT_TRUE(is_split(16, 4)) << "it could be";
    EXPECT_TRUE(is_split(4096, 0));
  }
  omp_set_num_threads(saved);
}

// Of the 49 taps, 48 meet only padding. They are dropped, and are no work for threads.
TEST(Threads, AreNotWokenForDroppedTaps) {
  const int saved = omp_get_max_threads();
  omp_set_num_threads(4);
  ConvDesc desc = MakeConvDesc();
  desc.input_channels = desc.output_channels = 256;
  std::fill_n(desc.input, 2, 1);
  std::fill_n(desc.kernel, 2, 7);
  std::fill_n(desc.pad_begin, 2, 3);
  std::fill_n(desc.pad_end, 2, 3);
  const float scale = 1;
  desc.linear.a_type = INTACT_S8;  // kernels without VNNI read a copy, which is u8
  desc.linear.c_type = INTACT_F32;
  desc.linear.scales = &scale;
  desc.linear.scale_count = 1;
  const std::vector<int8_t> weights(size_t{49} * 256 * 256, 1);
  // Kernels that need scratch memory in each thread: its size reports the number of threads.
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512, core::Isa::kAmxInt8}) {
    SCOPED_TRACE(core::ToString(isa));
    desc.linear.max_isa = static_cast<intact_isa>(isa);
    if (intact_isa_available(desc.linear.max_isa) == 0) continue;
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    ASSERT_TRUE(conv) << conv.error().message;
    const auto is_split = [&](int64_t batch, int threads) {
      intact_conv_args args = INTACT_CONV_ARGS_INIT;
      args.batch = batch;
      args.threads = threads;
      intact_run_info info = INTACT_RUN_INFO_INIT;
      EXPECT_EQ(intact_conv_prepare(conv->handle(), &args, &info), INTACT_OK) << intact_last_error();
      return info.scratch_bytes > info.part_scratch_bytes;
    };
    EXPECT_FALSE(is_split(8, 0));
    if (omp_get_num_procs() > 1) {
      EXPECT_TRUE(is_split(8, 4)) << "it could be";
      EXPECT_TRUE(is_split(4096, 0));
    }
  }
  omp_set_num_threads(saved);
}

// More than a plan keeps prepared.
TEST(Threads, PrepareManyExtentsOfOnePlanAtOnce) {
  ConvDesc desc = MakeConvDesc();
  desc.input_channels = desc.output_channels = 4;
  desc.input[0] = desc.input[1] = INTACT_ANY_EXTENT;
  const std::vector<int8_t> weights(16, 1);
  const Result<Conv> conv = Conv::Create(desc, weights.data());
  ASSERT_TRUE(conv) << conv.error().message;
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&conv, thread] {
      for (int64_t i = 0; i < 60; ++i) {
        const int64_t height = 1 + (i + 5 * thread) % 80;
        const Result<intact_run_info> info = conv->Prepare(1 + i % 2, {height, 3});
        ASSERT_TRUE(info) << info.error().message;
        EXPECT_EQ(info->output[0], height);
      }
    });
  }
}

}  // namespace
}  // namespace intact::tests

// Plans run exactly the shares that they report. Shares cover C exactly once for any number of threads, and
// all parts together write the bytes of one thread.
#include "bench/balance.h"

#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/case.h"
#include "bench/contender.h"
#include "bench/workload.h"
#include "kernels/api/create.h"
#include "tests/support/require_isas.h"

namespace intact::bench {
namespace {

using kernels::Share;

constexpr int64_t kRow = 64;  // bytes

Case CaseOf(const Shape& shape) {
  Case c;
  c.shape = shape;
  c.format.c_type = INTACT_U8;
  return c;
}

Case ConvCaseOf(const Geometry& geometry) { return CaseOf(Shape::Of(geometry)); }

void ExpectCovers(const std::vector<Share>& shares, const Shape& shape) {
  std::vector<int> covered(static_cast<size_t>(shape.m * shape.n));
  for (const Share& share : shares) {
    EXPECT_EQ(share.work > 0, !share.rows.empty());
    for (const Share::Rows& rows : share.rows) {
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t row = rows.first + i * rows.step;
        ASSERT_LT(row, shape.m);
        for (int64_t column = rows.column_begin; column < rows.column_end; ++column) {
          ++covered[static_cast<size_t>(row * shape.n + column)];
        }
      }
    }
  }
  EXPECT_TRUE(std::ranges::all_of(covered, [](int times) { return times == 1; }));
}

// A part writes only its share, u8 outputs, and leaves all other bytes as in `untouched`.
void ExpectWritesWithin(const Share& share, const Shape& shape, const Bytes& untouched, const Bytes& own) {
  std::vector<bool> is_own(static_cast<size_t>(shape.m * shape.n));
  for (const Share::Rows& rows : share.rows) {
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = (rows.first + i * rows.step) * shape.n;
      std::fill(is_own.begin() + row + rows.column_begin, is_own.begin() + row + rows.column_end, true);
    }
  }
  int64_t strays = 0;
  for (size_t i = 0; i < is_own.size(); ++i) strays += !is_own[i] && own.data()[i] != untouched.data()[i];
  EXPECT_EQ(strays, 0);
}

template <class Plan, class Args, class SharesOf>
void ExpectSameBytes(const Plan& plan, const Workload& workload, const Case& c, Args args,
                     const SharesOf& shares) {
  const Bytes whole = workload.NewC(c.format.c_type);
  args.a = workload.a(c.format);
  args.c = const_cast<uint8_t*>(whole.data());
  args.threads = 1;
  ASSERT_TRUE(plan.Run(args).ok());
  for (const int threads : kBalanceThreads) {
    SCOPED_TRACE(testing::Message() << c.shape.ToString() << " on " << threads << " threads");
    ExpectCovers(shares(threads), c.shape);
    const Bytes cut = workload.NewC(c.format.c_type);
    args.c = const_cast<uint8_t*>(cut.data());
    for (int part = 0; part < threads; ++part) ASSERT_TRUE(plan.RunPart(args, part, threads).ok());
    EXPECT_TRUE(std::equal(whole.data(), whole.data() + whole.size(), cut.data()));
    const std::vector<Share> reported = shares(threads);
    for (size_t part = 0; part < static_cast<size_t>(threads); ++part) {
      const Bytes own = workload.NewC(c.format.c_type);
      args.c = const_cast<uint8_t*>(own.data());
      ASSERT_TRUE(plan.RunPart(args, static_cast<int>(part), threads).ok());
      ExpectWritesWithin(part < reported.size() ? reported[part] : Share(), c.shape,
                         workload.NewC(c.format.c_type), own);
    }
  }
}

class Balances : public testing::Test {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  }
};

TEST_F(Balances, SharesOfGemmsAreThoseThatRun) {
  for (const Shape& shape : {Shape{1, 768, 64}, Shape{49, 160, 64}, Shape{197, 250, 40}, Shape{16, 24, 8}}) {
    const Case c = CaseOf(shape);
    const Workload workload(c);
    const GemmDesc desc = GemmDescOf(workload, c);
    const auto plan = kernels::MakePlan(desc, desc.linear, workload.gemm().b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = shape.m;
    ExpectSameBytes(**plan, workload, c, args,
                    [&](int threads) { return (*plan)->Shares(shape.m, threads); });
  }
}

TEST_F(Balances, SharesOfConvolutionsAreThoseThatRun) {
  for (const Geometry& geometry :
       {Geometry{14, 14, 32, 40, 3, 1, 1, 1}, Geometry{15, 9, 3, 32, 3, 2, 1, 2},
        Geometry{7, 7, 160, 160, 3, 1, 160}, Geometry{12, 12, 144, 144, 3, 1, 144},
        Geometry{12, 12, 48, 48, 3, 2, 48, 3}, Geometry{10, 10, 64, 64, 3, 1, 8},
        Geometry{8, 8, 32, 48, 4, 2, 1, 1, true}, Geometry{9, 9, 64, 64, 4, 2, 64, 1, true}}) {
    const Case c = ConvCaseOf(geometry);
    const Workload workload(c);
    const ConvDesc desc = ConvDescOf(workload, c);
    const auto plan = kernels::MakePlan(desc, desc.linear, workload.conv().b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = geometry.batch;
    ExpectSameBytes(**plan, workload, c, args, [&](int threads) {
      intact_conv_args of_threads = args;
      of_threads.threads = threads;
      return *(*plan)->Shares(of_threads);
    });
  }
}

TEST(Balance, CountsIdleThreadsAndSharedLines) {
  // Four rows of one cache line each. Two threads write the second.
  const std::vector<Share> shares = {
      {{{0, 1, 1, 0, kRow}, {1, 1, 1, 0, 32}}, 3}, {{{1, 1, 1, 32, kRow}, {2, 1, 2, 0, kRow}}, 5}, {}};
  const Balance balance = BalanceOf(shares, 4, 8, 4, 1, kRow);
  EXPECT_EQ(balance.used, 2);
  EXPECT_DOUBLE_EQ(balance.of_used, 0.8);
  EXPECT_DOUBLE_EQ(balance.efficiency, 0.4);
  EXPECT_DOUBLE_EQ(balance.shared_lines, 0.25);
}

}  // namespace
}  // namespace intact::bench

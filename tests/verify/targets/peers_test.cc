// The known arithmetic of the built-in peers. A peer is skipped if its library was not found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/result.h"
#include "verify/problem/problem.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/isolated_target.h"
#include "verify/targets/plugin_target.h"

namespace intact::verify {
namespace {

using testing::HasSubstr;

/// Tests name peers by their files.
std::string FileOf(const std::string& peer) {
  return std::string(INTACT_PEERS_FOLDER) + "/intact_peer_" + peer + ".so";
}

#define INTACT_SKIP_WITHOUT(peer) \
  if (!std::filesystem::exists(FileOf(peer))) GTEST_SKIP() << "the library of " << (peer) << " was not found"

Result<std::unique_ptr<Target>> Open(const std::string& peer, const std::string& options) {
  return IsolatedTarget::Start([=] { return PluginTarget::Open(FileOf(peer), options); });
}

Result<Comparison> VerifyLine(const std::string& peer, const std::string& options, const std::string& line) {
  const Result<std::unique_ptr<Target>> target = Open(peer, options);
  if (!target) return target.error();
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) return problem.error();
  ASSIGN_OR_RETURN(const Judgement judgement, Judge(**target, Oracle(*problem), RunOptionsOf(*problem)));
  return judgement.comparison;
}

/// The CPU may lack the ISA that a test limits a peer to.
#define INTACT_ASSERT_RAN(comparison)                                                   \
  if (!(comparison) && (comparison).error().message.find("lacks") != std::string::npos) \
    GTEST_SKIP() << (comparison).error().message;                                       \
  ASSERT_TRUE(comparison) << (comparison).error().message

void ExpectExact(const std::string& peer, const std::string& options, const std::string& line) {
  SCOPED_TRACE(peer + ":" + options + " " + line);
  const Result<Comparison> comparison = VerifyLine(peer, options, line);
  INTACT_ASSERT_RAN(comparison);
  EXPECT_EQ(comparison->differing, 0);
}

void ExpectClampedPairs(const std::string& peer, const std::string& options, const std::string& line) {
  SCOPED_TRACE(peer + ":" + options + " " + line);
  const Result<Comparison> comparison = VerifyLine(peer, options, line);
  INTACT_ASSERT_RAN(comparison);
  EXPECT_GT(comparison->differing, 0);
  EXPECT_EQ(comparison->off_maddubs, 0);
}

std::string WhyRefused(const std::string& peer, const std::string& options) {
  const Result<std::unique_ptr<Target>> target = Open(peer, options);
  return target ? "not refused" : target.error().message;
}

TEST(OneDnn, ClampsPairsBeforeVnni) {
  INTACT_SKIP_WITHOUT("onednn");
  for (const std::string isa : {"avx2", "avx512_core"}) {
    ExpectClampedPairs("onednn", "isa=" + isa, "gemm u8s8s32 m=5 n=16 k=64 fill=bait");
    ExpectClampedPairs("onednn", "isa=" + isa, "conv u8s8s32 in=7x6 c=18 o=20 kernel=3x3 pad=1x1 fill=bait");
  }
}

TEST(OneDnn, IsExactWithVnni) {
  INTACT_SKIP_WITHOUT("onednn");
  for (const std::string line : {"gemm u8s8s32 m=5 n=16 k=64 za=3 zb=7 fill=bait",
                                 "gemm s8s8u8 m=5 n=16 k=64 bias=s32 scale=channel act=relu",
                                 "conv s8s8s32 in=7x6 c=18 o=20 kernel=3x3 pad=1x1 za=3 fill=bait"}) {
    ExpectExact("onednn", "isa=avx512_core_vnni", line);
  }
}

TEST(OneDnn, HalvesTheWeightsOfSignedConvolutionsBeforeVnni) {
  INTACT_SKIP_WITHOUT("onednn");
  const Result<Comparison> comparison =
      VerifyLine("onednn", "isa=avx2", "conv s8s8s32 in=3x3 c=1 o=16 kernel=1x1 amax=200 wmax=50");
  INTACT_ASSERT_RAN(comparison);
  EXPECT_EQ(comparison->saturated_pairs, 0);
  EXPECT_GT(comparison->differing, 0);
}

TEST(OneDnn, HasS32OutputsInFloatWhereZeroPointsAreCorrected) {
  INTACT_SKIP_WITHOUT("onednn");
  const Result<Comparison> comparison =
      VerifyLine("onednn", "isa=avx512_core_vnni", "gemm u8s8s32 m=4 n=16 k=2000 zb=-128");
  INTACT_ASSERT_RAN(comparison);
  EXPECT_GT(comparison->differing, 0);
  EXPECT_EQ(comparison->differing, comparison->by_cause[static_cast<size_t>(Cause::kFloatSums)]);
}

TEST(OneDnn, MultipliesByOtherCallsToo) {
  INTACT_SKIP_WITHOUT("onednn");
  for (const std::string call : {"inner_product", "gemm_x8s8s32"}) {
    ExpectClampedPairs("onednn", "isa=avx2,gemm=" + call, "gemm u8s8s32 m=5 n=16 k=64 fill=bait");
  }
}

TEST(OneDnn, HasScalesOfRowsInInnerProductsToo) {
  INTACT_SKIP_WITHOUT("onednn");
  const Result<Comparison> comparison =
      VerifyLine("onednn", "gemm=inner_product", "gemm u8s8f32 m=3 n=16 k=8 quant=rows");
  INTACT_ASSERT_RAN(comparison);
  EXPECT_EQ(comparison->differing, comparison->by_cause[static_cast<size_t>(Cause::kRequantization)])
      << "for it multiplies by the column's first";
}

TEST(OneDnn, RefusesOptionsThatItDoesNotKnow) {
  INTACT_SKIP_WITHOUT("onednn");
  EXPECT_THAT(WhyRefused("onednn", "isa=avx3"),
              HasSubstr("isa: 'avx3' is unknown; expected one of sse41 avx avx2"));
  EXPECT_THAT(WhyRefused("onednn", "isa=avx2,colour=red"), HasSubstr("unknown option 'colour'"));
  EXPECT_THAT(WhyRefused("onednn", "avx2"), HasSubstr("'avx2' is no option; expected KEY=VALUE"));
}

TEST(Xnnpack, IsExact) {
  INTACT_SKIP_WITHOUT("xnnpack");
  for (const std::string options : {"", "isa=sse41"}) {
    for (const std::string line :
         {"gemm u8u8u8 m=5 n=17 k=66 za=3 zb=200 zc=4 bias=s32 act=relu fill=bait",
          "gemm s8s8s8 m=5 n=17 k=66 za=3 zc=-4 scale=channel act=clamp fill=bait",
          "conv s8s8s8 in=7x6 c=18 o=20 kernel=3x3 pad=1x1 za=3 zc=9 scale=channel",
          "conv u8u8u8 in=7x6 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=3 zb=100",
          "conv u8u8u8 in=7x6 c=8 o=6 kernel=4x4 stride=2x2 pad=1x1 outpad=1x1 transposed=yes za=3 zb=100"}) {
      ExpectExact("xnnpack", options, line);
    }
  }
}

TEST(Xnnpack, HasOneTypeForAll) {
  INTACT_SKIP_WITHOUT("xnnpack");
  const Result<Comparison> comparison = VerifyLine("xnnpack", "", "gemm u8s8u8 m=5 n=17 k=66");
  ASSERT_FALSE(comparison);
  EXPECT_EQ(comparison.error().status, INTACT_UNSUPPORTED);
}

TEST(Gemmlowp, HasExactSumsAndARoundingOfItsOwn) {
  for (const std::string peer : {"gemmlowp", "gemmlowp_sse4", "gemmlowp_avx2"}) {
    INTACT_SKIP_WITHOUT(peer);
    ExpectExact(peer, "", "gemm u8u8s32 m=5 n=17 k=66 za=3 zb=9 zbper=channel bias=s32 fill=bait");
    ExpectExact(peer, "", "gemm u8u8s32 m=5 n=17 k=66 batch=3 runtimeb=yes blayout=nk quant=rows zaper=row");
    ExpectExact(peer, "", "gemm u8u8u8 m=5 n=17 k=66 zc=7 act=relu");
    const Result<Comparison> ties = VerifyLine(peer, "", "gemm u8u8u8 m=40 n=17 k=3 zc=7 fill=ties");
    INTACT_ASSERT_RAN(ties);
    EXPECT_GT(ties->differing, 0);
    EXPECT_EQ(ties->max_abs_difference, 1);
  }
}

TEST(PyTorch, IsExactWithQnnpack) {
  INTACT_SKIP_WITHOUT("pytorch");
  for (const std::string line :
       {"gemm u8s8u8 m=5 n=17 k=66 za=3 zb=7 zc=4 bias=s32 scale=channel act=relu fill=bait",
        "conv u8s8u8 in=7x6 c=16 o=20 kernel=3x3 pad=1x1 za=3 zc=9",
        "conv u8s8u8 in=7 c=16 o=20 kernel=3 stride=2 dilation=2 pad=1 groups=4 zc=9",
        "conv u8s8u8 in=4x5 c=16 o=8 kernel=3x2 groups=2 transposed=yes"}) {
    ExpectExact("pytorch", "", line);
  }
}

TEST(PyTorch, ClampsPairsWithOneDnnBeforeVnni) {
  INTACT_SKIP_WITHOUT("pytorch");
  ExpectClampedPairs("pytorch", "engine=onednn,isa=avx2", "gemm u8s8u8 m=5 n=16 k=64 fill=bait");
  EXPECT_THAT(WhyRefused("pytorch", "isa=avx2"), HasSubstr("isa= needs engine=onednn"));
}

}  // namespace
}  // namespace intact::verify

#include "verify/problem/problem.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reference/contract/quantize.h"
#include "reference/models/arithmetic.h"
#include "support/random.h"
#include "tests/support/printers.h"
#include "verify/explain/compare.h"

namespace intact::verify {
namespace {

using ::testing::HasSubstr;

Problem Parsed(std::string_view line) {
  const Result<Problem> problem = Problem::Parse(line);
  EXPECT_TRUE(problem) << problem.error().message;
  return problem ? *problem : Problem();
}

TEST(ProblemText, RoundTrips) {
  for (const char* line : {
           "gemm u8s8s32 m=5 n=16 k=64 za=3 fill=bait seed=7 mode=saturating isa=avx2",
           "conv u8s8s32 in=5x4 c=3 o=2 kernel=3x3 pad=1x1 pairing=flattened fill=bait mode=saturating",
           "gemm u8s8s32 m=1 n=1 k=1",
           "gemm s8s8u8 m=2 n=3 k=4 za=-128 zc=255 amax=127 wmax=128 bias=f32 scale=channel act=clamp",
           "gemm u8s8s32 m=2 n=3 k=4 fill=ties seed=9223372036854775807 apad=3 threads=2 isa=avx512_vnni",
           "gemm u8s8s32 m=2 n=3 k=4 cpad=5",
           "gemm u8s8f32 m=16 n=16 k=16 bias=s32 act=relu fill=one_hot threads=0",
           "gemm s8s8s32 m=1 n=1 k=1 za=-28 arange=100 rangecheck=unchecked fill=bound",
           "gemm u8u8s32 m=1 n=2 k=1 za=9 zb=255",
           "gemm s8u8u8 m=1 n=2 k=1 zb=3 zbper=channel",
           "gemm s8s8s32 m=1 n=2 k=1 zb=-128",
           "conv u8s8s32 in=8 c=3 o=5 kernel=3",
           "conv u8s8u8 in=56x28 c=64 o=32 kernel=3x1 stride=2x1 dilation=1x3 pad=1x0 groups=4 batch=2 za=3 "
           "scale=channel fill=bait seed=7 apad=5 cpad=1 threads=2 mode=saturating isa=avx2",
           "conv s8u8f32 in=4x5x6 c=1 o=2 kernel=2x2x2 pad=1x0x2:0x0x3 zb=3 zbper=channel act=relu",
           "conv u8s8s32 in=4x5 c=1 o=2 kernel=3x3 stride=2x3 pad=1x0 transposed=yes outpad=1x2",
           "gemm u8s8u8 m=1 n=2 k=3 act=relu res=s8 zres=-7 respad=3",
           "gemm u8s8f32 m=1 n=2 k=3 res=f32 inplace=yes cpad=1",
           "gemm u8s8bf16 m=1 n=2 k=3 batch=4 items=pointers quant=dynamic_rows src=bf16 x=outlier usual=8",
           "gemm s8u8f32 m=1 n=2 k=3 batch=4 itempad=5 runtimeb=yes blayout=nk bpad=6 zb=7 zbper=item "
           "scale=item",
           "gemm s8u8f32 m=1 n=2 k=3 alayout=km runtimeb=yes zb=7 zbper=item_column scale=item_column apad=2",
           "gemm s8s8s32 m=1 n=2 k=3 quant=rows zaper=row",
           "gemm u8s8u8 m=1 n=2 k=3 quant=dynamic_tensor x=nonfinite zc=3",
           "gemm u8s8f32 m=1 n=2 k=3 overflow=wraps bias=s32 scale=pruned",
           "gemm u8s8s32 m=0 n=2 k=3",
           "gemm u8s8u8 m=2 n=2 k=3 batch=0 quant=rows",
           "conv u8s8s32 in=4 c=1 o=2 kernel=3 batch=0",
       }) {
    EXPECT_EQ(Parsed(line).ToString(), line);
    EXPECT_EQ(Parsed(Parsed(line).ToString()), Parsed(line));
  }
}

TEST(ProblemText, DefaultsMayBeSpelledOut) {
  EXPECT_EQ(
      Parsed(" gemm  u8s8u8 m=1 n=2 k=3 scale=tensor seed=1\tisa=any mode=exact fill=uniform\n").ToString(),
      "gemm u8s8u8 m=1 n=2 k=3");
}

TEST(ProblemText, DefaultsOfAConvolutionMayBeSpelledOut) {
  EXPECT_EQ(
      Parsed("conv u8s8s32 groups=1 batch=1 pad=0x0:0x0 dilation=1x1 stride=1x1 kernel=1x1 o=3 c=2 in=5x4")
          .ToString(),
      "conv u8s8s32 in=5x4 c=2 o=3 kernel=1x1");
}

TEST(ProblemText, EveryFillHasAName) {
  for (const Fill fill : AllFills()) {
    Problem problem;
    problem.fill = fill;
    EXPECT_EQ(Parsed(problem.ToString()), problem);
  }
}

TEST(ProblemText, AllNumbersHaveAName) {
  for (const Numbers numbers : AllNumbers()) {
    Problem problem = Parsed("gemm u8s8f32 m=1 n=1 k=1 quant=dynamic_rows");
    problem.numbers = numbers;
    EXPECT_EQ(Parsed(problem.ToString()), problem);
  }
}

TEST(ProblemText, ErrorsNameWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "'gemm'"},
      {"matmul u8s8s32 m=1 n=1 k=1", "'matmul' does not begin with 'gemm', 'conv' or 'grouped'"},
      {"gemm", "types are missing"},
      {"gemm u8s8 m=1 n=1 k=1", "'u8s8'"},
      {"gemm u8s8s32s8 m=1 n=1 k=1", "'s8' too much"},
      {"gemm f32s8s32 m=1 n=1 k=1", "activations are f32"},
      {"gemm u8f32s32 m=1 n=1 k=1", "weights are f32; expected u8 or s8"},
      {"gemm u8s8s32 m=1 n=1 k=1 zb=128", "zb: 128 is out of range; expected -128 to 127"},
      {"gemm u8u8s32 m=1 n=1 k=1 zb=-1", "zb: -1 is out of range; expected 0 to 255"},
      {"gemm u8u8s32 m=1 n=1 k=1 zbper=row", "'row' is unknown; expected one of tensor, channel"},
      {"gemm u8s8s32 m=1 n=1", "k is missing"},
      {"gemm u8s8s32 m=-1 n=1 k=1", "m: -1 is out of range"},
      {"gemm u8s8s32 m=-4 n=1 k=1", "m: -4 is out of range"},
      {"gemm u8s8s32 m=1 n=1 k=99999999999", "k: 99999999999 is out of range"},
      {"gemm u8s8s32 m=1 n=1 k=99999999999999999999", "not an integer that fits"},
      {"gemm u8s8s32 m=1 n=1 k=", "k: '' is not an integer"},
      {"gemm u8s8s32 m=1 n=1 k=7x", "k: '7x' is not an integer"},
      {"gemm u8s8s32 m=16777216 n=16777216 k=1", "C has 281474976710656 elements"},
      {"gemm u8s8s32 m=16384 n=16384 k=16384", "m·n·k"},
      {"gemm u8s8s32 m=1 n=1 k=1 k=2", "k is given twice"},
      {"gemm u8s8s32 m=1 n=1 k=1 colour=red", "'colour' is unknown"},
      {"gemm u8s8s32 m=1 n=1 k=1 fast", "'fast' is not key=value"},
      {"gemm u8s8s32 m=1 n=1 k=1 fill=water", "'water' is unknown; expected one of uniform"},
      {"gemm u8s8s32 m=1 n=1 k=1 isa=sse2", "'sse2' is unknown; expected one of any, portable, avx2"},
      {"gemm u8s8s32 m=1 n=1 k=1 mode=fast", "expected one of exact, saturating"},
      {"gemm u8s8s32 m=1 n=1 k=1 za=256", "za: 256"},
      {"gemm s8s8s32 m=1 n=1 k=1 za=128", "za: 128"},
      {"gemm u8s8s32 m=1 n=1 k=1 zc=1", "zc: 1 is out of range; expected 0 to 0"},
      {"gemm u8s8s32 m=1 n=1 k=1 scale=tensor", "scale: tensor needs an output that is not s32"},
      {"gemm u8s8s32 m=1 n=1 k=1 bias=f32", "bias: an s32 output"},
      {"gemm u8s8s32 m=1 n=1 k=1 act=relu", "act: relu needs an output that is not s32"},
      {"gemm u8s8u8 m=1 n=1 k=1 scale=none", "scale: output u8 needs"},
      {"gemm u8s8u8 m=1 n=1 k=1 wmax=129", "wmax: 129"},
      {"gemm u8s8u8 m=1 n=1 k=1 amax=-1", "amax: -1"},
      {"gemm u8s8u8 m=1 n=1 k=1 arange=0", "arange: 0"},
      {"gemm u8s8u8 m=1 n=1 k=1 arange=256", "arange: 256"},
      {"gemm s8s8u8 m=1 n=1 k=1 za=-27 arange=100",
       "za: -27 is beyond the activation range, which ends at -28"},
      {"gemm u8s8u8 m=1 n=1 k=1 rangecheck=maybe", "'maybe' is unknown"},
      {"gemm u8s8u8 m=1 n=1 k=1 arange=9 rangecheck=unchecked fill=stray", "fill: stray"},
      {"gemm u8s8u8 m=1 n=1 k=1 apad=-1", "apad: -1"},
      {"gemm u8s8u8 m=1 n=1 k=1 res=s32", "'s32' is unknown; expected one of none, u8, s8, f32"},
      {"gemm u8s8s32 m=1 n=1 k=1 res=u8", "res: u8 needs an output that is not s32"},
      {"gemm u8s8u8 m=1 n=1 k=1 res=u8 zres=256", "zres: 256 is out of range; expected 0 to 255"},
      {"gemm u8s8u8 m=1 n=1 k=1 res=f32 zres=1", "zres: 1 is out of range; expected 0 to 0"},
      {"gemm u8s8u8 m=1 n=1 k=1 zres=1", "zres: 1 is out of range; expected 0 to 0"},
      {"gemm u8s8u8 m=1 n=1 k=1 respad=1", "respad: 1 needs a residual that is not in place"},
      {"gemm u8s8u8 m=1 n=1 k=1 res=u8 respad=-1", "respad: -1"},
      {"gemm u8s8u8 m=1 n=1 k=1 inplace=yes", "inplace: yes needs a residual with elements"},
      {"gemm u8s8f32 m=1 n=1 k=1 res=u8 inplace=yes", "inplace: yes needs a residual with elements"},
      {"gemm u8s8u8 m=1 n=1 k=1 res=s8 inplace=yes respad=1",
       "respad: 1 needs a residual that is not in place"},
      {"gemm u8s8u8 m=1 n=1 k=1 threads=5000000000", "threads: 5000000000"},
      {"gemm u8s8u8 m=1 n=1 k=1 seed=-1", "seed: -1"},
      {"gemm u8s8u8 m=1 n=1 k=1 in=3", "'in=3': key 'in' is unknown to a gemm"},
      {"gemm u8s8f32 m=1 n=1 k=1 quant=rows za=1", "za: 1 with this quant; expected 0"},
      {"gemm u8s8f32 m=1 n=1 k=1 quant=dynamic_rows zaper=row", "zaper: row needs quant=rows"},
      {"gemm u8s8s32 m=1 n=1 k=1 quant=dynamic_rows", "quant: an s32 output cannot have"},
      {"gemm u8s8f32 m=1 n=1 k=1 quant=dynamic_rows arange=127", "arange: a dynamic quantization"},
      {"gemm u8s8f32 m=1 n=1 k=1 quant=rows x=halves", "x: halves needs a dynamic quantization"},
      {"gemm u8s8f32 m=1 n=1 k=1 src=bf16", "src: bf16 needs a dynamic quantization"},
      {"gemm u8s8f32 m=1 n=1 k=1 src=s8", "'s8' is unknown; expected one of f32, bf16"},
      {"gemm u8s8f32 m=1 n=1 k=1 batch=-1", "batch: -1 is out of range"},
      {"gemm u8s8f32 m=1 n=1 k=1 batch=0 runtimeb=yes", "batch: 0 with runtimeb=yes; expected at least 1"},
      {"gemm u8s8f32 m=1 n=1 k=1 items=pointers itempad=1", "itempad: 1 needs items=strided"},
      {"gemm u8s8f32 m=1 n=1 k=1 runtimeb=yes saved=yes", "saved: yes needs runtimeb=no"},
      {"gemm u8s8f32 m=1 n=1 k=1 scale=item", "scale: item and item_column need runtimeb=yes"},
      {"gemm u8s8f32 m=1 n=1 k=1 zbper=item", "zbper: item and item_column need runtimeb=yes"},
      {"gemm u8s8f32 m=1 n=1 k=1 scale=item_column", "scale: item and item_column need runtimeb=yes"},
      {"gemm u8s8f32 m=1 n=1 k=1 zbper=item_column", "zbper: item and item_column need runtimeb=yes"},
      {"gemm u8s8f32 m=1 n=1 k=1 alayout=kn", "alayout: 'kn' is unknown; expected one of mk, km"},
      {"gemm u8s8s32 m=1 n=1 k=16777216 alayout=km apad=65536", "A has "},
      {"conv u8s8u8 in=5 c=1 o=1 kernel=1 alayout=km", "key 'alayout' is unknown to a conv"},
      {"gemm u8s8s32 m=65536 n=1 k=65536 batch=65536", "A has 281474976710656 elements"},
      {"conv u8s8u8 in=5 c=1 o=1 kernel=1 zbper=item", "zbper: item and item_column need runtimeb=yes"},
      {"conv u8s8u8 in=5 c=1 o=1 kernel=1 quant=rows", "quant: a convolution has no rows"},
      {"conv u8s8u8 in=5 c=1 o=1 kernel=1 quant=dynamic_rows", "quant: a convolution has no rows"},
      {"conv u8s8u8 in=5 c=1 o=1 kernel=1 zaper=row", "key 'zaper' is unknown to a conv"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 quant=dynamic_tensor", "quant: an s32 output cannot have"},
      {"conv u8s8f32 in=5 c=1 o=1 kernel=1 quant=dynamic_tensor za=3", "za: 3 with this quant; expected 0"},
      {"conv u8s8f32 in=5 c=1 o=1 kernel=1 quant=tensor za=9 arange=8",
       "za: 9 is beyond the activation range"},
      {"gemm u8s8f32 m=1 n=1 k=1 quant=tensor zaper=row", "zaper: row needs quant=rows"},
      {"conv", "types are missing after 'conv'"},
      {"conv u8s8s32 in=1 m=1", "'m=1': key 'm' is unknown to a conv"},
      {"conv u8s8s32 c=1 o=1 kernel=1", "in is missing"},
      {"conv u8s8s32 in=5x5 c=1 kernel=1x1", "o is missing"},
      {"conv u8s8s32 in=5x5 c=1 o=1", "kernel is missing"},
      {"conv u8s8s32 in=5x5 c=1 o=1 kernel=3", "kernel: '3' has 1 extents; expected 2, as in="},
      {"conv u8s8s32 in=5x5x5x5 c=1 o=1 kernel=3", "in: '5x5x5x5' has 4 extents; expected 1 to 3"},
      {"conv u8s8s32 in=5x c=1 o=1 kernel=3x3", "in: '' is not an integer"},
      {"conv u8s8s32 in=5xy c=1 o=1 kernel=3x3", "in: 'y' is not an integer"},
      {"conv u8s8s32 in=0 c=1 o=1 kernel=1", "in: 0 is out of range"},
      {"conv u8s8s32 in=5 in=5 c=1 o=1 kernel=1", "in is given twice"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 stride=0", "stride: 0 is out of range"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 dilation=-1", "dilation: -1 is out of range"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 pad=-1", "pad: -1 is out of range"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 pad=1:2:3", "pad: '2:3' is not an integer"},
      {"conv u8s8s32 in=5x5 c=1 o=1 kernel=1x1 pad=1x1:2", "pad: '2' has 1 extents"},
      {"conv u8s8s32 in=5 c=6 o=4 kernel=1 groups=4", "groups: 4 does not divide c=6"},
      {"conv u8s8s32 in=5 c=4 o=6 kernel=1 groups=4", "groups: 4 does not divide o=6"},
      {"conv u8s8s32 in=5 c=4 o=6 kernel=1 groups=0", "groups: 0 is out of range"},
      {"conv u8s8s32 in=5 c=4 o=6 kernel=1 batch=-1", "batch: -1 is out of range"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 outpad=1", "outpad: 1 without transposed=yes; expected 0"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 transposed=maybe", "transposed: 'maybe' is unknown"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 stride=2 transposed=yes outpad=2",
       "outpad: 2 is out of range; expected 0 to 1"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=3 stride=2 transposed=yes outpad=1 pad=6",
       "pad: crops 12 pixels; expected less than the 12 that there are"},
      {"conv u8s8s32 in=5x5 c=1 o=1 kernel=3x3 dilation=1x3 pad=0x0:0x1",
       "kernel: reaches over 7 pixels, and the padded input has 6: no output"},
      {"conv u8s8s32 in=65536x65536 c=1 o=1 kernel=1x1", "the input has 4294967296 elements"},
      {"conv u8s8s32 in=9999999x9999999x9999999 c=9999999 o=1 kernel=1x1x1", "the input has"},
      {"conv u8s8s32 in=1000x1000 c=64 o=1 kernel=9x9 pad=4x4", "the input under all taps has 5184000000"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=1 isa=sse2", "'sse2' is unknown"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=3 pairing=taps",
       "'taps' is unknown; expected one of within_tap, flattened"},
      {"conv u8s8s32 in=5 c=1 o=1 kernel=3 pairing=flattened", "pairing: flattened needs mode=saturating"},
      {"gemm u8s8s32 m=1 n=1 k=1 pairing=flattened", "key 'pairing' is unknown to a gemm"},
  };
  for (const auto& [line, message] : cases) {
    const Result<Problem> problem = Problem::Parse(line);
    ASSERT_FALSE(problem) << line;
    EXPECT_EQ(problem.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(problem.error().message, HasSubstr(message)) << line;
    EXPECT_EQ(problem.error().message.find('\n'), std::string::npos);
  }
}

std::vector<int64_t> Weights(std::string_view line) {
  const reference::Gemm gemm = MaterializeGemm(Parsed(line));
  return {gemm.b.begin(), gemm.b.end()};
}

// Lines that would need more than the machine's memory are refused, wherever the size is in the line.
TEST(ProblemText, RefusesWhatMemoryDoesNotHold) {
  for (const char* line : {
           "gemm u8s8s32 m=16777216 n=1 k=16",
           "gemm u8s8s32 m=1 n=16777216 k=16",
           "gemm u8s8s32 m=1 n=1 k=4096 batch=65536",
           "conv u8s8s32 in=1 c=16777216 o=16777216 kernel=1 groups=16777216",
           "conv u8s8s32 in=16777216 c=1 o=1 kernel=7 pad=3",
       }) {
    const Result<Problem> problem = Problem::Parse(line);
    ASSERT_FALSE(problem) << line;
    EXPECT_THAT(problem.error().message, HasSubstr("its tensors may take")) << line;
  }
  EXPECT_TRUE(Problem::Parse("gemm u8s8s32 m=128 n=11008 k=4096"));
}

TEST(Materialize, IsTheSameEverywhere) {
  EXPECT_EQ(Weights("gemm u8s8s32 m=1 n=1 k=6"), (std::vector<int64_t>{-18, 102, -85, 63, -102, 31}));
  EXPECT_EQ(Weights("gemm u8s8s32 m=1 n=1 k=6 fill=gauss"),
            (std::vector<int64_t>{-20, -89, -103, -78, -127, 104}));
  EXPECT_EQ(Weights("gemm u8s8s32 m=1 n=1 k=6 fill=laplace"),
            (std::vector<int64_t>{46, 98, 127, 49, 78, 27}));
  EXPECT_EQ(Weights("gemm u8s8s32 m=1 n=1 k=6 fill=student seed=3"),
            (std::vector<int64_t>{17, -24, 29, 15, 127, -75}));
}

TEST(MaterializeConv, HasTheShapesOfItsGeometry) {
  for (const Fill fill : AllFills()) {
    Problem problem = Parsed(
        "conv s8u8u8 in=5x4 c=6 o=4 kernel=3x2 pad=1x1 groups=2 batch=3 za=-7 zb=3 "
        "zbper=channel bias=s32 scale=channel");
    problem.fill = fill;
    const reference::Conv conv = MaterializeConv(problem);
    EXPECT_EQ(conv.geometry, *problem.conv);
    EXPECT_EQ(conv.a.size(), 3u * 5 * 4 * 6);
    EXPECT_EQ(conv.b.size(), 4u * 3 * 2 * 3);
    EXPECT_EQ(conv.b_zero_points.size(), 4u);
    EXPECT_EQ(conv.bias_s32.size(), 4u);
    EXPECT_EQ(conv.scales.size(), 4u);
  }
}

// A convolution of one tap is a GEMM, and gets the GEMM's tensors.
TEST(MaterializeConv, OfOneTapIsTheGemm) {
  for (const Fill fill : AllFills()) {
    Problem conv = Parsed("conv u8s8u8 in=9 c=7 o=5 kernel=1 za=3 bias=f32 scale=channel act=clamp");
    Problem gemm = Parsed("gemm u8s8u8 m=9 n=5 k=7 za=3 bias=f32 scale=channel act=clamp");
    conv.fill = gemm.fill = fill;
    const reference::Conv x = MaterializeConv(conv);
    const reference::Gemm y = MaterializeGemm(gemm);
    EXPECT_EQ(x.a, y.a) << ToString(fill);
    EXPECT_EQ(reference::FromColumns(x.b, 5, 7), y.b) << ToString(fill);
    EXPECT_EQ(x.bias_f32, y.bias_f32);
    EXPECT_EQ(x.post_ops, y.post_ops);
    // Scales depend on all activations, including the padding of the odd channel.
    EXPECT_EQ(x.scales.size(), y.scales.size());
  }
}

TEST(Materialize, U8WeightsAreS8OnesPlus128) {
  for (const Fill fill : AllFills()) {
    Problem problem = Parsed("gemm u8s8s32 m=1 n=5 k=9 wmax=128");
    problem.fill = fill;
    const reference::Gemm s8 = MaterializeGemm(problem);
    problem.b_type = INTACT_U8;
    const reference::Gemm u8 = MaterializeGemm(problem);
    for (size_t i = 0; i < s8.b.size(); ++i) EXPECT_EQ(static_cast<uint8_t>(u8.b[i]), s8.b[i] + 128);
  }
}

TEST(Materialize, WeightZeroPoints) {
  const auto zero_points = [](std::string_view line) { return MaterializeGemm(Parsed(line)).b_zero_points; };
  EXPECT_EQ(zero_points("gemm u8u8s32 m=1 n=9 k=1"), std::vector<int32_t>());
  EXPECT_EQ(zero_points("gemm u8u8s32 m=1 n=9 k=1 zb=200"), std::vector<int32_t>{200});
  for (const auto& [types, low] : {std::pair{"u8u8s32", 0}, {"u8s8s32", -128}}) {
    const auto values = zero_points(std::string("gemm ") + types + " m=1 n=99 k=1 zb=5 zbper=channel");
    ASSERT_EQ(values.size(), 99u);
    EXPECT_EQ(values[0], 5);
    EXPECT_EQ(*std::min_element(values.begin(), values.end()), low);
    EXPECT_EQ(*std::max_element(values.begin(), values.end()), low + 255);
    EXPECT_GT(std::set<int32_t>(values.begin(), values.end()).size(), 30u);
  }
}

TEST(Materialize, ASmallerProblemIsTheCornerOfALargerOne) {
  for (const Fill fill : {Fill::kUniform, Fill::kExtremes, Fill::kBait}) {
    Problem large = Parsed("gemm u8s8s32 m=7 n=9 k=20");
    large.fill = fill;
    Problem small = large;
    small.m = 3;
    small.n = 4;
    small.k = 10;
    const reference::Gemm x = MaterializeGemm(large);
    const reference::Gemm y = MaterializeGemm(small);
    for (size_t m = 0; m < 3; ++m) {
      for (size_t k = 0; k < 10; ++k) EXPECT_EQ(x.a[m * 20 + k], y.a[m * 10 + k]) << ToString(fill);
    }
    for (size_t k = 0; k < 10; ++k) {
      for (size_t n = 0; n < 4; ++n) EXPECT_EQ(x.b[k * 9 + n], y.b[k * 4 + n]) << ToString(fill);
    }
  }
}

TEST(Materialize, SeedsDiffer) {
  EXPECT_NE(Weights("gemm u8s8s32 m=1 n=4 k=64 seed=1"), Weights("gemm u8s8s32 m=1 n=4 k=64 seed=2"));
}

TEST(Materialize, ResidualsAreOfTheirTypeAndShape) {
  EXPECT_TRUE(MaterializeGemm(Parsed("gemm u8s8u8 m=3 n=5 k=2")).residual.empty());
  const reference::Gemm u8 = MaterializeGemm(Parsed("gemm u8s8u8 m=40 n=50 k=2 res=u8 zres=9"));
  const auto* const added = u8.post_ops.Find<core::AddResidual>();
  ASSERT_NE(added, nullptr);
  EXPECT_EQ(added->type, INTACT_U8);
  EXPECT_EQ(added->zero_point, 9);
  EXPECT_GT(added->scale, 0.0f);
  EXPECT_EQ(std::set<uint8_t>(u8.residual.begin(), u8.residual.end()).size(), 256u);
  EXPECT_EQ(u8.residual.size(), 40u * 50u);
  const reference::Gemm f32 = MaterializeGemm(Parsed("gemm u8s8u8 m=3 n=5 k=2 res=f32"));
  EXPECT_EQ(f32.residual.size(), 3u * 5u * 4u);
  float value = 0;
  std::memcpy(&value, f32.residual.data(), sizeof(value));
  EXPECT_NE(value, std::nearbyint(value));
  EXPECT_LE(std::abs(value), 129.0f);
}

std::vector<float> NumbersOf(std::string_view line) {
  return reference::SourceNumbers(MaterializeGemm(Parsed(line)));
}

TEST(MaterializeNumbers, HalvesAreTies) {
  for (const char* line : {"gemm u8s8f32 m=20 n=1 k=40 quant=dynamic_rows x=halves",
                           "gemm s8s8f32 m=20 n=1 k=40 quant=dynamic_rows x=halves",
                           "gemm u8s8f32 m=20 n=1 k=40 quant=dynamic_tensor x=halves"}) {
    const reference::Gemm gemm = MaterializeGemm(Parsed(line));
    const std::vector<float> x = reference::SourceNumbers(gemm);
    for (size_t i = 0; i < x.size(); ++i) {
      const float steps = x[i] / gemm.a_scales[i / 40];
      EXPECT_EQ(std::fabs(steps - std::trunc(steps)), i % 40 < 2 ? 0.0f : 0.5f) << line << " " << i;
    }
  }
}

TEST(MaterializeNumbers, AreWhatTheirNamesSay) {
  const std::vector<float> constant = NumbersOf("gemm u8s8f32 m=9 n=1 k=5 quant=dynamic_rows x=constant");
  for (size_t i = 0; i < constant.size(); ++i) EXPECT_EQ(constant[i], constant[i / 5 * 5]);
  EXPECT_LT(std::ranges::min(constant), 0.0f);
  EXPECT_GT(std::ranges::max(constant), 0.0f);
  const std::vector<float> zeros = NumbersOf("gemm u8s8f32 m=2 n=1 k=20 quant=dynamic_rows x=zeros");
  EXPECT_TRUE(std::all_of(zeros.begin(), zeros.begin() + 20, [](float x) { return x == 0.0f; }));
  EXPECT_TRUE(std::any_of(zeros.begin(), zeros.begin() + 20, [](float x) { return std::signbit(x); }));
  EXPECT_TRUE(std::all_of(zeros.begin() + 20, zeros.end(), [](float x) { return x != 0.0f; }));
  const reference::Gemm tiny = MaterializeGemm(Parsed("gemm u8s8f32 m=40 n=1 k=9 quant=dynamic_rows x=tiny"));
  for (const float x : reference::SourceNumbers(tiny)) EXPECT_FALSE(std::isnormal(x));
  EXPECT_EQ(std::ranges::max(tiny.a_scales), 1.0f);
  EXPECT_LT(std::ranges::min(tiny.a_scales), std::numeric_limits<float>::min());
  for (const char* quantization : {"dynamic_rows", "dynamic_tensor"}) {
    const reference::Gemm gemm =
        MaterializeGemm(Parsed(std::string("gemm u8s8f32 m=10 n=1 k=9 x=nonfinite quant=") + quantization));
    const auto without = std::ranges::count_if(gemm.a_scales, [](float s) { return std::isnan(s); });
    EXPECT_EQ(without, quantization == std::string("dynamic_rows") ? 8 : 10);
  }
}

TEST(MaterializeNumbers, OfBfloat16AreRepresentable) {
  for (const Numbers numbers : AllNumbers()) {
    Problem problem = Parsed("gemm s8s8f32 m=9 n=2 k=7 quant=dynamic_rows src=bf16");
    problem.numbers = numbers;
    const reference::Gemm gemm = MaterializeGemm(problem);
    EXPECT_EQ(gemm.a_source.size(), 2u * 9 * 7);
    EXPECT_EQ(gemm.a.size(), 9u * 7);
    for (const float scale : gemm.scales) EXPECT_TRUE(std::isfinite(scale) && scale > 0.0f);
  }
}

TEST(MaterializeEdges, OfWrappingSumsAndPrunedChannels) {
  const reference::Gemm gemm =
      MaterializeGemm(Parsed("gemm u8s8f32 m=9 n=40 k=64 overflow=wraps bias=s32 scale=pruned"));
  EXPECT_EQ(gemm.overflow, INTACT_OVERFLOW_WRAPS);
  reference::Gemm refused = gemm;
  refused.overflow = INTACT_OVERFLOW_REFUSED;
  EXPECT_GT(reference::Predictor(refused).Overflows().size(), 20u);
  EXPECT_TRUE(reference::Predictor(gemm).Overflows().empty());
  for (size_t n = 0; n < gemm.scales.size(); ++n) EXPECT_EQ(gemm.scales[n] == 0.0f, n % 3 == 0) << n;
}

TEST(MaterializeEdges, OfPrunedChannelsInFixedPoint) {
  for (const char* const line : {"gemm u8s8s8 m=2 n=9 k=4 fixed=away scale=pruned",
                                 "gemm u8s8s8 m=2 n=9 k=4 fixed=up scale=pruned fill=ties"}) {
    const reference::Gemm gemm = MaterializeGemm(Parsed(line));
    ASSERT_EQ(gemm.multipliers.size(), 9u) << line;
    for (size_t n = 0; n < 9; ++n) EXPECT_EQ(gemm.multipliers[n] == 0, n % 3 == 0) << line << ": " << n;
  }
  EXPECT_FALSE(Problem::Parse("gemm u8s8s8 m=2 n=9 k=4 fixed=away_shift scale=pruned"));
}

TEST(MaterializeItems, HaveTheirOwn) {
  const reference::Gemm gemm = MaterializeGemm(Parsed(
      "gemm u8u8f32 m=4 n=5 k=6 batch=3 runtimeb=yes zb=9 zbper=item scale=item quant=rows zaper=row"));
  EXPECT_EQ(gemm.a.size(), 3u * 4 * 6);
  EXPECT_EQ(gemm.b.size(), 3u * 5 * 6);
  EXPECT_EQ(gemm.a_scales.size(), 12u);
  EXPECT_EQ(gemm.item_zero_points.size(), 3u);
  EXPECT_EQ(gemm.item_scales.size(), 3u);
  const reference::Gemm last = reference::Item(gemm, 2);
  EXPECT_EQ(last.b, std::vector<int8_t>(gemm.b.end() - 30, gemm.b.end()));
  EXPECT_NE(last.b, reference::Item(gemm, 0).b);
  EXPECT_EQ(last.scales, std::vector<float>{gemm.item_scales[2]});
  EXPECT_EQ(last.b_zero_points, std::vector<int32_t>{gemm.item_zero_points[2]});
}

TEST(MaterializeItems, HaveTheirOwnColumns) {
  const reference::Gemm gemm = MaterializeGemm(
      Parsed("gemm u8u8f32 m=4 n=5 k=6 batch=3 runtimeb=yes zb=9 zbper=item_column scale=item_column"));
  ASSERT_EQ(gemm.item_zero_points.size(), 15u);
  ASSERT_EQ(gemm.item_scales.size(), 15u);
  EXPECT_EQ(gemm.item_zero_points[0], 9);
  const reference::Gemm middle = reference::Item(gemm, 1);
  EXPECT_EQ(middle.scales, std::vector<float>(&gemm.item_scales[5], &gemm.item_scales[10]));
  EXPECT_EQ(middle.b_zero_points,
            std::vector<int32_t>(&gemm.item_zero_points[5], &gemm.item_zero_points[10]));
  const std::set<float> scales(gemm.item_scales.begin(), gemm.item_scales.end());
  EXPECT_EQ(scales.size(), 15u);
}

class Fills : public ::testing::TestWithParam<Fill> {};

TEST_P(Fills, StayWithinTheirRanges) {
  for (const char* line : {"gemm u8s8s32 m=9 n=17 k=65 amax=127 wmax=63 za=3",
                           "gemm s8s8s32 m=9 n=17 k=65 amax=100 wmax=127 za=-100",
                           "gemm s8s8s32 m=9 n=17 k=65 arange=90 za=-100"}) {
    Problem problem = Parsed(line);
    problem.fill = GetParam();
    const reference::Gemm gemm = MaterializeGemm(problem);
    const reference::Operands operands(gemm);
    const int largest = *std::max_element(operands.a.begin(), operands.a.end());
    EXPECT_LE(largest, problem.fill == Fill::kStray ? 255 : problem.LargestActivation());
    for (const int8_t w : gemm.b) EXPECT_LE(std::abs(int{w}), problem.wmax);
  }
}

TEST_P(Fills, SpreadEightBitOutputs) {
  for (const char* line : {"gemm u8s8u8 m=32 n=48 k=144 za=5 zc=128 scale=channel bias=s32",
                           "gemm s8s8s8 m=32 n=48 k=144 za=-7 zc=-3 bias=f32",
                           "gemm u8s8u8 m=32 n=48 k=144 za=5 zc=128 scale=channel res=s8 zres=4"}) {
    Problem problem = Parsed(line);
    problem.fill = GetParam();
    const reference::Gemm gemm = MaterializeGemm(problem);
    const auto y = reference::Accumulators(gemm, reference::Model::kExact);
    std::set<uint8_t> distinct;
    int64_t clamped = 0;
    for (const uint8_t c : reference::Outputs(gemm, y)) {
      distinct.insert(c);
      const int value = gemm.c_type == INTACT_S8 ? static_cast<int8_t>(c) + 128 : c;
      clamped += value == 0 || value == 255 ? 1 : 0;
    }
    EXPECT_GT(distinct.size(), 48u) << problem.ToString();
    EXPECT_LT(clamped, 32 * 48 / 3) << problem.ToString();
  }
}

TEST_P(Fills, KeepBiasedAccumulatorsInInt32) {
  Problem problem = Parsed("gemm u8s8u8 m=2 n=3 k=66000 bias=s32");
  problem.fill = GetParam();
  const reference::Gemm gemm = MaterializeGemm(problem);
  for (int64_t n = 0; n < gemm.n; ++n) {
    int64_t farthest = std::abs(int64_t{gemm.bias_s32[static_cast<size_t>(n)]});
    for (int64_t k = 0; k < gemm.k; ++k) {
      farthest += 255 * std::abs(int64_t{gemm.b[static_cast<size_t>(k * gemm.n + n)]});
    }
    EXPECT_LE(farthest, std::numeric_limits<int32_t>::max());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fills, ::testing::ValuesIn(AllFills().begin(), AllFills().end()),
                         [](const auto& fill) { return std::string(ToString(fill.param)); });

TEST(Fill, HeavyTailsReachTheLargestWeightInEachColumn) {
  for (const char* fill : {"gauss", "laplace", "student", "relu", "ramp"}) {
    const std::vector<int64_t> b = Weights("gemm u8s8s32 m=1 n=1 k=500 fill=" + std::string(fill));
    int64_t largest = 0;
    for (const int64_t w : b) largest = std::max(largest, std::abs(w));
    EXPECT_EQ(largest, 127) << fill;
  }
}

TEST(Fill, DrawsAreCentredAndOfTheRightVariance) {
  constexpr int kDraws = 200000;
  const std::pair<double (support::Random::*)(), double> cases[] = {
      {&support::Random::Gauss, 1.0}, {&support::Random::Laplace, 2.0}, {&support::Random::Student4, 2.0}};
  for (const auto& [draw, variance] : cases) {
    support::Random random(5, 0, 0);
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = (random.*draw)();
      sum += x;
      squares += x * x;
    }
    EXPECT_NEAR(sum / kDraws, 0.0, 0.02);
    EXPECT_NEAR(squares / kDraws, variance, 0.15);
  }
}

TEST(Fill, BaitSaturatesInEverySecondRow) {
  const reference::Gemm gemm = MaterializeGemm(Parsed("gemm u8s8s32 m=6 n=8 k=32 fill=bait"));
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) EXPECT_EQ(SaturatedPairs(gemm, m, n).empty(), m % 2 == 1);
  }
}

// Counts pair sums of the row that is made for each column, and how many of them are `sum`.
int64_t CountPairSums(const reference::Gemm& gemm, int32_t sum) {
  int64_t count = 0;
  for (int64_t m = 0; m < std::min(gemm.m, 2 * gemm.n); ++m) {
    for (int64_t k = 0; k + 1 < gemm.k; k += 2) {
      const auto at = static_cast<size_t>(k * gemm.n + m / 2);
      const int32_t pair = reference::PairSum(reference::ShiftedActivation(gemm, m, k),
                                              reference::ShiftedActivation(gemm, m, k + 1), gemm.b[at],
                                              gemm.b[at + static_cast<size_t>(gemm.n)]);
      count += pair == sum ? 1 : 0;
    }
  }
  return count;
}

TEST(Fill, BoundReachesTheCapacityOfInt16AndOneBeyond) {
  struct Case {
    const char* line;
    int32_t high, low;  // the largest sums that fit
    int32_t largest;    // activation
  };
  for (const Case& c : {
           Case{"gemm u8s8s32 m=8 n=4 k=400 wmax=128 fill=bound", 255 * 128, -255 * 128, 255},
           Case{"gemm s8s8s32 m=8 n=4 k=400 wmax=128 fill=bound", 255 * 128, -255 * 128, 255},
           Case{"gemm u8s8s32 m=8 n=4 k=400 wmax=128 arange=200 fill=bound", 200 * 163, -200 * 163, 200},
           Case{"gemm u8s8s32 m=8 n=4 k=400 wmax=128 arange=128 fill=bound", 128 * 127, -128 * 256, 128},
       }) {
    const reference::Gemm gemm = MaterializeGemm(Parsed(c.line));
    EXPECT_GT(CountPairSums(gemm, c.high), 0) << c.line;
    EXPECT_GT(CountPairSums(gemm, c.low), 0) << c.line;
    EXPECT_GT(CountPairSums(gemm, c.high + c.largest), 0) << c.line;
    if (c.low != -32768) {
      EXPECT_GT(CountPairSums(gemm, c.low - c.largest), 0) << c.line;
    }
  }
}

// The properties that fills promise for pairs hold for pairs of channels within a tap.
TEST(Fill, BaitSaturatesPairsOfChannels) {
  const reference::Conv conv = MaterializeConv(Parsed("conv u8s8s32 in=6x6 c=5 o=4 kernel=3x3 fill=bait"));
  const reference::Gemm gemm = reference::Lower(conv)[0];
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) EXPECT_FALSE(SaturatedPairs(gemm, m, n).empty());
  }
}

TEST(Fill, BoundReachesTheCapacityUnderEveryTap) {
  const reference::Conv conv = MaterializeConv(
      Parsed("conv u8s8s32 in=40x40 c=16 o=8 kernel=3x3 stride=2x2 pad=1x1 wmax=128 fill=bound"));
  const reference::Gemm gemm = reference::Lower(conv)[0];
  const reference::Operands operands(gemm);
  std::set<int64_t> taps_at_capacity;
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      const auto a = operands.Row(m);
      const auto w = operands.Column(n);
      for (size_t k = 0; k < a.size(); k += 2) {
        if (reference::PairSum(a[k], a[k + 1], w[k], w[k + 1]) == 255 * 128) {
          taps_at_capacity.insert(static_cast<int64_t>(k) / conv.geometry.TapDepth());
        }
      }
    }
  }
  EXPECT_EQ(taps_at_capacity.size(), 9u);
}

TEST(Fill, ConvolutionsStayWithinTheActivationRange) {
  for (const Fill fill : AllFills()) {
    Problem problem = Parsed("conv u8s8s32 in=7x7 c=3 o=4 kernel=2x2 za=120 arangemin=100 arange=200");
    problem.fill = fill;
    const reference::Conv conv = MaterializeConv(problem);
    const auto [low, high] = std::minmax_element(conv.a.begin(), conv.a.end());
    EXPECT_EQ(*low < 100, fill == Fill::kStray) << ToString(fill);
    EXPECT_EQ(*high > 200, fill == Fill::kStray) << ToString(fill);
  }
}

TEST(Fill, StrayLeavesTheActivationRangeInEvery155thRow) {
  const reference::Gemm gemm = MaterializeGemm(Parsed("gemm u8s8s32 m=311 n=1 k=33 arange=100 fill=stray"));
  for (int64_t m = 0; m < gemm.m; ++m) {
    const auto row = gemm.a.begin() + m * gemm.k;
    EXPECT_EQ(*std::max_element(row, row + gemm.k) > 100, m % 155 == 0) << m;
  }
}

TEST(Fill, TiesAreTies) {
  const reference::Gemm gemm = MaterializeGemm(Parsed("gemm u8s8u8 m=16 n=16 k=40 za=9 zc=128 fill=ties"));
  int64_t ties = 0;
  for (const int32_t y : reference::Accumulators(gemm, reference::Model::kExact)) ties += y % 2 != 0 ? 1 : 0;
  ASSERT_EQ(gemm.scales, std::vector<float>{0.5f});
  EXPECT_GT(ties, 16 * 16 / 4);
}

TEST(Fill, OneHotRowsHaveOneActivation) {
  const reference::Gemm gemm = MaterializeGemm(Parsed("gemm u8s8s32 m=8 n=1 k=33 za=7 fill=one_hot"));
  for (int64_t m = 0; m < gemm.m; ++m) {
    const auto row = gemm.a.begin() + m * gemm.k;
    EXPECT_GE(std::count(row, row + gemm.k, 7), gemm.k - 1);
  }
}

// docs/problems.md describes every key.
TEST(ProblemLine, IsDocumented) {
  std::ifstream file(INTACT_SOURCE_DIR "/docs/problems.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(page.empty());
  for (const char* line :
       {"gemm u8s8s32 m=1 n=1 k=1 nothing=1", "conv u8s8s32 in=1 c=1 o=1 kernel=1 nothing=1"}) {
    const Result<Problem> problem = Problem::Parse(line);
    ASSERT_FALSE(problem);
    const std::string& message = problem.error().message;
    const std::string before = "expected one of ";
    ASSERT_NE(message.find(before), std::string::npos) << message;
    std::istringstream keys(message.substr(message.find(before) + before.size()));
    int count = 0;
    for (std::string key; std::getline(keys >> std::ws, key, ','); ++count) {
      EXPECT_NE(page.find("`" + key + "="), std::string::npos) << key;
    }
    EXPECT_GT(count, 30);
  }
}

}  // namespace
}  // namespace intact::verify

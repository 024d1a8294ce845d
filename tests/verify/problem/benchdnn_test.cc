// Lines of benchdnn to problem lines and back.
#include "verify/problem/benchdnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_path.h"
#include "verify/problem/line.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The problem lines, or error messages, of a command.
std::vector<std::string> Converted(const std::string& command) {
  const Result<std::vector<BenchdnnCase>> cases = ReadBenchdnn(command);
  if (!cases) return {cases.error().message};
  std::vector<std::string> lines;
  for (const BenchdnnCase& one : *cases) {
    const Result<Problem> problem = ProblemOf(one);
    lines.push_back(problem ? problem->ToString() : problem.error().message);
  }
  return lines;
}

std::string One(const std::string& command) {
  const std::vector<std::string> lines = Converted(command);
  EXPECT_EQ(lines.size(), 1U) << command;
  return lines.empty() ? "" : lines[0];
}

TEST(Benchdnn, ReadsMatmul) {
  const std::pair<const char*, const char*> kLines[] = {
      {"--matmul --dt=u8:s8:s32 --stag=ab 128x768:768x64", "gemm u8s8s32 m=128 n=64 k=768"},
      {"./benchdnn -v1 --mode=C --matmul --dt=s8:s8:u8 --wtag=ba --stag=ba --bia_dt=f32 2x3:3x4_n\"a:b\"",
       "gemm s8s8u8 m=2 n=4 k=3 alayout=km blayout=nk bias=f32"},
      {"--matmul --dt=s8:u8:s32 --bia-dt=s32 --runtime_dims_masks=3:1 2x3:3x4:2x4",
       "gemm s8u8s32 m=2 n=4 k=3 bias=s32"},
      {"--matmul --dt=u8:s8:u8 --attr-scales=src:common:0.25+wei:per_oc+dst:common:2 "
       "--attr-zero-points=src:common:3:s8+wei:common:-1+dst:common:7 --attr-post-ops=sum:1:2:s8+relu "
       "2x3:3x4",
       "gemm u8s8u8 m=2 n=4 k=3 za=3 zb=-1 zc=7 scale=channel act=relu res=s8 zres=2 inplace=yes"},
      {"--matmul --dt=u8:s8:bf16 --attr-zero-points=wei:per_oc --attr-post-ops=clip:-1:2.5 2x3:3x4",
       "gemm u8s8bf16 m=2 n=4 k=3 zbper=channel act=clamp"},
      // Masks: 2 is the columns of two dimensions, 4 of three.
      {"--matmul --dt=u8:s8:f32 --attr-scales=wei:2 2x3:3x4", "gemm u8s8f32 m=2 n=4 k=3 scale=channel"},
      {"--matmul --dt=u8:s8:f32 --bia-dt=f32 --bia_mask=4 5x2x3:1x3x4",
       "gemm u8s8f32 m=2 n=4 k=3 batch=5 bias=f32"},
      {"--matmul --dt=u8:s8:f16 --stag=abdc --wtag=abx 5x7x2x3:5x7x3x4",
       "gemm u8s8f16 m=2 n=4 k=3 batch=35 alayout=km runtimeb=yes"},
      {"--matmul --dt=u8:s8:s32 --strides=8x1:1x5:7x1 2x3:3x4",
       "gemm u8s8s32 m=2 n=4 k=3 blayout=nk bpad=2 apad=5 cpad=3"},
      {"--matmul --dt=u8:s8:s32 --strides=7x3x1::9x4x1 5x2x3:1x3x4",
       "gemm u8s8s32 m=2 n=4 k=3 batch=5 itempad=1"},
  };
  for (const auto& [line, problem] : kLines)
    EXPECT_EQ(One(line), Problem::Parse(problem)->ToString()) << line;
}

TEST(Benchdnn, ReadsConvolutions) {
  const std::pair<const char*, const char*> kLines[] = {
      // The defaults: a batch of 2, a bias, square extents, an output that the padding gives.
      {"--conv --dt=u8:s8:u8 ic64ih56oc32oh56kh3ph1n\"conv1\"",
       "conv u8s8u8 in=56x56 c=64 o=32 kernel=3x3 pad=1x1 batch=2 bias=f32"},
      {"--conv --dt=s8:s8:s32 --dir=FWD_D --mb=1 mb7_ic8iw9_oc4_kw3dw1",
       "conv s8s8s32 in=9 c=8 o=4 kernel=3 dilation=2"},
      {"--conv --dt=s8:s8:s32 --dir=FWD_I --bia-dt=s32 mb1ic8id4oc4kd2",
       "conv s8s8s32 in=4x4x4 c=8 o=4 kernel=2x2x2 bias=s32"},
      {"--conv --dt=u8:s8:s32 --dir=FWD_I g4mb1ic8ih7iw5oc4kh3kw1sh2sw1ph1pw0",
       "conv u8s8s32 in=7x5 c=8 o=4 kernel=3x1 stride=2x1 pad=1x0 groups=4"},
      // The output makes the paddings differ: 2·5 + 3 − 12 = 1.
      {"--conv --dt=u8:s8:s32 --dir=FWD_I mb1ic8ih12oc4oh6kh3sh2ph0",
       "conv u8s8s32 in=12x12 c=8 o=4 kernel=3x3 stride=2x2 pad=0x0:1x1"},
      {"--conv --dt=u8:s8:s32 --dir=FWD_I mb1ic8ih12oc4oh12kh3",
       "conv u8s8s32 in=12x12 c=8 o=4 kernel=3x3 pad=1x1"},
      // Grouped weights have a mask of two dimensions.
      {"--conv --dt=u8:s8:f32 --dir=FWD_I --attr-scales=wei:3 g2mb1ic8ih5oc4kh1",
       "conv u8s8f32 in=5x5 c=8 o=4 kernel=1x1 groups=2 scale=channel"},
      {"--conv --dt=u8:s8:s32 --dir=FWD_I --strides=300x1x60x12::100x1x20x4 mb1ic8ih5oc4kh1",
       "conv u8s8s32 in=5x5 c=8 o=4 kernel=1x1 apad=4"},
      {"--deconv --dt=u8:s8:s32 --dir=FWD_I --stag=nhwc --wtag=acdb mb1ic8ih5oc4oh10kh3sh2ph1",
       "conv u8s8s32 in=5x5 c=8 o=4 kernel=3x3 stride=2x2 pad=1x1:0x0 transposed=yes"},
      {"--deconv --dt=u8:s8:s32 --dir=FWD_I mb1ic8iw5oc4ow12kw3sw2pw0",
       "conv u8s8s32 in=5 c=8 o=4 kernel=3 stride=2 transposed=yes outpad=1"},
  };
  for (const auto& [line, problem] : kLines) {
    const Result<Problem> expected = Problem::Parse(problem);
    ASSERT_TRUE(expected) << problem << ": " << expected.error().message;
    EXPECT_EQ(One(line), expected->ToString()) << line;
  }
}

TEST(Benchdnn, NamesTheArgumentThatItCannotConvert) {
  const std::pair<const char*, const char*> kLines[] = {
      {"--ip --dt=u8:s8:s32 2x3:3x4", "'--ip': expected --matmul, --conv or --deconv"},
      {"2x3:3x4", "expected --matmul, --conv or --deconv before it"},
      {"--matmul --colour=red 2x3:3x4", "option --colour is unknown"},
      {"--matmul --dt=u8:s8:s32", "no problem"},
      {"--matmul --batch=/nowhere/at_all", "--batch=/nowhere/at_all: no such file"},
      {"--matmul 2x3:3x4", "--dt: the default is f32"},
      {"--matmul --dt=f32:s8:f32 2x3:3x4", "--dt=f32:s8:f32: expected u8 or s8"},
      {"--matmul --dt=u8:s8:s32 2x3:4x4", "'2x3:4x4': expected MxK:KxN"},
      {"--matmul --dt=u8:s8:s32 2x3:3x4:3x4", "outputs' dimensions"},
      {"--matmul --dt=u8:s8:s32 5x2x3:7x3x4", "expected weights for each item"},
      {"--matmul --dt=u8:s8:s32 --stag=BA16a64b 2x3:3x4", "--stag=BA16a64b: expected dense"},
      {"--matmul --dt=u8:s8:s32 --dtag=ba 2x3:3x4", "--dtag=ba: expected dense rows"},
      {"--matmul --dt=u8:s8:s32 --strides=2x1:: 2x3:3x4", "no overlap"},
      {"--matmul --dt=u8:s8:s32 --strides=7x3x1:: 5x2x3:1x3x4",
       "the same number of elements between the items"},
      {"--matmul --dt=u8:s8:s32 --bia-dt=f32 2x3:3x4", "--bia-dt=f32: the bias is f32; expected s32"},
      {"--matmul --dt=u8:s8:u8 --bia-dt=s32 2x3:3x4", "--bia-dt=s32: the bias is s32"},
      {"--matmul --dt=u8:s8:u8 --bia-dt=f32 --bia_mask=1 2x3:3x4", "--bia_mask=1: expected 2"},
      {"--matmul --dt=u8:s8:u8 --bia-dt=f32 5x2x3:1x3x4", "--bia_mask=2: expected 4"},
      {"--matmul --dt=u8:s8:s32 --attr-scales=wei:per_oc 2x3:3x4", "s32 outputs have no scale"},
      {"--matmul --dt=u8:s8:u8 --attr-scales=src:per_dim_0 2x3:3x4",
       "--attr-scales=src:per_dim_0: expected one value"},
      {"--matmul --dt=u8:s8:u8 --attr-scales=wei:per_ocic:f32:2x1 2x3:3x4",
       "wei:per_ocic:f32:2x1: expected one"},
      {"--matmul --dt=u8:s8:u8 --attr-scales=wei:per_oc:bf16 2x3:3x4", "expected scales of type f32"},
      {"--matmul --dt=u8:s8:u8 --attr-zero-points=src:common:-1 2x3:3x4",
       "src:common:-1: -1 is out of range; expected 0 to 255"},
      {"--matmul --dt=u8:s8:f32 --attr-zero-points=dst:common:1 2x3:3x4", "no zero points for f32"},
      {"--matmul --dt=u8:s8:u8 --attr-post-ops=relu+sum 2x3:3x4", "expected at most one sum, then"},
      {"--matmul --dt=u8:s8:u8 --attr-post-ops=relu:0.5 2x3:3x4",
       "--attr-post-ops=relu:0.5: problem lines have no slope"},
      {"--matmul --dt=u8:s8:u8 --attr-post-ops=sum:1:0:s32 2x3:3x4", "sum:1:0:s32: expected"},
      {"--matmul --dt=u8:s8:u8 --attr-post-ops=gelu_tanh 2x3:3x4",
       "--attr-post-ops=gelu_tanh: expected sum, relu or clip"},
      {"--matmul --dt=u8:s8:u8 --encoding=csr:: 2x3:3x4", "--encoding=csr::: problem lines cannot say it"},
      {"--matmul --dt=u8:s8:u8 --mb=3 2x3:3x4", "--mb=3: problem lines cannot say it of a matmul"},
      {"--conv --dt=u8:s8:u8 --dir=BWD_D ic8ih5oc4kh1", "--dir=BWD_D: expected"},
      {"--conv --dt=u8:s8:s32 ic8ih5oc4kh1", "--dir=FWD_B: the bias is f32"},
      {"--conv --dt=u8:s8:u8 --stag=abx ic8ih5oc4kh1", "--stag=abx: expected channels last"},
      {"--conv --dt=u8:s8:u8 --wtag=axb g2ic8ih5oc4kh1", "--wtag=axb: expected output channels first"},
      {"--conv --dt=u8:s8:u8 ic8ih5oc4kh1x", "'x' is no entry"},
      {"--conv --dt=u8:s8:u8 ic8oc4", "no spatial dimension"},
      {"--conv --dt=u8:s8:u8 ic8ih5oc4", "kh or sh is missing"},
      {"--conv --dt=u8:s8:u8 ic8id5ih5oc4kd1kh1", "expected both h and w"},
      {"--conv --dt=u8:s8:u8 ic8ih5oc4oh3kh1ph0", "oh: 3 leaves out outputs; the input gives 5"},
      {"--conv --dt=u8:s8:u8 g3ic8ih5oc4kh1", "groups: 3 does not divide"},
      {"--conv --dt=u8:s8:u8 --match=.*fc6.* ic8ih5oc4kh1", "--match=.*fc6.*"},
      // Dense strides beyond int64.
      {"--conv --dt=u8:s8:u8 --strides=1x1x1x1x16777216:: ic1id16777216ih16777216iw16777216oc1kd1kh1kw1",
       "expected channels last"},
  };
  for (const auto& [line, message] : kLines) EXPECT_THAT(One(line), HasSubstr(message)) << line;
  // More dimensions than a mask has bits: 1 << 69 is the mask 32 on x86-64.
  std::string ones = "1";
  for (int i = 1; i < 70; ++i) ones += "x1";
  EXPECT_THAT(One("--matmul --dt=u8:s8:s32 --bia-dt=s32 --bia_mask=32 " + ones + ":" + ones),
              HasSubstr("have 70 dimensions; expected at most 12"));
  EXPECT_THAT(One("--matmul --dt=u8:s8:s32 -\x1b"), HasSubstr("'-\\x1b': expected an option with --"));
}

TEST(Benchdnn, ReadsBatchFiles) {
  const std::filesystem::path folder = tests::TempPath() + "_batch";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "shapes") << "2x3:3x4 # 9x9:9x9\n# 8x8:8x8\n5x6:6x7n\"name\"\n";
  std::ofstream(folder / "test") << "--reset --dt=u8:s8:u8,s8:s8:s32\n--attr-zero-points=src:common:1, \\\n  "
                                    "src:common:2\n--batch=shapes\n--reset --dt=u8:u8:s32 --batch=shapes\n";
  EXPECT_THAT(Converted("--matmul --attr-post-ops=gelu --batch=" + (folder / "test").string()),
              ElementsAre("gemm u8s8u8 m=2 n=4 k=3 za=1", "gemm s8s8s32 m=2 n=4 k=3 za=1",
                          "gemm u8s8u8 m=2 n=4 k=3 za=2", "gemm s8s8s32 m=2 n=4 k=3 za=2",
                          "gemm u8s8u8 m=5 n=7 k=6 za=1", "gemm s8s8s32 m=5 n=7 k=6 za=1",
                          "gemm u8s8u8 m=5 n=7 k=6 za=2", "gemm s8s8s32 m=5 n=7 k=6 za=2",
                          "gemm u8u8s32 m=2 n=4 k=3", "gemm u8u8s32 m=5 n=7 k=6"));
  // A file that includes itself.
  std::ofstream(folder / "test") << "--batch=test\n";
  EXPECT_THAT(One("--matmul --batch=" + (folder / "test").string()), HasSubstr("nested more than 16 deep"));
  std::filesystem::remove_all(folder);
}

// A bias mask matters only if there is a bias.
TEST(Benchdnn, MakesOneCaseOfEachCombination) {
  EXPECT_THAT(Converted("--matmul --dt=u8:s8:u8 --bia-dt=undef,f32 --bia_mask=1,2 2x3:3x4"),
              ElementsAre("gemm u8s8u8 m=2 n=4 k=3", "--bia_mask=1: expected 2, a value for each column",
                          "gemm u8s8u8 m=2 n=4 k=3 bias=f32"));
}

TEST(Benchdnn, WritesLines) {
  const std::pair<const char*, const char*> kLines[] = {
      {"gemm u8s8s32 m=2 n=4 k=3 zb=-1 blayout=nk bias=s32",
       "--matmul --dt=u8:s8:s32 --stag=ab --wtag=ba --dtag=ab --bia-dt=s32 --bia_mask=2 "
       "--attr-zero-points=wei:common:-1 2x3:3x4"},
      {"gemm s8u8f32 m=2 n=4 k=3 batch=5 alayout=km apad=1 itempad=2 bias=f32 scale=channel act=relu",
       "--matmul --dt=s8:u8:f32 --strides=11x1x3:14x4x1:10x4x1 --bia-dt=f32 --bia_mask=4 "
       "--attr-scales=wei:per_oc "
       "--attr-post-ops=relu 5x2x3:1x3x4"},
      {"conv u8s8s32 in=7x5 c=8 o=4 kernel=3x1 stride=2x1 dilation=1x2 pad=1x0 groups=4 za=9",
       "--conv --dt=u8:s8:s32 --stag=axb --dtag=axb --dir=FWD_I --attr-zero-points=src:common:9 "
       "g4mb1ic8ih7iw5oc4oh4ow5kh3kw1sh2sw1ph1pw0dh0dw1"},
  };
  for (const auto& [problem, line] : kLines) {
    const Result<BenchdnnLine> written = BenchdnnLineOf(*Problem::Parse(problem));
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(written->line, line);
    EXPECT_EQ(written->left_out, "");
  }
  EXPECT_EQ(BenchdnnLineOf(*Problem::Parse("gemm u8s8f32 m=2 n=4 k=3 res=f32 fill=bait isa=avx2"))->left_out,
            "fill=bait isa=avx2 inplace=no");
  for (const auto& [problem, message] : {
           std::pair{"gemm u8s8s32 m=2 n=4 k=3 mode=saturating", "mode=saturating: benchdnn cannot say it"},
           {"gemm u8s8u8 m=2 n=4 k=3 fixed=away", "fixed=away"},
           {"gemm u8s8u8 m=2 n=4 k=3 bias=s32", "bias=s32: is added before the scale"},
           {"gemm u8s8u8 m=2 n=4 k=3 res=f32", "res=f32: benchdnn adds to the outputs, which are u8"},
           {"gemm u8s8f32 m=2 n=4 k=3 quant=dynamic_rows", "quant=dynamic_rows"},
           {"gemm u8s8f32 m=2 n=4 k=3 runtimeb=yes scale=item", "scale: items have"},
           {"grouped s8u4f32 m=1 n=2 k=64", "grouped: weights in groups"},
       }) {
    EXPECT_THAT(BenchdnnLineOf(*Problem::Parse(problem)).error().message, HasSubstr(message)) << problem;
  }
}

// Of each problem of the quick sweep that benchdnn can say, what its line says is read back. Padding that reads
// nothing, the place of a residual and a runtime B of one item are not said.
TEST(Benchdnn, ReadsWhatItWrites) {
  int64_t written = 0, refused = 0;
  for (Problem problem :
       SweepProblems(std::array{INTACT_ISA_PORTABLE}, std::array{INTACT_EXACT}, Effort::kQuick)) {
    const Result<BenchdnnLine> line = BenchdnnLineOf(problem);
    if (!line) {
      ++refused;
      continue;
    }
    ++written;
    for (const std::string_view word : WordsOf(line->left_out)) problem.Reset(word.substr(0, word.find('=')));
    if (problem.residual != INTACT_TYPE_NONE) problem.in_place = true;
    if (problem.scale > ScaleKind::kChannel) problem.scale = ScaleKind::kChannel;
    const Result<std::vector<BenchdnnCase>> cases = ReadBenchdnn(line->line);
    ASSERT_TRUE(cases) << line->line << ": " << cases.error().message;
    ASSERT_EQ(cases->size(), 1U);
    Result<Problem> read = ProblemOf((*cases)[0]);
    ASSERT_TRUE(read) << line->line << ": " << read.error().message;
    if (problem.conv) {
      for (size_t i = 0; i < problem.conv->axes.size(); ++i) {
        reference::Axis& axis = problem.conv->axes[i];
        EXPECT_EQ(read->conv->axes[i].Output(), axis.Output()) << line->line;
        axis.pad_end = read->conv->axes[i].pad_end;
        axis.output_pad = read->conv->axes[i].output_pad;
      }
    }
    EXPECT_EQ(read->ToString(), problem.ToString()) << line->line;
  }
  EXPECT_GT(written, refused);
}

}  // namespace
}  // namespace intact::verify

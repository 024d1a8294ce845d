// Convolutions of the library compared with the scalar reference: every ISA × mode × fill, on geometries
// around the blocks and the edges; layers that PyTorch computed; equal bytes for every ISA, number of threads
// and division of the batch. ISAs that the CPU lacks are emulated if possible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/isas.h"
#include "reference/contract/quantize.h"
#include "support/npy.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/on_every_isa.h"
#include "tests/support/require_isas.h"
#include "tests/support/sanitized.h"
#include "tests/support/scoped_costs.h"
#include "tests/support/tiles_target.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"
#include "verify/studies/layer.h"
#include "verify/studies/layer_check.h"

namespace intact::verify {
namespace {

using reference::Conv;

class ConvDifferential : public tests::OnEveryIsa {};

TEST_P(ConvDifferential, ChannelsAndPixelsAroundTheBlocks) {
  int number = 0;
  for (const char* geometry : {"in=5x5 c=1 o=1 kernel=3x3 pad=1x1", "in=4x9 c=1 o=1 kernel=1x1",
                               "in=9 c=1 o=1 kernel=4 stride=2 pad=3:1"}) {
    Problem problem = OnThis("conv u8s8s32 za=3 " + std::string(geometry));
    for (const int64_t inputs : {1, 2, 3, 4, 5, 16, 17, 64, 66}) {
      for (const int64_t outputs : {1, 15, 16, 17, 31, 48, 49, 65}) {
        if (!IsInShare(number++)) continue;
        problem.conv->input_channels = inputs;
        problem.conv->output_channels = outputs;
        ExpectItsModel(problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// They run on depthwise kernels, which repeat the channel for each output.
TEST_P(ConvDifferential, OneInputChannel) {
  for (const char* line : {
           "conv u8s8s32 in=9x40 c=1 o=1 kernel=3x3 pad=1x1 za=9",
           "conv s8u8u8 in=5x70 c=1 o=3 kernel=3x5 pad=1x2 za=-7 zb=3 zc=5 scale=channel act=relu",
           "conv u8u8f32 in=12x9 c=1 o=8 kernel=1x1 zb=131 batch=3 cpad=3",
           "conv s8s8s8 in=8x33 c=1 o=64 kernel=3x3 dilation=2x2 pad=2x2 scale=channel table=yes",
           "conv u8s8f32 in=40 c=1 o=19 kernel=5 dilation=3 pad=4 quant=dynamic_tensor x=normal bias=f32",
           "conv u8s8s32 in=7x9 c=1 o=2 kernel=2x3 stride=2x2 transposed=yes za=3",
           "conv s8s8u8 in=6x30 c=1 o=5 kernel=3x3 pad=1x1 open=yes res=u8",
           "conv u8u8s32 in=2x3x17 c=1 o=4 kernel=2x3x3 pad=0x1x1 zb=7",
           "conv u8s8s32 in=3x200 c=1 o=1 kernel=1x7 stride=1x3 pad=0x3 mode=saturating fill=bait",
       }) {
    ExpectItsModel(OnThis(line));
    if (HasFatalFailure()) return;
  }
}

TEST_P(ConvDifferential, Groups) {
  for (const char* line : {
           "conv u8s8s32 in=7x7 c=33 o=33 kernel=3x3 pad=1x1 groups=33 za=9",
           "conv u8s8s32 in=3 c=64 o=64 kernel=2 dilation=2 groups=64 za=9",
           "conv u8s8u8 in=26x5 c=64 o=64 kernel=1x3 dilation=1x2 groups=64",
           "conv u8s8s32 in=30 c=64 o=64 kernel=2 dilation=18 groups=64 za=9",
           // More channels than a line of scratch holds; their outputs are not adjacent.
           "conv u8s8s32 in=6x6 c=1056 o=1056 kernel=3x1 groups=1056 cpad=3",
           "conv u8s8u8 in=4x4 c=1040 o=1040 kernel=3x3 pad=1x1 groups=1040 cpad=1",
           "conv u8s8u8 in=5x7 c=696 o=1392 kernel=3x3 pad=1x1 groups=696 cpad=1",
           "conv u8s8s32 in=30x30 c=1056 o=1056 kernel=3x1 pad=1x1 groups=1056",
           "conv u8s8s32 in=6x9 c=16 o=32 kernel=3x3 stride=2x2 pad=1x1 groups=16 za=255",
           "conv s8s8s32 in=5x5 c=48 o=48 kernel=5x5 pad=2x2 groups=48 za=-128",
           "conv s8u8s32 in=5x4x6 c=20 o=20 kernel=3x3x3 pad=1x1x1 groups=20 za=7 zb=3",
           "conv u8s8s32 in=5x5 c=64 o=64 kernel=3x3 pad=1x1 groups=16 za=3",
           "conv u8u8s32 in=5x5 c=64 o=32 kernel=3x3 pad=1x1 groups=8 za=3 zb=131 zbper=channel",
           "conv u8s8s32 in=4x4 c=10 o=34 kernel=2x2 groups=2 batch=2",
           "conv s8s8s32 in=4x4 c=9 o=12 kernel=1x1 groups=3 za=-9",
           "conv u8s8s32 in=9x7 c=40 o=40 kernel=1x1 stride=2x1 groups=5 za=77 batch=2",
           "conv u8s8s32 in=7x8 c=16 o=16 kernel=3x5 stride=1x2 pad=1x3:1x1 groups=4 za=77",
           "conv u8s8s32 in=7x9 c=16 o=16 kernel=3x4 stride=2x3 pad=2x4:1x6 groups=4 za=9 batch=2",
           "conv u8s8s32 in=5x6 c=8 o=16 kernel=3x4 dilation=1x2 pad=0x1:2x5 groups=2 za=255",
           "conv u8s8s32 in=4x3 c=8 o=16 kernel=1x3 pad=0x5:0x2 groups=2 za=255",
           "conv u8s8s32 in=4x23 c=32 o=32 kernel=2x2 stride=2x2 pad=0x0:1x1 groups=4 za=1",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Bands join the taps of a line (tap_joiner.h). A line of 700 pixels is joined in several pieces.
TEST_P(ConvDifferential, JoinedTaps) {
  for (const char* line : {
           "conv u8s8s32 in=4x700 c=1 o=20 kernel=1x3 dilation=1x7 pad=0x9:0x2 za=9",
           "conv s8u8u8 in=5x61 c=2 o=33 kernel=2x3 stride=1x2 dilation=3x3 pad=1x4 za=-7 zb=3 zc=5 "
           "scale=channel cpad=3 batch=2",
           "conv u8u8s32 in=3x5x19 c=1 o=16 kernel=2x2x4 dilation=1x1x5 pad=0x1x7 zb=7 za=255",
           "conv u8s8u8 in=6x9 c=1 o=70 kernel=1x7 stride=1x19 dilation=1x2 pad=0x6 za=3 open=yes",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Taps are further apart than the outputs of a band reach, so bands leave out the lines between them.
TEST_P(ConvDifferential, TapsFarApart) {
  for (const char* line : {
           "conv u8s8s32 in=9x90 c=3 o=5 kernel=3x3 dilation=1x41 pad=1x1 za=7",
           "conv s8s8u8 in=90x7 c=16 o=17 kernel=3x3 dilation=41x1 pad=2x1 za=-9 zc=3 bias=f32 scale=channel",
           "conv u8s8s32 in=70x80 c=4 o=8 kernel=2x3 stride=3x2 dilation=60x39 pad=7x9:1x0 za=255 batch=2",
           "conv u8s8s32 in=3x50x51 c=4 o=4 kernel=2x3x2 dilation=2x24x50 pad=0x3x2 groups=2 za=5",
           "conv u8s8s32 in=60x61 c=19 o=19 kernel=3x3 dilation=29x30 pad=1x2 groups=19 za=9",
           "conv u8s8s32 in=5x100 c=24 o=24 kernel=1x2 dilation=1x85 groups=3 za=77",
           "conv u8s8s32 in=9x8 c=5 o=6 kernel=3x3 dilation=50x40 pad=51x41 za=3",
           "conv s8u8s32 in=7x6 c=6 o=6 kernel=3x2 stride=2x1 dilation=20x30 transposed=yes za=3 zb=9",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Outputs are further apart than taps reach. The last quad of a line's last tap reads into the lines between
// outputs. Values there must be in the activation range, and scratch must not hold others. Ranges that are
// checked get strays.
TEST_P(ConvDifferential, OutputsFarApart) {
  for (const char* line : {
           "conv u8s8s32 in=7x15 c=5 o=58 kernel=1x3 stride=2x1 pad=0x1 za=128 zb=-128 arangemin=87 "
           "arange=128",
           "conv s8u8u8 in=12x12 c=117 o=15 kernel=1x5 stride=2x3 pad=1x4:0x4 batch=3 za=25 zbper=channel "
           "zc=128 "
           "arangemin=91 arange=153 bias=f32 scale=channel act=relu",
       }) {
    Problem problem = OnThis(line);
    problem.own_scratch = true;
    if (problem.fill != Fill::kStray) problem.range_check = INTACT_RANGE_UNCHECKED;
    ExpectItsModel(problem);
  }
}

// Groups that fill a vector of some ISA, together or alone. Neighbouring pixels of a line share the values
// that they read (Taps::shared), with all kinds of steps between pixels and between taps.
TEST_P(ConvDifferential, GroupsThatSharePixels) {
  for (const char* line : {
           "conv u8s8s32 in=6x17 c=24 o=24 kernel=3x3 pad=1x1 groups=3 za=3 batch=2",
           "conv s8s8u8 in=5x9 c=48 o=48 kernel=3x3 pad=1x2 groups=3 za=-7 zc=9 bias=f32 scale=channel",
           "conv u8s8s32 in=4x10 c=15 o=24 kernel=2x3 pad=1x1 groups=3 za=255",
           "conv u8s8s32 in=4x19 c=32 o=64 kernel=3x3 stride=1x2 pad=1x1 groups=4 za=9",
           "conv s8s8f32 in=3x29 c=30 o=48 kernel=2x5 stride=2x3 pad=0x3:1x2 groups=3 res=f32 za=1",
           "conv u8s8s32 in=5x14 c=32 o=32 kernel=2x3 dilation=2x3 pad=1x4 groups=4 za=77",
           "conv u8s8s8 in=3x15 c=64 o=64 kernel=1x4 stride=1x2 dilation=1x3 groups=4 res=u8 inplace=yes",
           "conv u8s8s32 in=3x5x7 c=16 o=16 kernel=2x3x3 pad=1x1x1 groups=2 za=7 bias=s32 batch=2",
           "conv u8s8u8 in=2x9 c=24 o=24 kernel=3x3 pad=5x2:4x3 groups=3 za=200 scale=channel act=relu",
           "conv u8s8s32 in=13 c=64 o=32 kernel=9 pad=4 groups=4 za=5",
           "conv u8s8s32 in=3x13 c=24 o=24 kernel=3x4 stride=1x2 groups=3 transposed=yes za=5",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(ConvDifferential, GroupsWithWeightZeroPoints) {
  for (const char* line : {
           "conv u8s8s32 in=6x5 c=32 o=32 kernel=3x3 pad=1x1 groups=4 za=3 zb=5 zbper=channel",
           "conv u8s8s32 in=6x5 c=24 o=36 kernel=3x3 pad=1x1 groups=6 za=3 zb=-128",
           "conv s8s8s32 in=5x6 c=12 o=20 kernel=2x3 stride=2x2 pad=1x1 groups=4 za=-100 zb=127 wmax=128",
           "conv u8u8s32 in=6x5 c=32 o=32 kernel=3x3 pad=1x1 groups=4 za=200",
           "conv s8u8s32 in=5x5 c=33 o=22 kernel=3x3 pad=1x1 groups=11 za=9 zb=255 wmax=128",
           "conv u8u8s32 in=9x4 c=50 o=70 kernel=1x1 groups=10 za=1 zb=77 zbper=channel threads=2",
           "conv u8u8u8 in=6x5 c=30 o=30 kernel=3x3 pad=1x1 groups=6 za=7 zb=128 bias=f32 res=u8 inplace=yes",
           "conv s8s8f32 in=7x4 c=16 o=32 kernel=3x3 groups=2 za=7 zb=-3 zbper=channel scale=channel res=f32",
           "conv u8s8s8 in=5x5x4 c=8 o=24 kernel=2x3x2 groups=2 za=7 zb=9 bias=s32 act=clamp arange=127",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(ConvDifferential, TypesAndEpilogues) {
  for (const char* line : {
           // Read from a band although they are 1×1.
           "conv s8s8u8 in=5x9 c=64 o=33 kernel=1x1 za=-7 zc=4",
           "conv s8u8s32 in=6x7 c=30 o=65 kernel=1x1 za=3 zb=2 open=yes batch=2 threads=2",
           // Few outputs of one group.
           "conv s8s8u8 in=9x8 c=33 o=3 kernel=3x3 pad=1x1 za=-7 zc=4",
           "conv u8u8s32 in=9x11 c=16 o=5 kernel=3x2 stride=2x1 pad=1x1 za=3 zb=2 open=yes threads=2",
           "conv u8s8s32 in=2x2 c=16 o=128 kernel=3x3 pad=1x1 za=3 open=yes",
           "conv u8s8s32 in=5x4 c=16 o=128 kernel=3x3 pad=1x1 za=3 open=yes threads=2",
           "conv s8s8s32 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 za=-5 bias=s32",
           "conv s8s8u8 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 za=127 zc=3 bias=f32 scale=channel act=relu",
           "conv u8s8u8 in=6x5 c=3 o=18 kernel=3x3 stride=2x2 pad=1x1 za=255 zc=128 bias=s32 scale=channel",
           "conv u8s8f32 in=6x5 c=19 o=18 kernel=2x2 za=9 bias=f32 scale=channel act=clamp",
           "conv u8u8s32 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 za=3 zb=255 zbper=channel wmax=128",
           "conv s8u8s8 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 za=-128 zb=9 bias=f32 scale=channel act=clamp",
           "conv u8u8u8 in=6x5 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=77 zb=131 zc=128 scale=channel",
           "conv u8s8s8 in=6x5 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=9 zc=127 bias=f32 res=s8 zres=3",
           "conv u8s8u8 in=6x5 c=19 o=18 kernel=1x1 zc=9 act=relu res=u8 zres=7 inplace=yes cpad=3",
           "conv s8s8f32 in=6x5 c=16 o=16 kernel=3x3 pad=1x1 groups=4 res=f32 respad=5",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(ConvDifferential, StridesAndThreads) {
  for (const char* line : {
           "conv u8s8s32 in=9x8 c=17 o=33 kernel=3x3 pad=1x1 apad=1 cpad=3 threads=2 batch=3",
           "conv u8s8u8 in=9x8 c=17 o=33 kernel=1x1 apad=47 cpad=1 threads=3 scale=channel",
           "conv s8s8f32 in=9x8 c=24 o=24 kernel=3x3 pad=1x1 groups=24 apad=8 cpad=7 threads=2 batch=2",
           "conv u8s8s8 in=9x8 c=16 o=24 kernel=3x3 groups=4 apad=5 cpad=8 threads=0",
           "conv s8u8s32 in=40 c=5 o=17 kernel=3 pad=2:0 zb=7 zbper=channel apad=1 cpad=1 threads=3",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(ConvDifferential, Edges) {
  for (const char* line : {
           "conv u8s8s32 in=2x2 c=5 o=6 kernel=5x5 pad=3x4 za=200",
           "conv u8s8s32 in=3x3 c=6 o=5 kernel=2x2 pad=4x5:2x3 za=7",
           "conv s8s8s32 in=5x5 c=8 o=8 kernel=3x3 stride=7x9 pad=1x1 za=7",
           "conv u8s8s32 in=4x4 c=8 o=8 kernel=3x3 dilation=5x7 pad=5x7 za=77",
           "conv u8s8s32 in=1x1 c=8 o=16 kernel=3x3 pad=1x1 groups=8 za=9 batch=2",
           "conv u8s8s32 in=7x7 c=17 o=5 kernel=7x7 za=1",
           "conv s8s8s32 in=9 c=4 o=3 kernel=2 dilation=8 za=-1",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Runs of one tile, of several lines, of tiles of two heights, and parts of runs, on CPUs where it pays to
// skip any padding (UnitConv::PaysToSkip).
TEST_P(ConvDifferential, PaddingThatIsSkipped) {
  kernels::CostTable table = kernels::Costs();
  table.layout.least_skipped = 0;
  const tests::ScopedCosts costs(table);
  for (const char* line : {
           "conv u8s8s32 in=3x3 c=6 o=5 kernel=2x2 pad=4x5:2x3 za=7",
           "conv s8s8s32 in=5x5 c=8 o=8 kernel=3x3 stride=7x9 pad=1x1 za=7",
           "conv u8s8s32 in=4x4 c=8 o=8 kernel=3x3 dilation=5x7 pad=5x7 za=77",
           "conv u8s8s32 in=8x8 c=64 o=70 kernel=3x3 pad=1x1 za=200",
           "conv u8s8s32 in=4x4 c=66 o=70 kernel=3x3 pad=1x1 za=3",
           "conv s8s8f32 in=8x8 c=64 o=70 kernel=3x3 pad=1x1 quant=dynamic_tensor x=normal",
           "conv u8s8s32 in=8x8 c=64 o=64 kernel=3x3 pad=1x1 za=200",
           "conv s8s8s8 in=8x8 c=64 o=96 kernel=3x3 pad=1x1 za=-77 zc=3 scale=channel bias=s32 threads=3",
           "conv u8s8s32 in=5x20 c=96 o=96 kernel=3x3 pad=1x1 za=3 threads=2 batch=2",
           "conv u8s8u8 in=4x4 c=64 o=80 kernel=3x3 pad=1x1 za=9 zc=7 act=relu threads=3",
           "conv u8s8s32 in=7x7 c=64 o=64 kernel=3x3 pad=0x0:1x1 za=255",
           "conv u8s8s32 in=6x6 c=64 o=64 kernel=3x3 pad=1x1:0x0 za=127 threads=5",
           "conv s8s8s32 in=9x9 c=64 o=96 kernel=5x5 stride=2x2 pad=2x2 za=7",
           "conv u8s8s32 in=8x8 c=64 o=64 kernel=3x3 pad=1x1 quant=tensor za=100 batch=2 threads=3",
           "conv u8s8u8 in=6x20 c=32 o=70 kernel=3x3 pad=1x1 za=3 zc=7 res=u8 respad=3 cpad=1 apad=4 batch=2",
           "conv u8s8s32 in=9x22 c=32 o=48 kernel=3x4 stride=2x2 dilation=2x1 pad=2x1:1x2 za=9 batch=2",
           // Staged: a line of padding only, two pixels with padding, a tail that is not left out, planes at
           // a stride, and taps that are padded to whole tiles of AMX.
           "conv u8s8s32 in=3x8 c=32 o=16 kernel=3x3 pad=4x1 za=9",
           "conv u8s8s32 in=3x12 c=32 o=16 kernel=3x5 pad=1x2 za=9",
           "conv u8s8s32 in=3x9 c=32 o=16 kernel=3x2 pad=1x1 za=9",
           "conv u8s8s32 in=3x3x8 c=32 o=16 kernel=1x3x3 stride=2x1x1 pad=0x1x1 za=9 batch=2",
           "conv u8s8s32 in=2x7 c=28 o=32 kernel=1x2 pad=0x1:0x0 za=9",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// On CPUs where cutting tiles at lines does not pay (UnitConv::PaysToSkipTaps).
TEST_P(ConvDifferential, LinesOfPaddingThatAreSkipped) {
  kernels::CostTable table = kernels::Costs();
  table.layout.least_skipped = int64_t{1} << 40;
  const tests::ScopedCosts costs(table);
  for (const char* line : {
           "conv u8s8s32 in=8x9 c=64 o=70 kernel=3x3 pad=1x1 za=200 batch=2 threads=2",
           "conv s8s8u8 in=5x30 c=64 o=96 kernel=5x3 pad=2x1 za=-77 zc=3 res=s8",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

// Phases of every kind of plan, with unequal taps, cropped, and without taps.
TEST_P(ConvDifferential, Transposed) {
  for (const char* line : {
           "conv u8s8s32 in=4x5 c=9 o=17 kernel=4x4 stride=2x2 pad=1x1 za=200",
           "conv s8s8u8 in=3x4 c=6 o=18 kernel=3x3 stride=2x2 pad=1x1 transposed=yes outpad=1x1 za=-7 zc=128 "
           "scale=channel bias=f32 act=relu batch=2",
           "conv u8u8s32 in=5 c=5 o=7 kernel=5 stride=3 dilation=2 pad=4:1 za=255 zb=77 zbper=channel "
           "bias=s32",
           "conv u8s8u8 in=3x3 c=16 o=16 kernel=2x3 stride=2x2 groups=16 zc=1 res=s8 zres=3 inplace=yes "
           "cpad=3",
           "conv u8s8f32 in=3x4 c=8 o=12 kernel=3x2 stride=2x3 groups=2 res=f32 respad=5 threads=2 za=129",
           "conv s8s8s32 in=2x3x2 c=4 o=6 kernel=2x3x3 stride=2x1x2 pad=0x1x2:1x0x0 groups=2 za=127 apad=3",
           "conv s8u8s8 in=6 c=17 o=33 kernel=4 stride=4 scale=channel bias=s32 act=clamp zb=3 za=9 batch=2",
           "conv u8s8s32 in=2x2 c=12 o=5 kernel=1x1 stride=3x2 transposed=yes outpad=2x0 za=131 bias=s32",
           "conv u8u8s8 in=2x13 c=8 o=18 kernel=2x3 stride=2x2 groups=2 zb=9 res=u8 respad=3 apad=1",
           "conv s8s8f32 in=2x15 c=3 o=50 kernel=3x3 stride=1x2 pad=0x1 za=3 res=f32 inplace=yes threads=3",
       }) {
    const bool says_so = std::string_view(line).find("transposed") != std::string_view::npos;
    ExpectItsModel(OnThis(std::string(line) + (says_so ? "" : " transposed=yes")));
  }
}

// The zero point and the scale of the input come from the run, or are computed there: each way to read the
// input, each kind of kernel, padding that is skipped and padding that clamps.
TEST_P(ConvDifferential, QuantizationsOfTheInput) {
  for (const char* line : {
           "conv u8u8f32 in=8x8 c=3 o=4 kernel=3x3 pad=1x1 quant=dynamic_tensor x=normal zb=142",
           "conv u8s8f32 in=7x7 c=33 o=33 kernel=3x3 pad=1x1 groups=33 quant=dynamic_tensor x=normal batch=2",
           "conv u8s8u8 in=6x20 c=24 o=24 kernel=3x3 pad=1x1 groups=24 quant=tensor za=77 zc=3 scale=channel",
           "conv s8s8f32 in=6x5 c=48 o=96 kernel=5x5 pad=2x2 groups=48 quant=tensor za=-100",
           "conv s8u8bf16 in=6x9 c=20 o=20 kernel=3x3 groups=20 quant=dynamic_tensor src=bf16 zb=9 "
           "zbper=channel",
           "conv u8s8f16 in=6x7 c=64 o=64 kernel=3x3 pad=1x1 groups=16 quant=dynamic_tensor x=outlier",
           "conv u8s8s32 in=6x5 c=32 o=32 kernel=3x3 pad=1x1 groups=8 quant=tensor za=200",
           "conv u8u8s32 in=6x5 c=24 o=36 kernel=3x3 pad=1x1 groups=6 quant=tensor za=3 zb=131 zbper=channel",
           "conv s8s8s32 in=9x8 c=33 o=17 kernel=1x1 quant=tensor za=-77 batch=2 threads=2",
           "conv u8s8f32 in=9x7 c=64 o=48 kernel=1x1 stride=2x2 quant=dynamic_tensor src=f16 apad=3",
           "conv u8s8u8 in=17x17 c=3 o=16 kernel=7x7 stride=2x2 pad=3x3 quant=tensor za=128 zc=7 bias=f32 "
           "act=relu",
           "conv u8s8f32 in=6x17 c=24 o=24 kernel=3x3 pad=1x1 groups=3 quant=tensor za=3 batch=2",
           "conv u8s8s32 in=7x7 c=16 o=24 kernel=3x3 pad=1x1 quant=tensor za=255 arange=255 bias=s32",
           "conv s8s8f32 in=3x3 c=8 o=16 kernel=3x3 pad=3x3 quant=dynamic_tensor x=normal scale=channel",
           "conv s8s8f32 in=4x5x6 c=8 o=16 kernel=3x3x3 pad=1x1x1 quant=dynamic_tensor open=yes batch=2 "
           "scratch=yes",
           "conv u8s8f32 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 quant=dynamic_tensor res=f32 inplace=yes "
           "saved=yes",
           "conv u8s8u8 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 quant=dynamic_tensor x=halves table=yes zc=9",
           "conv u8s8s32 in=9x9 c=32 o=32 kernel=3x3 pad=1x1 quant=tensor za=100 arange=127 arangemin=50",
           "conv s8u8f32 in=9 c=4 o=3 kernel=4 stride=2 pad=3:1 quant=tensor za=7 zb=3 open=yes threads=3",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

TEST_P(ConvDifferential, QuantizationsOfTransposed) {
  for (const char* line : {
           "conv u8s8s32 in=4x5 c=9 o=17 kernel=4x4 stride=2x2 pad=1x1 quant=tensor za=200",
           "conv s8s8f32 in=5x4 c=16 o=16 kernel=1x1 stride=2x2 quant=tensor za=-3 bias=s32",
           "conv u8u8f32 in=2x2 c=12 o=5 kernel=1x1 stride=3x2 outpad=2x0 quant=dynamic_tensor bias=f32",
           "conv u8s8u8 in=3x4 c=6 o=18 kernel=3x3 stride=2x2 pad=1x1 quant=dynamic_tensor zc=128 batch=2",
           "conv s8s8bf16 in=3x9 c=16 o=16 kernel=2x3 stride=2x2 groups=16 quant=dynamic_tensor x=normal",
           "conv u8s8s32 in=3x4 c=8 o=12 kernel=3x2 stride=2x3 groups=2 quant=tensor za=255 threads=2 "
           "open=yes",
       }) {
    ExpectItsModel(OnThis(std::string(line) + " transposed=yes"));
  }
}

// Without a scale, all outputs are NaNs, or the outputs of −∞.
TEST_P(ConvDifferential, InputsWithoutAScale) {
  for (const char* line : {
           "conv u8s8f32 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 act=relu bias=f32",
           "conv s8s8u8 in=6x5 c=18 o=18 kernel=3x3 pad=1x1 groups=18 zc=9",
           "conv u8s8bf16 in=6x5 c=18 o=18 kernel=3x3 pad=1x1 groups=18 src=bf16",
           "conv u8s8s8 in=6x5 c=16 o=16 kernel=3x3 pad=1x1 groups=4 act=clamp",
           "conv u8u8f16 in=6x5 c=16 o=20 kernel=1x1 src=f16 threads=2",
           "conv u8s8f32 in=4x5 c=9 o=17 kernel=1x2 stride=2x2 transposed=yes res=f32",
       }) {
    ExpectItsModel(OnThis(std::string(line) + " quant=dynamic_tensor x=nonfinite"));
  }
}

TEST_P(ConvDifferential, HalfFloatOutputs) {
  for (const char* line : {
           "conv u8s8bf16 in=6x5 c=19 o=18 kernel=3x3 pad=1x1 za=77 bias=f32 scale=channel cpad=3",
           "conv s8s8f16 in=6x5 c=18 o=18 kernel=3x3 pad=1x1 groups=18 za=-7 act=relu bias=f32",
           "conv u8u8bf16 in=6x9 c=33 o=33 kernel=3x3 pad=1x1 groups=33 za=3 zb=131 cpad=1 threads=2",
           "conv u8s8f16 in=6x7 c=64 o=64 kernel=3x3 pad=1x1 groups=16 za=9 res=u8 zres=3",
           "conv u8s8bf16 in=9x8 c=33 o=17 kernel=1x1 za=9 res=f32 act=clamp batch=2",
           "conv s8u8f16 in=3x4 c=9 o=17 kernel=4x4 stride=2x2 pad=1x1 za=3 zb=9 transposed=yes bias=s32",
           "conv u8s8bf16 in=3x4 c=16 o=16 kernel=2x3 stride=3x2 groups=16 transposed=yes res=s8 za=9 cpad=5",
           "conv u8s8f16 in=6x17 c=24 o=24 kernel=3x3 pad=1x1 groups=3 za=3 batch=2 scale=tiny",
       }) {
    ExpectItsModel(OnThis(line));
  }
}

INTACT_INSTANTIATE_ON_EVERY_ISA(ConvDifferential);

// ----- the same bytes --------------------------------------------------------------------------------------

constexpr const char* kSplitLines[] = {
    "conv u8s8s32 in=11x13 c=20 o=33 kernel=3x3 pad=1x1 za=9 batch=5",
    "conv s8s8u8 in=9x9 c=40 o=40 kernel=3x3 stride=2x2 pad=1x1 groups=40 za=-3 zc=128 bias=f32 batch=4",
    "conv u8s8f32 in=8x8 c=32 o=64 kernel=1x1 za=9 scale=channel batch=3",
    "conv u8u8s32 in=10x7 c=48 o=24 kernel=3x3 pad=1x1 groups=12 za=9 zb=77 batch=3",
    "conv u8s8s32 in=7x17 c=24 o=24 kernel=3x3 pad=1x1 groups=3 za=9 batch=3",
    "conv s8s8u8 in=6x23 c=80 o=80 kernel=3x3 pad=1x1 groups=5 za=9 scale=channel batch=3",
    "conv u8s8u8 in=15x15 c=3 o=20 kernel=7x7 stride=2x2 pad=3x3 za=100 zc=1 batch=3",
    "conv u8s8u8 in=5x13 c=20 o=33 kernel=4x4 stride=2x2 pad=1x1 transposed=yes za=9 zc=3 batch=3",
    "conv s8s8s32 in=9x9 c=24 o=24 kernel=3x2 stride=2x3 groups=24 transposed=yes za=-3 bias=s32 batch=4",
    "conv u8s8f32 in=31 c=16 o=20 kernel=8 stride=4 pad=2 transposed=yes za=9 scale=channel batch=3",
    "conv u8s8u8 in=5x4 c=8 o=9 kernel=5x5 stride=5x5 pad=1x1 transposed=yes za=9 zc=3 batch=2",  // 25 phases
    "conv u8s8f32 in=11x13 c=20 o=33 kernel=3x3 pad=1x1 quant=tensor za=9 scale=channel batch=4",
    "conv s8s8bf16 in=9x9 c=40 o=40 kernel=3x3 stride=2x2 pad=1x1 groups=40 quant=tensor za=-3 batch=3",
    "conv u8s8f16 in=5x13 c=20 o=33 kernel=2x4 stride=3x2 pad=0x1 transposed=yes quant=tensor za=9 batch=3",
};

// Over the lines of all images.
constexpr const char* kWholeLines[] = {
    "conv u8s8f32 in=11x13 c=20 o=33 kernel=3x3 pad=1x1 quant=dynamic_tensor x=normal scale=channel batch=4",
    "conv u8u8f32 in=9x14x7 c=5 o=9 kernel=3x2x3 stride=2x1x2 pad=1x0x1 quant=dynamic_tensor x=outlier "
    "batch=3",
    "conv s8s8u8 in=9x9 c=40 o=40 kernel=3x3 dilation=2x1 pad=1x1 groups=40 quant=dynamic_tensor zc=9 "
    "batch=3",
    "conv u8s8bf16 in=15x6 c=16 o=32 kernel=1x1 stride=2x1 quant=dynamic_tensor src=bf16 apad=3 batch=2",
    "conv u8s8f32 in=9x13 c=20 o=33 kernel=2x4 stride=3x2 pad=3x1 transposed=yes quant=dynamic_tensor "
    "batch=3",
    "conv u8s8f32 in=31x5 c=64 o=64 kernel=5x3 pad=9x1 groups=16 quant=dynamic_tensor x=normal",
};

std::vector<const char*> AllLines() {
  std::vector<const char*> lines(std::begin(kSplitLines), std::end(kSplitLines));
  lines.insert(lines.end(), std::begin(kWholeLines), std::end(kWholeLines));
  return lines;
}

/// Every available ISA and its outputs for `conv`.
std::map<intact_isa, std::vector<uint8_t>> OutputsOnEveryIsa(const Conv& conv, RunOptions options) {
  std::map<intact_isa, std::vector<uint8_t>> outputs;
  for (const intact_isa isa : core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;  // ConvDifferential reports it
    // Emulation would take minutes more, nearly all for an instruction that other ISAs cover.
    if (tests::EmulatedIsas::HasAllSigns(isa)) continue;
    options.isa = isa;
    Result<std::vector<uint8_t>> output = IntactTarget().Run(conv, options);
    EXPECT_TRUE(output) << intact_isa_name(isa) << ": " << output.error().message;
    if (output) outputs[isa] = *output;
  }
  return outputs;
}

TEST(ConvBytes, AreTheSameOnEveryIsaAndForEveryNumberOfThreads) {
  for (const char* line : AllLines()) {
    const Conv conv = MaterializeConv(tests::Parsed(line));
    const std::vector<uint8_t> expected = reference::Outputs(conv, reference::Convolve(conv));
    for (const int32_t threads : {1, 2, 3, 7}) {
      RunOptions options;
      options.threads = threads;
      for (const auto& [isa, output] : OutputsOnEveryIsa(conv, options)) {
        EXPECT_EQ(output, expected) << line << " on " << intact_isa_name(isa) << ", " << threads;
      }
    }
  }
}

TEST(ConvBytes, AreTheSameImageByImage) {
  for (const char* line : kSplitLines) {
    const Conv batch = MaterializeConv(tests::Parsed(line));
    const auto whole = OutputsOnEveryIsa(batch, {});
    std::map<intact_isa, std::vector<uint8_t>> joined;
    Conv image = batch;
    image.geometry.batch = 1;
    const auto image_bytes = std::ssize(batch.a) / batch.geometry.batch;
    for (int64_t i = 0; i < batch.geometry.batch; ++i) {
      const auto begin = batch.a.begin() + i * image_bytes;
      image.a.assign(begin, begin + image_bytes);
      for (const auto& [isa, output] : OutputsOnEveryIsa(image, {})) {
        joined[isa].insert(joined[isa].end(), output.begin(), output.end());
      }
    }
    EXPECT_EQ(joined, whole) << line;
  }
}

TEST(ConvBytes, AreTheSameInParts) {
  for (const char* line : AllLines()) {
    const Conv conv = MaterializeConv(tests::Parsed(line));
    for (const auto& [isa, expected] : OutputsOnEveryIsa(conv, {})) {
      RunOptions options;
      options.isa = isa;
      const Result<intact::Conv> plan = CreatePlan(conv, options);
      ASSERT_TRUE(plan) << plan.error().message;
      for (const int parts : {1, 2, 5, 64}) {
        const Result<std::vector<uint8_t>> output =
            RunGuarded(conv, options, [&, parts](const intact_conv_args& args) {
              for (int part = parts - 1; part >= 0; --part) {
                const Error error = plan->RunPart(args, part, parts);
                if (!error.ok()) return error;
              }
              return Error{};
            });
        ASSERT_TRUE(output) << output.error().message;
        EXPECT_EQ(*output, expected) << line << " on " << intact_isa_name(isa) << ", " << parts << " parts";
      }
    }
  }
}

// The ConvInteger of a published model after DynamicQuantizeLinear: the first channels of its first layer,
// with recorded sums. tests/data/conv_integer_dynamic, channels last.
TEST(ConvBytes, AreThoseOfARecordedConvInteger) {
  const auto read = [](const char* name) {
    const auto tensor = support::ReadNpy(std::string(INTACT_TEST_DATA "/conv_integer_dynamic/") + name);
    EXPECT_TRUE(tensor) << tensor.error().message;
    return tensor ? *tensor : support::NpyArray();
  };
  const support::NpyArray y = read("y.npy");
  const std::vector<int32_t> sums = y.Values<int32_t>();
  Conv conv;
  conv.geometry.input_channels = 3;
  conv.geometry.output_channels = 4;
  conv.geometry.axes[1] = conv.geometry.axes[2] = {8, 3, 1, 1, 1, 1};
  conv.b_type = INTACT_U8;
  conv.b_zero_points = {142};
  for (const uint8_t weight : read("weights.npy").bytes) conv.b.push_back(static_cast<int8_t>(weight));
  conv.c_type = INTACT_F32;
  conv.scales = {1.0f};
  conv.a_quantization = INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  conv.a_source_type = INTACT_F32;
  conv.a_source = read("x.npy").bytes;
  reference::QuantizeActivations(&conv);
  EXPECT_EQ(conv.a_zero_points, std::vector<int32_t>{139});
  std::vector<float> expected;
  for (const int32_t sum : sums) expected.push_back(static_cast<float>(sum) * conv.a_scales.front());
  for (const auto& [isa, output] : OutputsOnEveryIsa(conv, {})) {
    ASSERT_EQ(output.size(), expected.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(output.data(), expected.data(), output.size()), 0) << intact_isa_name(isa);
  }
  // The quantized input, with its zero point given by the run.
  conv.c_type = INTACT_S32;
  conv.scales.clear();
  conv.a_scales.clear();
  conv.a_quantization = INTACT_QUANTIZATION_TENSOR;
  conv.a_source_type = INTACT_TYPE_NONE;
  for (const auto& [isa, output] : OutputsOnEveryIsa(conv, {})) {
    EXPECT_EQ(output, y.bytes) << intact_isa_name(isa);
  }
}

// ----- layers of PyTorch -----------------------------------------------------------------------------------

class ConvLayer : public ::testing::TestWithParam<std::tuple<const char*, intact_isa>> {
 protected:
  void SetUp() override {
    const auto& [name, isa] = GetParam();
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
    // Emulating a layer takes half a minute. Activations are u8, for which ISAs with dot products of all
    // signs use another ISA's instruction. Two layers show that it is chosen correctly.
    const bool is_extra = std::string_view(name) != "u8_0_0" && std::string_view(name) != "u7_6_0";
    if (tests::EmulatedIsas::HasAllSigns(isa) && is_extra) {
      GTEST_SKIP() << intact_isa_name(isa) << " is emulated";
    }
    if (tests::kSanitized && isa != INTACT_ISA_AVX2 && is_extra) GTEST_SKIP() << "sanitizers see two layers";
    Result<Layer> layer = ReadLayer(std::string(INTACT_TEST_DATA "/torch-layers/") + name);
    ASSERT_TRUE(layer) << layer.error().message;
    layer_ = *layer;
  }

  LayerCheck Checked(intact_mode mode, const std::string& expected_file) const {
    const auto expected = ReadExpected(layer_, expected_file);
    EXPECT_TRUE(expected) << expected.error().message;
    const Result<LayerCheck> check =
        CheckLayer(layer_, mode, std::get<1>(GetParam()), Expectation{expected_file, *expected});
    EXPECT_TRUE(check) << check.error().message;
    return check ? *check : LayerCheck();
  }

  Layer layer_;
};

// Float ties may be rounded differently, on at most 0.01 % of outputs and by 1. Today there is none.
TEST_P(ConvLayer, ExactEqualsPyTorch) {
  const LayerCheck check = Checked(INTACT_EXACT, "output_onednn.npy");
  ASSERT_GT(check.against_exact.outputs, 0);
  EXPECT_TRUE(check.against_exact.Parity());
  EXPECT_EQ(check.against_expected->differing, 0);
  EXPECT_TRUE(check.Passed());
}

// On ISAs that do not saturate, the saturating mode is exact.
TEST_P(ConvLayer, SaturatingEqualsPyTorchHeldToAvx2) {
  const intact_isa isa = std::get<1>(GetParam());
  const LayerCheck check =
      Checked(INTACT_SATURATING, core::SaturatesInt16(isa) ? "output_avx2.npy" : "output_onednn.npy");
  EXPECT_EQ(check.against_expected->differing, 0);
  EXPECT_EQ(check.against_model->differing, 0);
  const Comparison& exact = check.against_exact;
  EXPECT_EQ(exact.by_cause[static_cast<size_t>(Cause::kInt16Saturation)], exact.differing);
  EXPECT_EQ(std::ssize(exact.listed), exact.differing);
  for (const Difference& difference : exact.listed) ASSERT_FALSE(difference.pairs.empty());
  const bool clamps = core::SaturatesInt16(isa) && std::string(std::get<0>(GetParam())) == "u8_0_0";
  EXPECT_EQ(exact.differing, clamps ? 1599 : 0);
}

constexpr const char* kLayers[] = {"u8_0_0", "u8_1_0", "u8_2_0", "u8_3_0", "u8_4_0", "u8_5_0", "u8_6_0",
                                   "u7_0_0", "u7_1_0", "u7_2_0", "u7_3_0", "u7_4_0", "u7_5_0", "u7_6_0"};

std::string NameOf(const ::testing::TestParamInfo<ConvLayer::ParamType>& test) {
  return std::string(std::get<0>(test.param)) + "_" + intact_isa_name(std::get<1>(test.param));
}

INSTANTIATE_TEST_SUITE_P(PyTorch, ConvLayer,
                         ::testing::ValuesIn(tests::SomePairs(kLayers, core::kIsaLadder, 3)), NameOf);
INSTANTIATE_TEST_SUITE_P(PyTorchClamps, ConvLayer,
                         ::testing::Combine(::testing::Values("u8_0_0"),
                                            ::testing::Values(INTACT_ISA_AVX2, INTACT_ISA_AVX512)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(LongPyTorch, ConvLayer,
                         ::testing::Combine(::testing::ValuesIn(kLayers),
                                            ::testing::ValuesIn(core::kIsaLadder)),
                         NameOf);

}  // namespace
}  // namespace intact::verify

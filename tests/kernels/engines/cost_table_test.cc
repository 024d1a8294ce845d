// Tables of the cost models: which CPU uses which table, their text, and that bytes do not depend on them.
#include "kernels/engines/cost_table.h"

#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/api/create.h"
#include "kernels/runtime/caches.h"
#include "tests/support/expect_model.h"
#include "tests/support/scoped_costs.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::kernels {
namespace {

using core::Isa;
using jit::CpuKind;

constexpr core::IsaSet kAvx2 = {Isa::kPortable, Isa::kAvx2};
constexpr core::IsaSet kClient = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni};
constexpr core::IsaSet kServer = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};
constexpr core::IsaSet kTiles = kServer | core::IsaSet{Isa::kAvxVnni, Isa::kAmxInt8};

TEST(CostTable, ACpuThatWasMeasuredUsesItsTable) {
  for (const CpuCosts& table : CpuTables()) {
    if (table.first_model > table.last_model) continue;
    const CpuKind cpu = {std::string(table.vendor), table.family, table.last_model};
    EXPECT_EQ(CostsFor(cpu, kTiles).name, table.name);
    EXPECT_TRUE(CostsFor(cpu, kTiles).IsOf(cpu));
  }
}

TEST(CostTable, AnUnknownCpuUsesTheNearestTable) {
  constexpr uint32_t kMadeUp = 99;
  const auto name = [](const char* vendor, core::IsaSet isas) {
    const CpuKind cpu = {vendor, kMadeUp, 1};
    EXPECT_FALSE(CostsFor(cpu, isas).IsOf(cpu));
    return std::string(CostsFor(cpu, isas).name);
  };
  EXPECT_EQ(name("AMD", kAvx2), "Zen 3");
  EXPECT_EQ(name("AMD", kServer), "Zen 5");
  EXPECT_EQ(name("AMD", kTiles), "Zen 5");  // the vendor's ports come before ISAs
  EXPECT_EQ(name("INTEL", kAvx2), "Intel without AVX-512");
  EXPECT_EQ(name("INTEL", kClient), "Intel Xeon with AMX");  // the other table measured no VNNI
  EXPECT_EQ(name("INTEL", kServer), "Intel Xeon with AMX");
  EXPECT_EQ(name("INTEL", kTiles), "Intel Xeon with AMX");
  EXPECT_EQ(name("made up", kServer), "Zen 5");
  constexpr uint32_t kZen4Server = 0x11, kZen4Desktop = 0x61;
  for (const uint32_t model : {kZen4Server, kZen4Desktop}) {
    EXPECT_EQ(CostsFor({"AMD", 25, model}, kServer).name, "Zen 5");
  }
  const CpuKind another_model = {"INTEL", 6, 166};
  EXPECT_FALSE(CostsFor(another_model, kTiles).IsOf(another_model));
}

TEST(CostTable, TheListNamesEachConstantOnce) {
  CostTable table;
  std::set<std::string> names;
  std::set<const void*> places;
  size_t bytes = 0;
  ForEachCost(table, [&](const std::string& name, const char* unit, auto& value) {
    EXPECT_NE(std::string(unit), "") << name;
    names.insert(name);
    places.insert(&value);
    bytes += sizeof(value);
  });
  EXPECT_EQ(bytes, sizeof(CostTable));
  EXPECT_EQ(names.size(), places.size());
  EXPECT_EQ(names.size() * sizeof(double), bytes);
}

// A table that lacks a line has the constant 0. All results are right with it, but kernels wait for memory.
TEST(CostTable, EachTableFetchesWeights) {
  for (const CpuCosts& table : CpuTables()) {
    const LayoutLimits& layout = table.costs.layout;
    EXPECT_GT(layout.fetching_rows, 0) << table.name;
    EXPECT_GT(layout.panel_ahead, 0) << table.name;
    EXPECT_GT(layout.strip_ahead, 0) << table.name;
  }
}

TEST(CostTable, TextIsReadBackAsTheSameTable) {
  std::minstd_rand random;
  CostTable table = Costs();
  ForEachCost(table, [&](const std::string&, const char*, auto& value) {
    value += static_cast<std::remove_reference_t<decltype(value)>>(static_cast<double>(random()) * 1e-7);
  });
  const Result<CostTable> read = ParseCostTable("// A comment.\n\n" + ToText(table));
  ASSERT_TRUE(read) << read.error().message;
  std::vector<double> written, found;
  ForEachCost(table,
              [&](const auto&, const char*, auto& value) { written.push_back(static_cast<double>(value)); });
  ForEachCost(*read,
              [&](const auto&, const char*, auto& value) { found.push_back(static_cast<double>(value)); });
  EXPECT_EQ(written, found);
}

TEST(CostTable, AWrongTextIsRefused) {
  const std::string text = ToText(Costs());
  const auto error = [](const std::string& wrong) {
    const Result<CostTable> table = ParseCostTable(wrong);
    return table ? std::string("none") : table.error().message;
  };
  const auto replaced = [&](const std::string& line) { return text.substr(text.find('\n') + 1) + line; };
  EXPECT_EQ(error(text), "none");
  EXPECT_EQ(error(replaced("")),
            "table.ymm.half_cycles_maddubs is missing; expected its value in half cycles");
  EXPECT_EQ(error(replaced("table.ymm.half_cycles_maddubs = fast;")),
            "table.ymm.half_cycles_maddubs is fast; expected a number from 0 to 1e9");
  EXPECT_EQ(error(replaced("table.ymm.half_cycles_maddubs = -1;")),
            "table.ymm.half_cycles_maddubs is -1; expected a number from 0 to 1e9");
  EXPECT_EQ(error(text + "table.made_up = 1;"), "table.made_up is unknown");
  EXPECT_EQ(error("table.made_up = 1;\ntable.made_up = 1;"), "line 2: table.made_up is given twice");
  EXPECT_EQ(error("made_up"), "line 1: is \"made_up\"; expected table.NAME = VALUE;");
}

// ----- bytes -----------------------------------------------------------------------------------------------

/// Tables of the tree, and tables whose costs are up to 16 times as large or as small.
std::vector<CostTable> Tables() {
  std::vector<CostTable> tables;
  for (const CpuCosts& of_cpu : CpuTables()) tables.push_back(of_cpu.costs);
  std::minstd_rand random(1);
  for (int i = 0; i < 6; ++i) {
    CostTable& table = tables.emplace_back(CpuTables().front().costs);
    ForEachCost(table, [&](const std::string&, const char*, auto& value) {
      if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, double>) {
        value = (value + 0.1) * std::exp2(static_cast<double>(random() / 7 % 9) - 4);
      }
    });
  }
  return tables;
}

std::string KernelOf(const verify::Problem& problem) {
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  const GemmDesc desc = verify::DescOf(gemm, verify::RunOptionsOf(problem));
  const auto plan = MakePlan(desc, desc.linear, gemm.b.data());
  return plan ? (*plan)->KernelNameFor(problem.m) : plan.error().message;
}

TEST(CostTable, BytesDoNotDependOnTheTable) {
  const std::vector<CostTable> tables = Tables();
  size_t choices = 0, gemms = 0;
  for (const Isa isa : core::kAllIsas) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    for (const char* line :
         {"gemm u8s8s32 m=2 n=80 k=200", "gemm u8s8u8 m=12 n=64 k=100", "gemm s8s8f32 m=33 n=40 k=64",
          "gemm u8s8s32 m=70 n=24 k=300", "gemm u8s8s32 m=3 n=70 k=90 batch=1 runtimeb=yes",
          "conv u8s8u8 in=9x9 c=8 o=16 kernel=3x3 pad=1x1", "conv u8s8u8 in=14x14 c=32 o=32 kernel=1x1",
          "conv u8s8u8 in=8x8 c=32 o=32 kernel=3x3 groups=8"}) {
      verify::Problem problem = tests::Parsed(line);
      problem.isa = static_cast<intact_isa>(isa);
      std::set<std::string> kernels;
      for (const CostTable& table : tables) {
        const tests::ScopedCosts scope(table);
        ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
        if (!problem.conv && !problem.runtime_b) kernels.insert(KernelOf(problem));
      }
      choices += kernels.size();
      gemms += kernels.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(choices, gemms + 8) << "hardly any table chooses another kernel";
}

// Some CPUs' tables have row kernels multiply one row.
TEST(CostTable, RowKernelsAreExact) {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx10_2}) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    for (const int64_t ahead : {0, 512}) {
      CostTable table = Costs();
      table.layout.row_ahead = ahead;
      const tests::ScopedCosts scope(table);
      for (const char* line : {"gemm s8s8s32 m=1 n=250 k=1 za=3 wmax=128 usual=1",
                               "gemm u8s8u8 m=1 n=200 k=1 zc=3 scale=channel usual=1",
                               "gemm s8s8s8 m=1 n=170 k=1 bias=s32 zc=-9 scale=channel fixed=away usual=1",
                               "gemm u8s8f32 m=1 n=129 k=1 zb=4 za=7 bias=f32 usual=1",
                               "gemm s8s8u8 m=1 n=153 k=1 zb=9 zbper=channel res=s8 zres=3 usual=1",
                               "gemm s8s8f16 m=1 n=200 k=1 quant=dynamic_rows x=normal usual=1",
                               "gemm u8s8f32 m=1 n=231 k=1 quant=dynamic_rows x=normal usual=1"}) {
        for (const int64_t k : {1, 4, 12, 15, 16, 20, 64, 300}) {
          verify::Problem problem = tests::Parsed(line);
          problem.isa = static_cast<intact_isa>(isa);
          problem.k = k;
          ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
          EXPECT_EQ(KernelOf(problem).find("_row_") != std::string::npos, ahead != 0)
              << KernelOf(problem) << problem.ToString();
        }
      }
      // A convolution of one output, and threads with one row each.
      for (const char* line :
           {"conv u8s8u8 in=3x3 c=20 o=100 kernel=3x3 za=7", "conv s8s8s32 in=3x4 c=16 o=130 kernel=3x4",
            "gemm s8s8u8 m=4 n=24 k=20000 threads=4"}) {
        verify::Problem problem = tests::Parsed(line);
        problem.isa = static_cast<intact_isa>(isa);
        ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
      }
    }
  }
}

// Some CPUs' tables have two rows share the last vector of columns. The tables vary which rows are computed together:
// parts of a tile, and tiles at the ends of lines, where rows leave padding out.
TEST(CostTable, RowsThatShareAVectorAreExact) {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx10_2}) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    for (const int64_t waiting_vectors : {0, 100}) {
      CostTable table = Costs();
      table.layout.shared_columns = 8;
      table.layout.most_waiting_vectors = waiting_vectors;
      table.layout.least_skipped = 0;
      const tests::ScopedCosts scope(table);
      for (const char* line : {"gemm s8s8s32 m=50 n=24 k=61 za=3 bias=s32", "gemm u8s8s32 m=13 n=33 k=100",
                               "gemm u8s8u8 m=11 n=20 k=64 scale=channel bias=f32 res=f32 zb=3",
                               "conv u8s8s32 in=4x9 c=32 o=24 kernel=3x3 pad=1x1 za=7",
                               "conv s8s8u8 in=5x12 c=20 o=40 kernel=3x5 pad=1x2 za=7 scale=channel"}) {
        verify::Problem problem = tests::Parsed(line);
        problem.isa = static_cast<intact_isa>(isa);
        ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
      }
    }
  }
}

// Packing the taps of a row costs time, so schedules are chosen less often the more it costs.
TEST(CostTable, SchedulesPayForTheTapsTheyPack) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    verify::Problem problem = tests::Parsed("conv u8s8u8 in=30x30 c=3 o=64 kernel=3x3 pad=1x1 fill=laplace");
    problem.isa = static_cast<intact_isa>(isa);
    for (const double cost : {0, 100}) {
      CostTable table = Costs();
      table.layout.packed_tap = cost;
      const tests::ScopedCosts scope(table);
      const auto plan = verify::CreatePlan(verify::MaterializeConv(problem), verify::RunOptionsOf(problem));
      ASSERT_TRUE(plan) << plan.error().message;
      const std::string kernel = plan->Info().kernel;
      EXPECT_EQ(kernel.find("u8s8_scheduled_") != std::string::npos, cost == 0) << kernel;
      ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
    }
  }
}

// Some tables have kernels of few depths store C to the caches. All bytes are the same.
TEST(CostTable, StoresAreExact) {
  const CacheSizes caches = Caches();
  SetCachesForTesting({2 << 10, 8 << 10});
  for (const int64_t quads : {0, 100}) {
    CostTable table = Costs();
    table.layout.streaming_panel_quads = table.layout.streaming_row_quads = quads;
    const tests::ScopedCosts scope(table);
    for (const char* line : {"gemm u8s8s32 m=70 n=128 k=20", "gemm u8s8f32 m=200 n=256 k=64 fill=laplace"}) {
      verify::Problem problem = tests::Parsed(line);
      problem.isa = INTACT_ISA_AVX512;
      if (intact_isa_available(INTACT_ISA_AVX512) != 0) tests::ExpectItsModel(problem);
    }
  }
  SetCachesForTesting(caches);
}

// Some CPUs' tables have kernels multiply the rows of a tile in two parts.
TEST(CostTable, KernelsInPartsAreExact) {
  CostTable table = Costs();
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx10_2}) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    for (const int64_t most : {0, 16, 32}) {
      table.layout.most_waiting_vectors = most;
      const tests::ScopedCosts scope(table);
      for (const int64_t k : {1, 4, 12, 16, 20, 63, 64, 100}) {
        verify::Problem problem = tests::Parsed("gemm s8s8s32 m=61 n=112 k=1 za=3 wmax=128");
        problem.isa = static_cast<intact_isa>(isa);
        problem.k = k;
        const bool has_parts = KernelOf(problem).find("_parts_") != std::string::npos;
        EXPECT_EQ(has_parts, most < 32) << KernelOf(problem);
        ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(problem));
      }
      verify::Problem conv = tests::Parsed("conv u8s8s32 in=9x30 c=64 o=48 kernel=3x3 pad=1x1");
      conv.isa = static_cast<intact_isa>(isa);
      ASSERT_NO_FATAL_FAILURE(tests::ExpectItsModel(conv));
    }
  }
}

}  // namespace
}  // namespace intact::kernels

// Replays the fuzzers' corpora: without findings, and with findings if outputs are tampered with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <intact/grouped.hpp>
#include <intact/intact.hpp>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/pack_format.h"
#include "fuzz/scratch.h"
#include "support/npy.h"
#include "support/random.h"
#include "verify/problem/problem.h"
#include "verify/problem/random_problem.h"
#include "verify/report/sweep_file.h"
#include "verify/targets/intact_target.h"

namespace intact::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

struct Entry {
  std::string name;
  Bytes bytes;
};

std::vector<Entry> Corpus(const std::string& name) {
  std::vector<Entry> entries;
  for (const auto& file : std::filesystem::directory_iterator(INTACT_FUZZ_CORPUS "/" + name)) {
    std::ifstream stream(file.path(), std::ios::binary);
    entries.push_back(
        {file.path().filename(), {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()}});
  }
  std::ranges::sort(entries, {}, &Entry::name);
  EXPECT_GT(entries.size(), 20u) << name;
  return entries;
}

// Inverts a bit of the last byte.
void FlipLast(Bytes* output) { output->back() ^= 1; }

template <class Check>
int64_t Findings(const std::string& name, const Check& check) {
  int64_t findings = 0;
  for (const Entry& entry : Corpus(name)) findings += check(entry.bytes).empty() ? 0 : 1;
  return findings;
}

TEST(Fuzz, GemmCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("gemm")) EXPECT_EQ(CheckGemm(entry.bytes), "") << entry.name;
}

TEST(Fuzz, ConvCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("conv")) EXPECT_EQ(CheckConv(entry.bytes), "") << entry.name;
}

TEST(Fuzz, PackFileCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("pack_file")) EXPECT_EQ(CheckPackFile(entry.bytes), "") << entry.name;
}

TEST(Fuzz, NpyCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("npy")) EXPECT_EQ(CheckNpy(entry.bytes), "") << entry.name;
}

TEST(Fuzz, ReportCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("report")) EXPECT_EQ(CheckReports(entry.bytes), "") << entry.name;
}

TEST(Fuzz, SweepFileCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("sweep_file")) EXPECT_EQ(CheckSweepFile(entry.bytes), "") << entry.name;
}

TEST(Fuzz, LayerCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("layer")) EXPECT_EQ(CheckLayerFolder(entry.bytes), "") << entry.name;
}

TEST(Fuzz, ProblemCorpusHasNoFindings) {
  for (const Entry& entry : Corpus("problem")) EXPECT_EQ(CheckProblem(entry.bytes), "") << entry.name;
}

// Refused lines and files are checked much less.
TEST(Fuzz, MostLinesAndFilesOfTheCorporaAreTaken) {
  const auto taken = [](const std::string& name, auto read) {
    int64_t count = 0;
    for (const Entry& entry : Corpus(name)) count += read(entry.bytes) ? 1 : 0;
    return count;
  };
  EXPECT_GT(taken("npy", [](const Bytes& bytes) { return support::ReadNpy(WriteScratch("npy", bytes)); }),
            20);
  EXPECT_GT(taken("sweep_file",
                  [](const Bytes& bytes) { return verify::ReadSweepPart(WriteScratch("sweep", bytes)); }),
            20);
  EXPECT_GT(taken("pack_file",
                  [](const Bytes& bytes) {
                    const std::string path = WriteScratch("pack", bytes);
                    return Gemm::Load(path) || Conv::Load(path);
                  }),
            16);
  EXPECT_GT(
      taken("problem",
            [](const Bytes& bytes) {
              return verify::Problem::Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
            }),
      60);
}

TEST(Fuzz, AWrongOutputIsFound) {
  EXPECT_GT(Findings("gemm", [](const Bytes& bytes) { return CheckGemm(bytes, FlipLast); }), 20);
  EXPECT_GT(Findings("conv", [](const Bytes& bytes) { return CheckConv(bytes, FlipLast); }), 20);
  EXPECT_GT(Findings("pack_file", [](const Bytes& bytes) { return CheckPackFile(bytes, FlipLast); }), 10);
}

TEST(Fuzz, AFeaturesByteMakesItsPlainestCall) {
  for (uint8_t features = 0; features < 64; ++features) {
    SCOPED_TRACE(int{features});
    EXPECT_EQ(CheckGemm(Bytes{features}), "");
    EXPECT_NE(CheckGemm(Bytes{features}, FlipLast), "");
    EXPECT_EQ(CheckConv(Bytes{features}), "");
    EXPECT_NE(CheckConv(Bytes{features}, FlipLast), "");
  }
}

Bytes RandomBytes(support::Random* random, int64_t count) {
  Bytes bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(random->Integer(0, 255)));
  return bytes;
}

TEST(Fuzz, RandomGroupedCallsHaveNoFindings) {
  support::Random random(1, 2, 4);
  for (int i = 0; i < 300; ++i) {
    const Bytes bytes = RandomBytes(&random, 40);
    EXPECT_EQ(CheckGrouped(bytes), "") << i;
  }
  int found = 0;
  for (int i = 0; i < 30; ++i) found += CheckGrouped(RandomBytes(&random, 40), FlipLast).empty() ? 0 : 1;
  EXPECT_GT(found, 20);
}

TEST(Fuzz, RandomQuestionsAboutEnginesHaveNoFindings) {
  support::Random random(1, 2, 5);
  for (int i = 0; i < 20000; ++i) EXPECT_EQ(CheckEngine(RandomBytes(&random, 40)), "") << i;
}

// Bytes of a saved plan of grouped weights are changed. Some of the images are still plans.
TEST(Fuzz, ForgedGroupedWeightsHaveNoFindings) {
  support::Random random(1, 2, 3);
  int64_t loaded = 0;
  for (const char* line :
       {"grouped s8u4f32 m=1 n=5 k=37 zb=yes bias=yes", "grouped u8s8f16 m=1 n=3 k=40 group=0 src=none",
        "grouped u8u4f32 m=1 n=3 k=37 group=16 src=none zb=yes experts=3"}) {
    const auto plan = verify::CreatePlan(verify::MaterializeGrouped(*verify::Problem::Parse(line)), {});
    ASSERT_TRUE(plan) << plan.error().message;
    const Bytes saved = *plan->SaveMemory();
    for (int i = 0; i < 500; ++i) {
      Bytes image = saved;
      const int64_t end = random.OneIn(2) ? 104 : std::ssize(image);  // of the header, or of the image
      image[static_cast<size_t>(random.Integer(32, end - 1))] = static_cast<uint8_t>(random.Integer(0, 255));
      EXPECT_EQ(CheckPackFile(image), "") << line << ", forgery " << i;
      Seal(image);
      loaded += Grouped::Load(WriteScratch("grouped", image)) ? 1 : 0;
    }
    EXPECT_NE(CheckPackFile(saved, FlipLast), "") << line;
  }
  EXPECT_GT(loaded, 150);
  EXPECT_LT(loaded, 1350);
}

TEST(Fuzz, NoBytesMakeThePlainestCall) {
  EXPECT_EQ(CheckGemm({}), "");
  EXPECT_EQ(CheckConv({}), "");
  EXPECT_EQ(CheckPackFile({}), "");
  EXPECT_EQ(CheckNpy({}), "");
  EXPECT_EQ(CheckReports({}), "");
  EXPECT_EQ(CheckSweepFile({}), "");
  EXPECT_EQ(CheckLayerFolder({}), "");
  EXPECT_EQ(CheckProblem({}), "");
  EXPECT_NE(CheckGemm({}, FlipLast), "");
  EXPECT_NE(CheckConv({}, FlipLast), "");
}

}  // namespace
}  // namespace intact::fuzz

// The verifier of grouped weights: lines, models and mutants. The verifier must find and name each mutant.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"
#include "reference/contract/grouped.h"
#include "reference/contract/quantize.h"
#include "reference/models/grouped.h"
#include "support/random.h"
#include "verify/explain/grouped.h"
#include "verify/problem/grouped.h"
#include "verify/targets/grouped_target.h"

namespace intact::verify {
namespace {

TEST(GroupedProblemTest, LinesRoundTrip) {
  support::Random random(1, 1, 1);
  for (int i = 0; i < 1000; ++i) {
    const GroupedProblem problem = GroupedProblem::Draw(&random);
    const auto parsed = GroupedProblem::Parse(problem.ToString());
    ASSERT_TRUE(parsed) << problem.ToString() << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, problem) << problem.ToString();
  }
  EXPECT_EQ(GroupedProblem::Parse("grouped s8u4f32 m=1 n=2 k=3")->ToString(), "grouped s8u4f32 m=1 n=2 k=3");
}

TEST(GroupedProblemTest, RefusesLines) {
  const std::pair<const char*, const char*> kLines[] = {
      {"gemm s8u4f32 m=1 n=2 k=3",
       "'gemm s8u4f32 m=1 n=2 k=3' does not begin with 'grouped' and types like s8u4f32"},
      {"grouped s8u4s32 m=1 n=2 k=3", "types: 's8u4s32' is not like s8u4f32: activations, weights, output"},
      {"grouped s8u4f32 m=1 n=2", "k is missing"},
      {"grouped s8u4f32 m=1 n=2 k=3 m=1", "'m=1': m is given twice"},
      {"grouped s8u4f32 m=1 n=2 k=x", "k: 'x' is not an integer that fits 64 bits"},
      {"grouped s8u4f32 m=1 n=2 k=3 group=24",
       "group: 24 is unknown; expected one of 0, 16, 32, 64, 128, 256"},
      {"grouped s8u4f32 m=1 n=2 k=3 zb=1", "zb: '1' is unknown; expected one of no, yes"},
      {"grouped s8u4f32 m=1 n=2 k=40000 group=0",
       "k with group=0: 40000 is out of range; expected 1 to 33025"},
      {"grouped s8u4f32 m=1 n=2 k=3 blayout=kn",
       "blayout: kn needs weights of 8 bits; the depths of 4-bit weights are adjacent"},
      {"grouped s8u4f32 m=7 n=2 k=3 item=2", "item: 2 needs m to be a multiple of it, split=0 and experts=1"},
      {"grouped s8u4f32 m=1 n=2 k=3 experts=0", "experts: 0 is out of range; expected 1 to 1024"},
      {"grouped s8u4f32 m=1 n=4096 k=4096 experts=2",
       "experts·n·k is beyond 16777216: experts=2 n=4096 k=4096"},
      {"grouped s8u4f32 m=1 n=2 k=3 src=none fill=nonfinite",
       "fill: nonfinite needs real numbers; expected src=f32, bf16 or f16"},
  };
  for (const auto& [line, message] : kLines) {
    const auto parsed = GroupedProblem::Parse(line);
    ASSERT_FALSE(parsed) << line;
    EXPECT_EQ(parsed.error().message, message);
  }
}

// The fill `bounds` reaches the largest sums, of both signs.
TEST(GroupedProblemTest, BoundsAreReached) {
  const reference::Grouped grouped = Materialize(
      *GroupedProblem::Parse("grouped u8u8f32 m=24 n=24 k=512 group=256 src=none zb=yes fill=bounds"));
  int64_t least = 0;
  int64_t most = 0;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    for (int64_t g = 0; g < grouped.groups(); ++g) {
      const int64_t sum = GroupSum(grouped, i / grouped.n, i % grouped.n, g);
      least = std::min(least, sum);
      most = std::max(most, sum);
    }
  }
  EXPECT_EQ(most, 255 * 255 * 256);
  EXPECT_EQ(least, -255 * 255 * 256);
}

// The model of the contract is independent code.
TEST(GroupedModelTest, ContractIsTheContract) {
  support::Random random(2, 1, 1);
  for (int i = 0; i < 100; ++i) {
    const GroupedProblem problem = GroupedProblem::Draw(&random);
    const reference::Grouped grouped = Materialize(problem);
    EXPECT_EQ(Outputs(grouped, reference::GroupedModel::kContract), Outputs(grouped)) << problem.ToString();
  }
}

// A target that computes the reference on changed tensors, or by `compute`.
class Mutant : public GroupedTarget {
 public:
  using Compute = std::function<std::vector<uint8_t>(reference::Grouped)>;
  explicit Mutant(Compute compute) : compute_(std::move(compute)) {}
  Result<std::vector<uint8_t>> Run(const reference::Grouped& grouped,
                                   const GroupedRun& /*run*/) const override {
    return compute_(grouped);
  }

 private:
  Compute compute_;
};

// The contract's loop with other float steps, or other groups: add(f, sum, scale), and the first depth of
// group g.
template <class Add, class Begin>
std::vector<uint8_t> Loop(const reference::Grouped& grouped, bool is_reversed, const Add& add,
                          const Begin& begin) {
  std::vector<uint8_t> c;
  const int64_t groups = grouped.groups();
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.scale_type));
  for (int64_t m = 0; m < grouped.m; ++m) {
    for (int64_t n = 0; n < grouped.n; ++n) {
      float f = 0;
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t g = is_reversed ? groups - 1 - i : i;
        int64_t sum = 0;
        for (int64_t k = begin(g); k < begin(g + 1); ++k) {
          const auto a = static_cast<int8_t>(grouped.a[static_cast<size_t>(m * grouped.k + k)]);
          sum += a * (grouped.b[static_cast<size_t>(n * grouped.k + k)] - 8);
        }
        const double scale =
            core::Decode(grouped.scale_type, &grouped.b_scales[static_cast<size_t>(n * groups + g) * bytes]);
        f = add(f, static_cast<float>(sum), static_cast<float>(scale));
      }
      f *= grouped.a_scales[static_cast<size_t>(m)];
      const auto* const stored = reinterpret_cast<const uint8_t*>(&f);
      c.insert(c.end(), stored, stored + sizeof f);
    }
  }
  return c;
}
float Fma(float f, float sum, float scale) { return std::fma(sum, scale, f); }

// One group whose products are added in float32: u8 activations, a scale for each row, f32 scales of weights.
std::vector<uint8_t> FloatSums(const reference::Grouped& grouped) {
  std::vector<uint8_t> c;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const auto m = static_cast<size_t>(i / grouped.n), n = static_cast<size_t>(i % grouped.n);
    float sum = 0;
    for (int64_t k = 0; k < grouped.k; ++k) {
      const int32_t a = grouped.a[m * static_cast<size_t>(grouped.k) + static_cast<size_t>(k)];
      const int32_t b = grouped.b[n * static_cast<size_t>(grouped.k) + static_cast<size_t>(k)];
      sum += static_cast<float>((a - grouped.a_zero_points[m]) * (b - grouped.b_zero_points[n]));
    }
    float scale = 0;
    std::memcpy(&scale, &grouped.b_scales[n * sizeof scale], sizeof scale);
    const float output = Fma(0, sum, scale) * grouped.a_scales[m];
    const auto* const stored = reinterpret_cast<const uint8_t*>(&output);
    c.insert(c.end(), stored, stored + sizeof output);
  }
  return c;
}

struct Fault {
  const char* name;
  const char* line;
  Mutant::Compute compute;
  const char* said;
};

// The outputs if row m belongs to expert `of(m)`.
template <class Of>
std::vector<uint8_t> WithExperts(reference::Grouped grouped, const Of& of) {
  std::vector<int64_t> rows(grouped.expert_rows.size());
  for (int64_t m = 0; m < grouped.m; ++m) ++rows[static_cast<size_t>(of(m))];
  grouped.expert_rows = rows;
  return Outputs(grouped);
}

std::vector<Fault> Faults() {
  constexpr const char* kExperts = "grouped s8u4f32 m=20 n=20 k=70 experts=4 zb=yes bias=yes seed=1";
  constexpr const char* kPlain = "grouped s8u4f32 m=3 n=20 k=150";
  constexpr const char* kZeroPoints = "grouped s8u4f32 m=3 n=20 k=150 zb=yes";
  const auto usual_begin = [](const reference::Grouped& grouped) {
    return [&grouped](int64_t g) { return std::min(g * grouped.depth(), grouped.k); };
  };
  return {
      {"wrong nibble order", kPlain,
       [](reference::Grouped grouped) {
         for (size_t i = 0; i + 1 < grouped.b.size(); i += 2) std::swap(grouped.b[i], grouped.b[i + 1]);
         return Outputs(grouped);
       },
       "the high four bits of a byte are read as the even depth"},
      {"nibbles as in GGUF", "grouped s8u4f32 m=3 n=20 k=160",
       [](reference::Grouped grouped) {
         const std::vector<int16_t> b = grouped.b;
         for (size_t i = 0; i < b.size(); ++i) {
           const size_t in_group = i % 32;
           grouped.b[i] = b[i - in_group + (in_group < 16 ? 2 * in_group : 2 * in_group - 31)];
         }
         return Outputs(grouped);
       },
       "the low four bits of a group's bytes are read as its first half, as in GGUF"},
      {"zero point of the neighbouring group", kZeroPoints,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         for (size_t i = 0; i < grouped.b_zero_points.size(); ++i) {
           if (i % groups + 1 < groups) grouped.b_zero_points[i] = grouped.b_zero_points[i + 1];
         }
         return Outputs(grouped);
       },
       "a group uses the zero point of the next group"},
      {"zero points of the neighbouring column", kZeroPoints,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         for (size_t i = 0; i + groups < grouped.b_zero_points.size(); ++i) {
           grouped.b_zero_points[i] = grouped.b_zero_points[i + groups];
         }
         return Outputs(grouped);
       },
       "a column uses the zero points of the next column"},
      {"no zero point", kPlain,
       [](reference::Grouped grouped) {
         grouped.b_zero_points.assign(static_cast<size_t>(grouped.n * grouped.groups()), 0);
         return Outputs(grouped);
       },
       "the zero points of weights are taken as 0"},
      {"group boundary off by one", kPlain,
       [](const reference::Grouped& grouped) {
         return Loop(grouped, false, Fma, [&](int64_t g) {
           return g == 0 ? 0 : g == grouped.groups() ? grouped.k : g * grouped.depth() - 1;
         });
       },
       "groups begin one depth too early"},
      {"group boundary off by one, late", kPlain,
       [](const reference::Grouped& grouped) {
         return Loop(grouped, false, Fma, [&](int64_t g) {
           return g == 0 ? 0 : g == grouped.groups() ? grouped.k : g * grouped.depth() + 1;
         });
       },
       "groups begin one depth too late"},
      {"short last group", kPlain,
       [](reference::Grouped grouped) {
         for (int64_t i = 0; i < grouped.n * grouped.k; ++i) {
           if (i % grouped.k >= grouped.k / 32 * 32) grouped.b[static_cast<size_t>(i)] = 8;
         }
         return Outputs(grouped);
       },
       "the short last group is missing"},
      {"reversed groups", kPlain,
       [=](const reference::Grouped& grouped) { return Loop(grouped, true, Fma, usual_begin(grouped)); },
       "groups are added from the last to the first"},
      {"no FMA", "grouped s8u4f32 m=3 n=20 k=150 gscale=f32",
       [=](const reference::Grouped& grouped) {
         const auto add = [](float f, float sum, float scale) { return f + sum * scale; };
         return Loop(grouped, false, add, usual_begin(grouped));
       },
       "the product and the sum of a group are rounded separately, without FMA"},
      {"scale of the row in each group", kPlain,
       [](reference::Grouped grouped) {
         const auto groups = static_cast<size_t>(grouped.groups());
         const std::vector<float> scales = grouped.a_scales;
         grouped.a_granularity = INTACT_GRANULARITY_GROUPS;
         grouped.a_zero_points.assign(scales.size() * groups, 0);
         grouped.a_scales.clear();
         for (const float scale : scales) grouped.a_scales.insert(grouped.a_scales.end(), groups, scale);
         return Outputs(grouped);
       },
       "the scale of the row multiplies the scale of each group, and not the sum of the groups"},
      {"float sums", "grouped u8u8f32 m=3 n=20 k=600 group=0 src=none gscale=f32 zb=yes fill=bounds",
       FloatSums, "the products of a group are added in float32"},
      {"scale of the neighbouring group", kPlain,
       [](reference::Grouped grouped) {
         const size_t groups = static_cast<size_t>(grouped.groups()), bytes = 2;
         for (size_t i = 0; i + bytes < grouped.b_scales.size(); ++i) {
           if (i / bytes % groups + 1 < groups) grouped.b_scales[i] = grouped.b_scales[i + bytes];
         }
         return Outputs(grouped);
       },
       "a group uses the scale of the next group"},
      {"other sign", "grouped s8s4f32 m=3 n=20 k=150",
       [](reference::Grouped grouped) {
         for (int16_t& weight : grouped.b) weight = static_cast<int16_t>(weight & 15);
         return Outputs(grouped);
       },
       "weights are read with the other sign"},
      {"expert 0", kExperts,
       [](const reference::Grouped& grouped) { return WithExperts(grouped, [](int64_t) { return 0; }); },
       "all rows are computed as rows of expert 0"},
      {"weights of expert 0", kExperts,
       [](reference::Grouped grouped) {
         const auto repeat = [](auto* values) {
           const size_t each = values->size() / 4;
           for (size_t i = each; i < values->size(); ++i) (*values)[i] = (*values)[i % each];
         };
         repeat(&grouped.b);
         repeat(&grouped.b_scales);
         repeat(&grouped.b_zero_points);
         return Outputs(grouped);
       },
       "all rows are multiplied by the weights of expert 0"},
      {"weights of the next expert", kExperts,
       [](const reference::Grouped& grouped) {
         return WithExperts(grouped,
                            [&](int64_t m) { return std::min<int64_t>(grouped.ExpertOf(m) + 1, 3); });
       },
       "an expert's rows are computed as rows of the next expert"},
      {"experts begin a row too early", kExperts,
       [](const reference::Grouped& grouped) {
         return WithExperts(grouped,
                            [&](int64_t m) { return grouped.ExpertOf(std::min<int64_t>(m + 1, 19)); });
       },
       "an expert's last row is computed as a row of the next expert"},
      {"scales of expert 0", kExperts,
       [](reference::Grouped grouped) {
         for (size_t i = grouped.b_scales.size() / 4; i < grouped.b_scales.size(); ++i) {
           grouped.b_scales[i] = grouped.b_scales[i % (grouped.b_scales.size() / 4)];
         }
         for (size_t i = grouped.b_zero_points.size() / 4; i < grouped.b_zero_points.size(); ++i) {
           grouped.b_zero_points[i] = grouped.b_zero_points[i % (grouped.b_zero_points.size() / 4)];
         }
         return Outputs(grouped);
       },
       "all experts use the scales and zero points of expert 0"},
      {"bias of expert 0", kExperts,
       [](reference::Grouped grouped) {
         for (size_t i = 0; i < grouped.bias_f32.size(); ++i) grouped.bias_f32[i] = grouped.bias_f32[i % 20];
         return Outputs(grouped);
       },
       "all experts use the bias of expert 0"},
      {"A of the previous item", "grouped s8u4f32 m=12 n=20 k=70 item=3 ipad=5",
       [](reference::Grouped grouped) {
         for (size_t i = grouped.a.size(); i-- > 3 * 70;) grouped.a[i] = grouped.a[i - 3 * 70];
         for (size_t i = grouped.a_scales.size(); i-- > 3;) grouped.a_scales[i] = grouped.a_scales[i - 3];
         return Outputs(grouped);
       },
       "an item of a batch is computed with the activations of the item before"},
      {"scales rounded to bfloat16", "grouped s8u4f32 m=3 n=20 k=150 gscale=f32",
       [](reference::Grouped grouped) {
         for (size_t i = 0; i < grouped.b_scales.size(); ++i) {
           if (i % 4 < 2) grouped.b_scales[i] = 0;
         }
         return Outputs(grouped);
       },
       "unexplained"},
  };
}

TEST(GroupedMutantsTest, EachIsFoundAndNamed) {
  for (const Fault& fault : Faults()) {
    const auto problem = GroupedProblem::Parse(fault.line);
    ASSERT_TRUE(problem) << fault.line << ": " << problem.error().message;
    const auto judgement = Judge(Mutant(fault.compute), *problem);
    ASSERT_TRUE(judgement) << judgement.error().message;
    EXPECT_FALSE(judgement->Passed()) << fault.name;
    EXPECT_TRUE(judgement->failure.ends_with(fault.said)) << fault.name << ": " << judgement->failure;
  }
}

// The loop of the mutants is right if it has no fault.
TEST(GroupedMutantsTest, LoopIsTheContract) {
  const GroupedProblem problem = *GroupedProblem::Parse("grouped s8u4f32 m=3 n=20 k=150");
  const reference::Grouped grouped = Materialize(problem);
  const auto begin = [&](int64_t g) { return std::min(g * grouped.depth(), grouped.k); };
  EXPECT_EQ(Loop(grouped, false, Fma, begin), Outputs(grouped));
}

}  // namespace
}  // namespace intact::verify

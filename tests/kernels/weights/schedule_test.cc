// Schedules, decoded from the stream that the kernel reads. Their items add up to the weights, and no group
// can exceed int16 for any activations. Together that proves exactness.
#include "kernels/weights/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/weights/scheduled_vectors.h"
#include "kernels/weights/strip_scheduler.h"
#include "reference/models/models.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/require_isas.h"
#include "tests/verify/mutants/mutants.h"
#include "verify/problem/fill.h"
#include "verify/sweep/sweep.h"

namespace intact::kernels {
namespace {

using verify::Problem;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

// The same cases on every run, unless RC_PARAMS asks for others.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20240229 max_success=400", /*overwrite=*/0);

struct DecodedItem {
  int64_t quad = 0;  // in the whole depth
  std::vector<int8_t> weights;
};

struct DecodedStrip {
  int64_t column = 0;  // the first column
  std::vector<std::vector<DecodedItem>> groups;
};

// Reads strips one after another. An invalid stream fails the test.
class Decoder {
 public:
  explicit Decoder(const ScheduledWeights& schedule, const PackedWeights& weights)
      : schedule_(schedule), weights_(weights) {}

  std::vector<DecodedStrip> Decode() {
    std::vector<DecodedStrip> strips;
    int64_t bytes = 0;
    for (int64_t window = 0; window < schedule_.windows(); ++window) {
      for (int64_t panel = 0; panel < weights_.panels(); ++panel) {
        const uint8_t* const begin = schedule_.Strips(window, panel);
        at_ = begin;
        for (int64_t column = 0; column < kPanelColumns; column += schedule_.spec().strip_columns) {
          strips.push_back({panel * kPanelColumns + column, Groups(window)});
        }
        bytes += at_ - begin;
      }
    }
    EXPECT_EQ(bytes, schedule_.bytes());
    return strips;
  }

 private:
  template <class T>
  T Read() {
    T value;
    std::memcpy(&value, at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }

  std::vector<std::vector<DecodedItem>> Groups(int64_t window) {
    const auto counts = Read<std::array<uint16_t, kMaxGroup>>();
    std::vector<std::vector<DecodedItem>> groups;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int count = 0; count < counts[i]; ++count) {
        std::vector<DecodedItem>& group = groups.emplace_back(kMaxGroup - i);
        for (DecodedItem& item : group) item = Item(window);
      }
    }
    return groups;
  }

  DecodedItem Item(int64_t window) {
    const ScheduleSpec& spec = schedule_.spec();
    DecodedItem item;
    const auto offset = int64_t{Read<uint16_t>()};
    EXPECT_EQ(offset % spec.rows, 0);
    EXPECT_LT(offset / spec.rows, spec.window_quads);
    item.quad = window * spec.window_quads + offset / spec.rows;
    for (int i = 0; i < spec.strip_columns * kQuad; ++i) item.weights.push_back(Read<int8_t>());
    return item;
  }

  const ScheduledWeights& schedule_;
  const PackedWeights& weights_;
  const uint8_t* at_ = nullptr;
};

// Decodes a schedule of whole vectors. Its quads are numbered within the whole depth.
std::vector<DecodedStrip> DecodeVectors(const ScheduledVectors& schedule, const PackedWeights& weights,
                                        const ScheduleSpec& spec) {
  std::vector<DecodedStrip> strips;
  const auto vector_bytes = static_cast<size_t>(spec.strip_columns) * kQuad;
  const size_t item_bytes = std::min(vector_bytes, static_cast<size_t>(weights.quad_bytes()));
  int64_t bytes = 0;
  for (int64_t column = 0; column < weights.n; column += spec.strip_columns) {
    DecodedStrip& strip = strips.emplace_back();
    strip.column = column;
    const uint8_t* window = schedule.Strip(column);
    for (int64_t i = 0; i < schedule.windows(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(window) % item_bytes, 0u);
      VectorWindowHeader header;
      std::memcpy(&header, window, sizeof(header));
      const uint8_t* number = window + sizeof(header);
      const uint8_t* vector = window + header.weights_begin;
      for (size_t rest = 0; rest < header.counts.size(); ++rest) {
        const size_t size = kMaxGroup - rest;
        EXPECT_TRUE(header.counts[rest] == 0 || static_cast<int>(size) <= MostInGroup(weights, spec));
        for (int count = 0; count < header.counts[rest]; ++count) {
          for (DecodedItem& item : strip.groups.emplace_back(size)) {
            uint16_t quad = 0;
            std::memcpy(&quad, number, sizeof(quad));
            EXPECT_EQ(quad / spec.window_quads, i);
            item.quad = quad;
            item.weights.assign(vector, vector + item_bytes);
            item.weights.resize(vector_bytes);
            number += sizeof(quad);
            vector += item_bytes;
          }
        }
      }
      EXPECT_LE(number, window + header.weights_begin);
      window = vector;
    }
    // The last item of a narrow panel is read as a whole vector.
    if (item_bytes < vector_bytes) window += vector_bytes;
    bytes += window - schedule.Strip(column);
  }
  EXPECT_EQ(bytes, schedule.bytes());
  return strips;
}

// Sums of items for padded depths × padded columns.
std::vector<int> SumOfItems(const std::vector<DecodedStrip>& strips, const PackedWeights& weights) {
  const int64_t columns = weights.panels() * kPanelColumns;
  std::vector<int> sums(static_cast<size_t>(weights.quads() * kQuad * columns));
  for (const DecodedStrip& strip : strips) {
    for (const auto& group : strip.groups) {
      for (const DecodedItem& item : group) {
        for (size_t i = 0; i < item.weights.size(); ++i) {
          const auto n = strip.column + static_cast<int64_t>(i) / kQuad;
          const auto k = item.quad * kQuad + static_cast<int64_t>(i) % kQuad;
          sums[static_cast<size_t>(k * columns + n)] += item.weights[i];
        }
      }
    }
  }
  return sums;
}

// The value that items add up to: the weight, minus its zero point if that is folded in.
int Folded(const PackedWeights& weights, const ScheduleSpec& spec, int64_t k, int64_t n) {
  if (n >= weights.n) return 0;
  return weights.At(k, n) - (spec.zero_points != nullptr ? spec.zero_points[n] : 0);
}

bool AddsUpTo(const PackedWeights& weights, const ScheduleSpec& spec, const std::vector<int>& sums) {
  const int64_t columns = weights.panels() * kPanelColumns;
  for (int64_t k = 0; k < weights.quads() * kQuad; ++k) {
    for (int64_t n = 0; n < columns; ++n) {
      if (sums[static_cast<size_t>(k * columns + n)] != Folded(weights, spec, k, n)) return false;
    }
  }
  return true;
}

// The sum of the group's weights of one sign in a lane (a pair of adjacent depths of a column).
int LaneSum(const std::vector<DecodedItem>& group, size_t lane, int sign) {
  int sum = 0;
  for (const DecodedItem& item : group) {
    for (const size_t i : {2 * lane, 2 * lane + 1}) sum += std::max(sign * item.weights[i], 0);
  }
  return sum;
}

// Counts lanes of all groups with weights that could exceed int16 for activations in [0, amax].
int64_t OverloadedLanes(const std::vector<DecodedStrip>& strips, int amax) {
  int64_t overloaded = 0;
  for (const DecodedStrip& strip : strips) {
    for (const auto& group : strip.groups) {
      for (size_t lane = 0; lane < group[0].weights.size() / 2; ++lane) {
        overloaded += amax * LaneSum(group, lane, 1) > 32767 ? 1 : 0;
        overloaded += amax * LaneSum(group, lane, -1) > 32768 ? 1 : 0;
      }
    }
  }
  return overloaded;
}

// The kernel's result for one row of activations and one column: VPMADDUBSW saturates, VPADDW wraps.
int32_t RunInInt16(const std::vector<DecodedStrip>& strips, int64_t column, const std::vector<uint8_t>& a) {
  int32_t accumulator = 0;
  for (const DecodedStrip& strip : strips) {
    if (strip.groups.empty()) continue;
    const auto in_strip = static_cast<size_t>(column - strip.column) * kQuad;
    if (column < strip.column || in_strip >= strip.groups[0][0].weights.size()) continue;
    for (const auto& group : strip.groups) {
      for (const size_t pair : {0, 2}) {
        int16_t lane = 0;
        for (const DecodedItem& item : group) {
          const auto k = static_cast<size_t>(item.quad * kQuad) + pair;
          const size_t w = in_strip + pair;
          lane = static_cast<int16_t>(
              lane + reference::Maddubs(a[k], a[k + 1], item.weights[w], item.weights[w + 1]));
        }
        accumulator += lane;
      }
    }
  }
  return accumulator;
}

PackedWeights Pack(const Problem& problem) {
  const std::vector<int8_t> b = verify::FillWeights(problem);
  PackedWeights packed;
  EXPECT_TRUE(PackWeights({b.data(), problem.k, problem.n, problem.n, 1}, &packed));
  return packed;
}

ScheduledWeights Schedule(const PackedWeights& weights, const ScheduleSpec& spec) {
  ScheduledWeights schedule;
  EXPECT_TRUE(schedule.Build(weights, spec).ok());
  return schedule;
}

// Activations that drive column n's sums to their extremes, up and down, compared with exact arithmetic.
bool IsExactAtItsBounds(const std::vector<DecodedStrip>& strips, const PackedWeights& weights,
                        const ScheduleSpec& spec, int64_t n, int amax) {
  for (const int sign : {1, -1}) {
    std::vector<uint8_t> a;
    int32_t exact = 0;
    for (int64_t k = 0; k < weights.quads() * kQuad; ++k) {
      const int w = Folded(weights, spec, k, n);
      a.push_back(static_cast<uint8_t>(sign * w > 0 ? amax : 0));
      exact += a.back() * w;
    }
    if (RunInInt16(strips, n, a) != exact) return false;
  }
  return true;
}

struct Case {
  Problem problem;
  ScheduleSpec spec;
  std::vector<int32_t> zero_points;  // the zero points of the spec, if it has any
};

Case AnyCase() {
  Case c;
  const auto fills = verify::AllFills();
  c.problem.fill = fills[*rc::gen::inRange<size_t>(0, fills.size())];
  c.problem.seed = *rc::gen::inRange<uint64_t>(1, 1000);
  c.problem.n = *rc::gen::inRange<int64_t>(1, 40);
  c.problem.k = *rc::gen::inRange<int64_t>(1, 300);
  c.problem.wmax = *rc::gen::element(128, 127, 64, 7, 1);
  c.spec.strip_columns = *rc::gen::element(1, 2, 4);
  c.spec.rows = *rc::gen::element(8, 24, 64);
  c.spec.window_quads = *rc::gen::inRange<int64_t>(1, 90);
  c.spec.amax = *rc::gen::oneOf(rc::gen::element(255, 127, 128), rc::gen::inRange(1, 256));
  c.problem.range_max = c.spec.amax;
  c.spec.largest_group = *rc::gen::element(kMaxGroup, 4, 1);
  if (*rc::gen::arbitrary<bool>()) {
    const auto count = static_cast<size_t>(c.problem.n);
    c.zero_points = *rc::gen::container<std::vector<int32_t>>(count, rc::gen::inRange(-128, 128));
    c.spec.zero_points = c.zero_points.data();
  }
  return c;
}

RC_GTEST_PROP(Schedule, ItemsAddUpToTheWeightsAndNoGroupCanLeaveInt16, ()) {
  const Case c = AnyCase();
  RC_LOG() << c.problem.ToString() << " strip_columns=" << c.spec.strip_columns
           << " window_quads=" << c.spec.window_quads;
  const PackedWeights weights = Pack(c.problem);
  const ScheduledWeights schedule = Schedule(weights, c.spec);
  const std::vector<DecodedStrip> strips = Decoder(schedule, weights).Decode();
  RC_ASSERT(AddsUpTo(weights, c.spec, SumOfItems(strips, weights)));
  RC_ASSERT(OverloadedLanes(strips, c.spec.amax) == 0);

  int64_t groups = 0;
  int64_t items = 0;
  for (const DecodedStrip& strip : strips) {
    groups += std::ssize(strip.groups);
    for (const auto& group : strip.groups) {
      items += std::ssize(group);
      RC_ASSERT(std::ssize(group) <= MostInGroup(weights, c.spec));
    }
  }
  RC_ASSERT(schedule.statistics().groups == groups * c.spec.strip_columns);
  RC_ASSERT(schedule.statistics().items == items * c.spec.strip_columns);
  RC_ASSERT(schedule.statistics().quads == weights.quads() * weights.panels() * kPanelColumns);
}

RC_GTEST_PROP(ScheduledVectors, AddUpToTheWeightsAndNoGroupCanLeaveInt16, ()) {
  const Case c = AnyCase();
  const PackedWeights weights = Pack(c.problem);
  const int lanes = *rc::gen::element(8, 16);
  ScheduleSpec spec = ScheduledVectors::SpecFor(weights, lanes, c.spec.amax);
  RC_ASSERT(spec.window_quads == weights.quads());
  if (*rc::gen::arbitrary<bool>()) spec.window_quads = c.spec.window_quads;
  RC_LOG() << c.problem.ToString() << " lanes=" << lanes << " window_quads=" << spec.window_quads;
  ScheduledVectors schedule;
  RC_ASSERT(schedule.Build(weights, spec).ok());
  const std::vector<DecodedStrip> strips = DecodeVectors(schedule, weights, spec);
  RC_ASSERT(AddsUpTo(weights, spec, SumOfItems(strips, weights)));
  RC_ASSERT(OverloadedLanes(strips, spec.amax) == 0);
}

// Columns of the last panel that fill no vector cost nothing.
TEST(ScheduledVectors, AreEstimatedFromTheColumnsThereAre) {
  for (const int64_t n : {1, 8, 24, 40}) {
    Problem problem;
    problem.n = n;
    problem.k = 8;  // so shallow that no column is left out
    problem.fill = verify::Fill::kLaplace;
    const PackedWeights weights = Pack(problem);
    const ScheduleSpec spec = ScheduledVectors::SpecFor(weights, 8, 255);
    ScheduledVectors schedule;
    ASSERT_TRUE(schedule.Build(weights, spec).ok());
    const auto estimate = EstimateSchedule(weights, spec);
    ASSERT_TRUE(estimate);
    EXPECT_EQ(estimate->quads, schedule.statistics().quads) << n;
    EXPECT_EQ(estimate->items, schedule.statistics().items) << n;
    EXPECT_EQ(estimate->groups, schedule.statistics().groups) << n;
  }
}

// Deep ones are divided into windows of equal size.
TEST(ScheduledVectors, HaveWindowsThatStayInL1) {
  PackedWeights weights;
  weights.k = 4 * 1025;
  weights.n = 1;
  const ScheduleSpec spec = ScheduledVectors::SpecFor(weights, 8, 255);
  EXPECT_EQ(spec.window_quads, 342);
}

// Groups count loads in units, so that a byte holds a capacity.
int UnitShift(const LaneCapacity& capacity) {
  int shift = 0;
  while (capacity.negative >> shift > 255) ++shift;
  return shift;
}
int ToUnits(int load, int shift) { return (load + (1 << shift) - 1) >> shift; }

// First fit: if two groups are not full, the first one existed when the other's items came, and had no room
// for them.
bool WasFirstFit(const std::vector<DecodedItem>& group, const std::vector<DecodedItem>& other, int amax) {
  const LaneCapacity capacity = CapacityFor(amax);
  const int shift = UnitShift(capacity);
  return std::none_of(other.begin(), other.end(), [&](const DecodedItem& item) {
    for (size_t lane = 0; lane < item.weights.size() / 2; ++lane) {
      for (const int sign : {1, -1}) {
        int units = ToUnits(LaneSum({item}, lane, sign), shift);
        for (const DecodedItem& joined : group) units += ToUnits(LaneSum({joined}, lane, sign), shift);
        if (units > (sign > 0 ? capacity.positive : capacity.negative) >> shift) return false;
      }
    }
    return true;
  });
}

RC_GTEST_PROP(Schedule, NoGroupLeavesRoomForItemsOfALaterOne, ()) {
  const Case c = AnyCase();
  RC_LOG() << c.problem.ToString() << " strip_columns=" << c.spec.strip_columns
           << " window_quads=" << c.spec.window_quads;
  const PackedWeights weights = Pack(c.problem);
  const auto most = static_cast<size_t>(c.spec.largest_group);
  for (const DecodedStrip& strip : Decoder(Schedule(weights, c.spec), weights).Decode()) {
    for (size_t i = 0; i < strip.groups.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (strip.groups[i].size() == most || strip.groups[j].size() == most) continue;
        RC_ASSERT(WasFirstFit(strip.groups[i], strip.groups[j], c.spec.amax) ||
                  WasFirstFit(strip.groups[j], strip.groups[i], c.spec.amax));
      }
    }
  }
}

RC_GTEST_PROP(Schedule, IsExactInInt16AtTheBoundOfEachColumn, ()) {
  const Case c = AnyCase();
  RC_LOG() << c.problem.ToString() << " strip_columns=" << c.spec.strip_columns
           << " window_quads=" << c.spec.window_quads;
  const PackedWeights weights = Pack(c.problem);
  const std::vector<DecodedStrip> strips = Decoder(Schedule(weights, c.spec), weights).Decode();
  for (int64_t n = 0; n < weights.n; ++n) {
    RC_ASSERT(IsExactAtItsBounds(strips, weights, c.spec, n, c.spec.amax));
  }
}

TEST(Schedule, GroupsAreFilledToTheirCapacity) {
  // Otherwise the tests above could not detect a pair too many.
  for (const int amax : {255, 127}) {
    Problem problem = tests::Parsed("gemm u8s8s32 m=1 n=16 k=512 wmax=128 fill=bound");
    problem.range_max = amax;
    const PackedWeights weights = Pack(problem);
    const auto strips = Decoder(Schedule(weights, {1, 24, 256, amax}), weights).Decode();
    int64_t full = 0;
    for (const DecodedStrip& strip : strips) {
      for (const auto& group : strip.groups) {
        full += LaneSum(group, 0, 1) == CapacityFor(amax).positive ? 1 : 0;
        full += LaneSum(group, 0, -1) == CapacityFor(amax).negative ? 1 : 0;
      }
    }
    EXPECT_GT(full, amax == 255 ? 16 : 4) << amax;  // up to 127, odd sums take a unit of 2 and leave room
  }
}

TEST(Schedule, IsEstimatedFromAShareOfItsColumns) {
  const ScheduleSpec spec{2, 24, 256, 255};
  for (const char* line :
       {"gemm u8s8s32 m=1 n=16 k=28 fill=gauss", "gemm u8s8s32 m=1 n=32 k=16 fill=student"}) {
    const PackedWeights weights = Pack(tests::Parsed(line));
    const ScheduleStatistics all = Schedule(weights, spec).statistics();
    const auto estimate = EstimateSchedule(weights, spec);
    ASSERT_TRUE(estimate) << line;
    EXPECT_EQ(estimate->quads, all.quads) << line;
    EXPECT_EQ(estimate->items, all.items) << line;
    EXPECT_EQ(estimate->groups, all.groups) << line;
  }
  struct Part {
    const char* line;
    int64_t share;
    double most_off;  // of items and groups
  };
  for (const Part& part : {Part{"gemm u8s8s32 m=1 n=1024 k=1024 fill=gauss", 32, 0.025},
                           Part{"gemm u8s8s32 m=1 n=128 k=512 fill=gauss", 8, 0.05},
                           Part{"gemm u8s8s32 m=1 n=8 k=1000 fill=gauss", 2, 0.05},
                           Part{"gemm u8s8s32 m=1 n=4 k=1200 fill=gauss", 1, 0.001}}) {
    const PackedWeights weights = Pack(tests::Parsed(part.line));
    const ScheduleStatistics all = Schedule(weights, spec).statistics();
    const auto estimate = EstimateSchedule(weights, spec);
    ASSERT_TRUE(estimate) << part.line;
    EXPECT_EQ(estimate->quads * part.share, all.quads) << part.line;
    const auto share = static_cast<double>(part.share);
    EXPECT_NEAR(static_cast<double>(estimate->items) * share / static_cast<double>(all.items), 1,
                part.most_off / 2);
    EXPECT_NEAR(static_cast<double>(estimate->groups) * share / static_cast<double>(all.groups), 1,
                part.most_off);
  }
}

// The sums of an item's pairs, of one sign and then of the other.
template <class Item>
std::vector<int> LoadOf(const Item& item) {
  std::vector<int> load;
  for (const int sign : {1, -1}) {
    for (size_t i = 0; i < item.weights.size(); i += 2) {
      load.push_back(std::max(sign * item.weights[i], 0) + std::max(sign * item.weights[i + 1], 0));
    }
  }
  return load;
}

// Checks the groups of the last strip that was scheduled: items join the first group that has room, heaviest
// first. Larger groups come first.
template <int kColumns>
void ExpectFirstFit(const StripScheduler<kColumns>& scheduler, int amax, int largest_group) {
  const auto count = static_cast<size_t>(scheduler.item_count());
  std::vector<uint8_t> order;  // counts, then the items' numbers
  scheduler.AppendOrder(&order);
  const size_t bytes = count < 256 ? 1 : 2;
  const auto number_at = [&](size_t place) {
    uint16_t number = 0;
    std::memcpy(&number, &order[(kMaxGroup + place) * bytes], bytes);
    return number;
  };
  const LaneCapacity capacity = CapacityFor(amax);
  const int shift = UnitShift(capacity);
  std::vector<std::vector<int>> loads(count);
  for (size_t place = 0; place < count; ++place) {
    std::vector<int>& load = loads[number_at(place)];
    load = LoadOf(scheduler.item(static_cast<int64_t>(place)));
    for (int& lane : load) lane = ToUnits(lane, shift);
  }
  const auto mean = [&](uint16_t i) {
    return std::accumulate(loads[i].begin(), loads[i].end(), 0) / static_cast<int>(loads[i].size());
  };
  std::vector<uint16_t> heaviest_first(count);
  std::iota(heaviest_first.begin(), heaviest_first.end(), uint16_t{0});
  const bool fits_all = kMaxPairLoad * largest_group <= std::min(capacity.positive, capacity.negative);
  if (!fits_all) std::ranges::stable_sort(heaviest_first, std::greater<>(), mean);

  std::vector<std::vector<uint16_t>> expected;
  std::vector<std::vector<int>> sums;
  for (const uint16_t i : heaviest_first) {
    const std::vector<int>& load = loads[i];
    const auto has_room = [&](size_t group) {
      bool fits = std::ssize(expected[group]) < largest_group;
      for (size_t lane = 0; lane < load.size(); ++lane) {
        const int most = lane < load.size() / 2 ? capacity.positive : capacity.negative;
        fits &= sums[group][lane] + load[lane] <= most >> shift;
      }
      return fits;
    };
    size_t group = 0;
    while (group < expected.size() && !has_room(group)) ++group;
    if (group == expected.size()) {
      sums.emplace_back(load.size());
      expected.emplace_back();
    }
    expected[group].push_back(i);
    for (size_t lane = 0; lane < load.size(); ++lane) sums[group][lane] += load[lane];
  }
  std::ranges::stable_sort(expected, std::greater<>(), [](const auto& group) { return group.size(); });

  std::vector<std::vector<uint16_t>> groups;
  size_t place = 0;
  for (size_t i = 0; i < kMaxGroup; ++i) {
    for (int group = 0; group < scheduler.counts()[i]; ++group) {
      groups.emplace_back();
      for (size_t member = 0; member < kMaxGroup - i; ++member) groups.back().push_back(number_at(place++));
    }
  }
  EXPECT_EQ(groups, expected) << kColumns << " columns, activations up to " << amax;
}

// Schedules `strips` strips, the last one first.
template <int kColumns>
void ExpectFirstFit(const std::vector<int8_t>& b, int amax, int largest_group, int strips = 1) {
  const int64_t columns = int64_t{kColumns} * strips;
  const auto depths = std::ssize(b) / columns;
  PackedWeights weights;
  ASSERT_TRUE(PackWeights({b.data(), depths, columns, 1, depths, 0}, &weights));
  ScheduleSpec spec;
  spec.strip_columns = kColumns;
  spec.window_quads = weights.quads();
  spec.amax = amax;
  spec.largest_group = largest_group;
  StripScheduler<kColumns> scheduler(spec, spec.window_quads);
  ScheduleStatistics statistics;
  const auto expect = [&](int64_t column) {
    scheduler.Schedule(weights, column, 0, &statistics);
    ExpectFirstFit(scheduler, amax, largest_group);
  };
  expect(columns - kColumns);
  for (int64_t column = 0; column < columns; column += kColumns) expect(column);
}

TEST(Schedule, GroupsAreTheFirstThatHaveRoom) {
  std::mt19937 random(1);
  for (const int most : {1, 9, 40, 128}) {
    for (const int amax : {40, 127, 200, 255}) {
      for (const int largest_group : {3, kMaxGroup}) {
        std::vector<int8_t> b(16 * 4 * 150);  // several chunks of groups
        for (int8_t& weight : b) weight = static_cast<int8_t>(static_cast<int>(random() % (2 * most)) - most);
        ExpectFirstFit<16>(b, amax, largest_group);
        ExpectFirstFit<8>(b, amax, largest_group);
        b.resize(4 * 4 * 150);
        ExpectFirstFit<4>(b, amax, largest_group);
        ExpectFirstFit<2>(b, amax, largest_group, 3);
        ExpectFirstFit<1>(b, amax, largest_group, 3);
      }
    }
  }
  // Activations up to 127 leave room for 258. The second quad adds 256 where the first one leaves 255.
  ExpectFirstFit<1>({-128, -128, -3, 0, 0, 0, -128, -128}, 127, kMaxGroup);
}

// A restored schedule is the schedule that its order was taken from, byte for byte.
RC_GTEST_PROP(Schedule, IsRestoredFromItsOrder, ()) {
  const Case c = AnyCase();
  RC_LOG() << c.problem.ToString() << " strip_columns=" << c.spec.strip_columns
           << " window_quads=" << c.spec.window_quads;
  const PackedWeights weights = Pack(c.problem);
  const ScheduledWeights found = Schedule(weights, c.spec);
  const auto order = OrderOf(weights, c.spec);
  RC_ASSERT(order);
  ScheduledWeights restored;
  RC_ASSERT(restored.Build(weights, c.spec, *order).ok());
  RC_ASSERT(restored.bytes() == found.bytes());
  RC_ASSERT(restored.statistics().items == found.statistics().items);
  RC_ASSERT(restored.statistics().groups == found.statistics().groups);
  RC_ASSERT(found.statistics().order_bytes == std::ssize(*order));
  for (int64_t window = 0; window < found.windows(); ++window) {
    for (int64_t panel = 0; panel < weights.panels(); ++panel) {
      const bool is_last = panel + 1 == weights.panels();
      const int64_t bytes =
          is_last ? kStripHeaderBytes : found.Strips(window, panel + 1) - found.Strips(window, panel);
      RC_ASSERT(std::memcmp(found.Strips(window, panel), restored.Strips(window, panel),
                            static_cast<size_t>(bytes)) == 0);
    }
  }
  RC_ASSERT(AddsUpTo(weights, c.spec, SumOfItems(Decoder(restored, weights).Decode(), weights)));

  // Bytes that are missing or too many, and the order for a larger capacity.
  std::vector<uint8_t> other = *order;
  other.pop_back();
  RC_ASSERT(ScheduledWeights().Build(weights, c.spec, other).status == INTACT_INVALID_ARGUMENT);
  other.resize(order->size() + 3);
  RC_ASSERT(ScheduledWeights().Build(weights, c.spec, other).status == INTACT_INVALID_ARGUMENT);
}

RC_GTEST_PROP(ScheduledVectors, AreRestoredFromTheirOrder, ()) {
  Case c = AnyCase();
  c.problem.k = *rc::gen::inRange<int64_t>(1, 3000);  // orders of u8 and of u16
  const PackedWeights weights = Pack(c.problem);
  ScheduleSpec spec = ScheduledVectors::SpecFor(weights, *rc::gen::element(8, 16), c.spec.amax);
  if (*rc::gen::arbitrary<bool>()) spec.window_quads = *rc::gen::inRange<int64_t>(1, 600);
  RC_LOG() << c.problem.ToString() << " lanes=" << spec.strip_columns
           << " window_quads=" << spec.window_quads;
  ScheduledVectors found;
  RC_ASSERT(found.Build(weights, spec).ok());
  const auto order = OrderOf(weights, spec);
  RC_ASSERT(order);
  RC_ASSERT(found.statistics().order_bytes == std::ssize(*order));
  ScheduledVectors restored;
  RC_ASSERT(restored.Build(weights, spec, *order).ok());
  RC_ASSERT(restored.bytes() == found.bytes());
  RC_ASSERT(restored.statistics().order_bytes == std::ssize(*order));
  const auto same_items = [](const std::vector<DecodedItem>& one, const std::vector<DecodedItem>& other) {
    return std::ranges::equal(one, other, [](const DecodedItem& a, const DecodedItem& b) {
      return a.quad == b.quad && a.weights == b.weights;
    });
  };
  const std::vector<DecodedStrip> strips = DecodeVectors(found, weights, spec);
  const std::vector<DecodedStrip> again = DecodeVectors(restored, weights, spec);
  RC_ASSERT(again.size() == strips.size());
  for (size_t i = 0; i < strips.size(); ++i) {
    RC_ASSERT(std::ranges::equal(strips[i].groups, again[i].groups, same_items));
  }

  std::vector<uint8_t> other = *order;
  other.pop_back();
  RC_ASSERT(ScheduledVectors().Build(weights, spec, other).status == INTACT_INVALID_ARGUMENT);
  other.resize(order->size() + 3);
  RC_ASSERT(ScheduledVectors().Build(weights, spec, other).status == INTACT_INVALID_ARGUMENT);
}

TEST(Schedule, OrdersOfLargerGroupsAreRefused) {
  const PackedWeights weights = Pack(tests::Parsed("gemm u8s8s32 m=1 n=16 k=512 wmax=7 fill=uniform"));
  const ScheduleSpec large{2, 24, 256, 255};
  ScheduleSpec small = large;
  small.largest_group = 4;
  const ScheduledWeights schedule = Schedule(weights, large);
  ASSERT_GT(std::ssize(Decoder(schedule, weights).Decode().front().groups.front()), small.largest_group);
  const auto order = OrderOf(weights, large);
  ASSERT_TRUE(order);
  const Error error = ScheduledWeights().Build(weights, small, *order);
  EXPECT_EQ(error.status, INTACT_INVALID_ARGUMENT);
  EXPECT_NE(error.message.find("has too large a group"), std::string::npos) << error.message;
}

TEST(Schedule, OrdersForSmallerActivationsAreRefused) {
  const PackedWeights weights = Pack(tests::Parsed("gemm u8s8s32 m=1 n=16 k=512 wmax=128 fill=bound"));
  for (const int strip_columns : {1, 2, 4}) {
    const ScheduleSpec light{strip_columns, 24, 256, 254};
    const ScheduleSpec heavy{strip_columns, 24, 256, 255};
    const auto order = OrderOf(weights, light);
    ASSERT_TRUE(order);
    EXPECT_TRUE(ScheduledWeights().Build(weights, light, *order).ok());
    const Error error = ScheduledWeights().Build(weights, heavy, *order);
    EXPECT_EQ(error.status, INTACT_INVALID_ARGUMENT) << strip_columns;
    EXPECT_NE(error.message.find("corrupted: the schedule of columns"), std::string::npos) << error.message;
  }
}

TEST(Schedule, CapacityIsTheLargestThatFits) {
  for (int amax = 1; amax <= 255; ++amax) {
    const LaneCapacity capacity = CapacityFor(amax);
    EXPECT_LE(amax * capacity.positive, 32767);
    EXPECT_GT(amax * (capacity.positive + 1), 32767);
    EXPECT_LE(amax * capacity.negative, 32768);
    EXPECT_GT(amax * (capacity.negative + 1), 32768);
  }
}

TEST(Schedule, LightWeightsFillGroupsOfEightAndZerosCostNothing) {
  const std::vector<int8_t> ones(64 * 16, 1);
  PackedWeights weights;
  ASSERT_TRUE(PackWeights({ones.data(), 64, 16, 16, 1}, &weights));
  EXPECT_EQ(Schedule(weights, {2, 24, 64, 255}).statistics().groups, 16 / kMaxGroup * 16);
  const std::vector<int8_t> zeros(64 * 16, 0);
  ASSERT_TRUE(PackWeights({zeros.data(), 64, 16, 16, 1}, &weights));
  EXPECT_EQ(Schedule(weights, {2, 24, 64, 255}).statistics().items, 0);
}

// ----- one pair too many -----------------------------------------------------------------------------------
// A schedule for activations up to 254 admits weights of 129 to a lane that holds 128 at full range.

TEST(OnePairTooMany, IsFoundInTheSchedule) {
  static_assert(CapacityFor(254).positive == CapacityFor(255).positive + 1);
  static_assert(CapacityFor(254).negative == CapacityFor(255).negative + 1);
  const PackedWeights weights = Pack(tests::Parsed("gemm u8s8s32 m=1 n=16 k=512 wmax=128 fill=bound"));
  for (const int strip_columns : {1, 2, 4}) {
    const ScheduleSpec spec{strip_columns, 24, 256, 254};
    const auto strips = Decoder(Schedule(weights, spec), weights).Decode();
    EXPECT_TRUE(AddsUpTo(weights, spec, SumOfItems(strips, weights)));
    EXPECT_EQ(OverloadedLanes(strips, 254), 0);
    EXPECT_GT(OverloadedLanes(strips, 255), 0);
    int64_t inexact = 0;
    for (int64_t n = 0; n < weights.n; ++n)
      inexact += IsExactAtItsBounds(strips, weights, spec, n, 255) ? 0 : 1;
    EXPECT_GT(inexact, 0);
  }
}

TEST(OnePairTooMany, IsFoundInTheKernelsOutput) {
  const auto overeager = verify::OvereagerTarget();
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512}) {
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
    for (const char* line : {"gemm u8s8s32 m=64 n=32 k=512 wmax=128 fill=bound",
                             "gemm s8s8s32 m=64 n=32 k=512 za=-9 wmax=128 arange=127 fill=bound"}) {
      Problem problem = tests::Parsed(line);
      problem.isa = isa;
      tests::ExpectItsModel(problem);
      const Result<verify::Judgement> judgement = verify::Judge(*overeager, problem);
      ASSERT_TRUE(judgement) << judgement.error().message;
      EXPECT_FALSE(judgement->Passed()) << problem.ToString();
      EXPECT_GT(judgement->comparison.Unexplained(), 0);
    }
  }
}

}  // namespace
}  // namespace intact::kernels

// The scalar models compared with the instructions that they model, if this CPU has them.
#include "reference/models/models.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "support/random.h"
#include "tests/support/require_isas.h"

namespace intact::reference {
namespace {

constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int32_t kInt32Min = std::numeric_limits<int32_t>::min();

// Values around every edge of the types.
constexpr std::array<uint8_t, 12> kActivations = {0, 1, 2, 63, 64, 126, 127, 128, 129, 253, 254, 255};
constexpr std::array<int8_t, 13> kWeights = {-128, -127, -126, -65, -64, -2, -1, 0, 1, 64, 65, 126, 127};
constexpr std::array<int32_t, 9> kAccumulators = {
    0, 1, -1, kInt32Max, kInt32Max - 1, kInt32Max - 40000, kInt32Min, kInt32Min + 1, kInt32Min + 40000};

struct Quad {
  int32_t acc;
  uint8_t a[4];
  int8_t w[4];
};

// All combinations of edges in both pairs are too many, so the second pair is drawn from the edges.
std::vector<Quad> Quads() {
  support::Random random(42, 0, 0);
  const auto edge = [&random](const auto& values) {
    return values[static_cast<size_t>(random.Integer(0, std::ssize(values) - 1))];
  };
  std::vector<Quad> quads;
  for (const uint8_t a0 : kActivations) {
    for (const uint8_t a1 : kActivations) {
      for (const int8_t w0 : kWeights) {
        for (const int8_t w1 : kWeights) {
          for (const int32_t acc : kAccumulators) {
            quads.push_back({acc,
                             {a0, a1, edge(kActivations), edge(kActivations)},
                             {w0, w1, edge(kWeights), edge(kWeights)}});
          }
        }
      }
    }
  }
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = random.Next();
    Quad quad = {static_cast<int32_t>(random.Next()), {}, {}};
    for (int j = 0; j < 4; ++j) {
      quad.a[j] = static_cast<uint8_t>(bits >> (8 * j));
      quad.w[j] = static_cast<int8_t>(bits >> (32 + 8 * j));
    }
    quads.push_back(quad);
  }
  return quads;
}

__m128i Load(const void* bytes, size_t size) {
  __m128i value = _mm_setzero_si128();
  std::memcpy(&value, bytes, size);
  return value;
}

__attribute__((target("ssse3"))) int32_t InstructionMaddubs(const Quad& quad) {
  const __m128i pairs = _mm_maddubs_epi16(Load(quad.a, 4), Load(quad.w, 4));
  const __m128i sum = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
  return _mm_cvtsi128_si32(_mm_add_epi32(_mm_cvtsi32_si128(quad.acc), sum));
}

// The pairs of each lane of a row of activations and weights, added in int16 and then widened: adjacent
// depths unchanged, or with the activations' signs moved to the weights.
using Depth = std::array<uint8_t, 16 * 9>;
__attribute__((target("ssse3"))) int32_t InstructionInt16(const Depth& a, const Depth& w, bool moves_signs,
                                                          bool wraps) {
  __m128i sum = _mm_setzero_si128();
  for (size_t k = 0; k < a.size(); k += 16) {
    __m128i x = Load(&a[k], 16);
    __m128i y = Load(&w[k], 16);
    if (moves_signs) {
      y = _mm_sign_epi8(y, x);
      x = _mm_abs_epi8(x);
    }
    const __m128i pairs = _mm_maddubs_epi16(x, y);
    sum = wraps ? _mm_add_epi16(sum, pairs) : _mm_adds_epi16(sum, pairs);
  }
  int16_t lanes[8];
  std::memcpy(lanes, &sum, sizeof lanes);
  return std::accumulate(std::begin(lanes), std::end(lanes), 0);
}

__attribute__((target("avx512vnni,avx512vl"))) int32_t InstructionDpbusd(const Quad& quad) {
  return _mm_cvtsi128_si32(_mm_dpbusd_epi32(_mm_cvtsi32_si128(quad.acc), Load(quad.a, 4), Load(quad.w, 4)));
}

__attribute__((target("avx512vnni,avx512vl"))) int32_t InstructionDpbusds(const Quad& quad) {
  return _mm_cvtsi128_si32(_mm_dpbusds_epi32(_mm_cvtsi32_si128(quad.acc), Load(quad.a, 4), Load(quad.w, 4)));
}

// VPDPBUSDS itself: the accumulator starts from the compensation.
Model FromCompensation() {
  Model model = Model::kDpbusds;
  model.compensation = CompensationTime::kFirst;
  return model;
}

bool HasAvx512Vnni() {
  return __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

::testing::Message Print(const Quad& q) {
  ::testing::Message message;
  message << "acc " << q.acc;
  for (int i = 0; i < 4; ++i) message << "  " << int{q.a[i]} << "·" << int{q.w[i]};
  return message;
}

TEST(Models, MaddubsEqualsTheInstructions) {
  if (!__builtin_cpu_supports("ssse3")) GTEST_SKIP() << "ssse3 is not available";
  for (const Quad& quad : Quads()) {
    ASSERT_EQ(Accumulate(Model::kMaddubs, quad.acc, quad.a, quad.w), InstructionMaddubs(quad)) << Print(quad);
  }
}

TEST(Models, MaddubsEqualsTheInstruction) {
  if (!__builtin_cpu_supports("ssse3")) GTEST_SKIP() << "ssse3 is not available";
  for (const Quad& quad : Quads()) {
    const Quad pair = {0, {quad.a[0], quad.a[1]}, {quad.w[0], quad.w[1]}};
    ASSERT_EQ(Maddubs(quad.a[0], quad.a[1], quad.w[0], quad.w[1]), InstructionMaddubs(pair)) << Print(quad);
  }
}

TEST(Models, Int16SumsEqualTheInstructions) {
  if (!__builtin_cpu_supports("ssse3")) GTEST_SKIP() << "ssse3 is not available";
  support::Random random(7, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    Depth a, w;
    for (uint8_t& byte : a) byte = static_cast<uint8_t>(random.Next());
    // With small weights some lanes stay within int16.
    for (uint8_t& byte : w) byte = static_cast<uint8_t>(random.Integer(-128, 127) >> (i % 8));
    std::array<int8_t, std::tuple_size_v<Depth>> weights;
    std::memcpy(weights.data(), w.data(), w.size());
    for (const bool wraps : {false, true}) {
      Model model = {.sum = Summation::kInt16, .spill = kWholeDepth, .lanes = 8, .wraps = wraps};
      ASSERT_EQ(Accumulate(model, 0, a, weights), InstructionInt16(a, w, false, wraps));
      // The model shifts activations by 128, and compensates for it.
      model.signs = Signs::kMoved;
      Depth shifted = a;
      for (uint8_t& byte : shifted) byte ^= 0x80;
      const int32_t compensation = 128 * std::accumulate(weights.begin(), weights.end(), 0);
      ASSERT_EQ(Accumulate(model, 0, shifted, weights) - compensation, InstructionInt16(a, w, true, wraps));
    }
  }
}

TEST(Models, DpbusdEqualsTheInstruction) {
  if (!HasAvx512Vnni()) INTACT_SKIP_ISA("avx512_vnni");
  for (const Quad& quad : Quads()) {
    ASSERT_EQ(Dpbusd(quad.acc, quad.a, quad.w), InstructionDpbusd(quad)) << Print(quad);
    ASSERT_EQ(Accumulate(Model::kExact, quad.acc, quad.a, quad.w), InstructionDpbusd(quad)) << Print(quad);
  }
}

TEST(Models, DpbusdsEqualsTheInstruction) {
  if (!HasAvx512Vnni()) INTACT_SKIP_ISA("avx512_vnni");
  for (const Quad& quad : Quads()) {
    ASSERT_EQ(Dpbusds(quad.acc, quad.a, quad.w), InstructionDpbusds(quad)) << Print(quad);
    ASSERT_EQ(Accumulate(FromCompensation(), quad.acc, quad.a, quad.w), InstructionDpbusds(quad))
        << Print(quad);
  }
}

TEST(Models, ClampOnlyWhereTheyAreSaidTo) {
  const std::vector<uint8_t> a = {255, 255, 255, 255, 255};
  const std::vector<int8_t> w = {127, 127, -128, -128, 127};
  EXPECT_EQ(Accumulate(Model::kExact, 7, a, w), 7 + 255 * 125);
  EXPECT_EQ(Accumulate(Model::kMaddubs, 7, a, w), 7 + 32767 - 32768 + 255 * 127);
  EXPECT_EQ(Accumulate(FromCompensation(), kInt32Max, a, w), kInt32Max);
  EXPECT_EQ(CountClampedPairs(a, w), 2);
}

// The first quad leaves int32 from the compensation on, the second quad goes back.
TEST(Models, DpbusdsClampsFromTheCompensationOnOrNot) {
  const std::vector<uint8_t> a(8, 255);
  const std::vector<int8_t> w = {100, 100, 100, 100, -100, -100, -100, -90};
  constexpr int32_t kUp = 255 * 400, kDown = 255 * 390;
  Model model = Model::kDpbusds;
  const auto from = [&](CompensationTime time, int32_t compensation) {
    model.compensation = time;
    return Accumulate(model, compensation, a, w);
  };
  EXPECT_EQ(from(CompensationTime::kFirst, kInt32Max - 1), kInt32Max - kDown);
  EXPECT_EQ(from(CompensationTime::kFirst, kInt32Max - kUp), kInt32Max - kDown);
  EXPECT_EQ(from(CompensationTime::kFirst, 5), 5 + kUp - kDown);
  EXPECT_EQ(from(CompensationTime::kLast, kInt32Max - 1), kInt32Min + kUp - kDown - 2);
  EXPECT_EQ(from(CompensationTime::kLastClamped, kInt32Max - 1), kInt32Max);
  EXPECT_EQ(from(CompensationTime::kLastClamped, 5), 5 + kUp - kDown);
}

// Sums of eight int16 lanes, each widened after every `spill` products: VPMULLW, VPADDW.
int32_t InstructionProducts16(std::span<const uint8_t> a, std::span<const int8_t> w, size_t spill) {
  const auto widened = [](__m128i sum) {
    int16_t lanes[8];
    std::memcpy(lanes, &sum, sizeof lanes);
    return std::accumulate(std::begin(lanes), std::end(lanes), 0);
  };
  int32_t total = 0;
  __m128i sum = _mm_setzero_si128();
  for (size_t k = 0; k < a.size(); k += 8) {
    const __m128i zero = _mm_setzero_si128();
    const __m128i x = _mm_unpacklo_epi8(Load(&a[k], 8), zero);
    const __m128i y = _mm_srai_epi16(_mm_unpacklo_epi8(zero, Load(&w[k], 8)), 8);
    sum = _mm_add_epi16(sum, _mm_mullo_epi16(x, y));
    if ((k / 8 + 1) % spill != 0) continue;
    total += widened(sum);
    sum = _mm_setzero_si128();
  }
  return total + widened(sum);
}

// The float32 sums of ggml's kernels for AVX2: a lane for each quad of 32 depths, lanes added in halves.
__attribute__((target("avx2"))) int32_t InstructionFloat32(std::span<const uint8_t> a,
                                                           std::span<const int8_t> w) {
  __m256 sums = _mm256_setzero_ps();
  for (size_t k = 0; k < a.size(); k += 32) {
    int32_t quads[8];
    for (size_t lane = 0; lane < 8; ++lane) quads[lane] = Dpbusd(0, &a[k + 4 * lane], &w[k + 4 * lane]);
    __m256i integers;
    std::memcpy(&integers, quads, sizeof quads);
    sums = _mm256_add_ps(sums, _mm256_cvtepi32_ps(integers));
  }
  __m128 half = _mm_add_ps(_mm256_extractf128_ps(sums, 1), _mm256_castps256_ps128(sums));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  half = _mm_add_ss(half, _mm_movehdup_ps(half));
  return static_cast<int32_t>(_mm_cvtss_f32(half));
}

TEST(Models, SumsOfProductsEqualTheInstructions) {
  support::Random random(8, 0, 0);
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  int64_t wrapped = 0, rounded = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<uint8_t> a(64 * 40);
    std::vector<int8_t> w(a.size());
    for (uint8_t& byte : a) byte = static_cast<uint8_t>(random.Integer(100, 255));
    for (int8_t& byte : w) byte = static_cast<int8_t>(random.Integer(i % 100, 127));
    const int32_t exact = Accumulate(Model::kExact, 0, a, w);
    for (const int32_t spill : {2, 16, kWholeDepth}) {
      const Model model = {.sum = Summation::kProducts16, .spill = spill, .lanes = 8};
      const size_t interval = spill == kWholeDepth ? a.size() : static_cast<size_t>(spill);
      const int32_t sum = InstructionProducts16(a, w, interval);
      ASSERT_EQ(Accumulate(model, 0, a, w), sum) << ToString(model);
      wrapped += sum != exact ? 1 : 0;
    }
    if (!has_avx2) continue;
    const int32_t sum = InstructionFloat32(a, w);
    ASSERT_EQ(Accumulate({.sum = Summation::kFloat32, .lanes = 8}, 0, a, w), sum);
    rounded += sum != exact ? 1 : 0;
  }
  EXPECT_GT(wrapped, 1000);
  EXPECT_GT(rounded, has_avx2 ? 100 : -1);
}

TEST(Models, PairsBeginAnewWhereTheDepthIsCutInTwo) {
  const std::vector<uint8_t> a(11, 255);
  const std::vector<int8_t> w(11, 127);
  Model model = Model::kMaddubs;
  EXPECT_EQ(Accumulate(model, 0, a, w), 5 * 32767 + 255 * 127);
  const auto cut = [&](int32_t from, int32_t to, size_t depths) {
    model.cut = {from, to};
    return Accumulate(model, 0, std::span(a).first(depths), std::span(w).first(depths));
  };
  EXPECT_EQ(cut(9, 11, 9), 2 * 32767 + 255 * 127 + 2 * 32767);  // 5 depths, then 4
  EXPECT_EQ(cut(9, 11, 10), 2 * (2 * 32767 + 255 * 127));
  EXPECT_EQ(cut(9, 11, 11), 5 * 32767 + 255 * 127);  // 6 depths, then 5
  EXPECT_EQ(cut(1, 9, 10), 5 * 32767);
  EXPECT_EQ(cut(11, 12, 10), 5 * 32767);
}

TEST(Models, AnOddDepthIsPaddedWithZeros) {
  const std::vector<uint8_t> a = {255, 3, 255};
  const std::vector<int8_t> w = {127, 4, -128};
  for (const Model model : {Model::kExact, Model::kMaddubs, Model::kDpbusds}) {
    EXPECT_EQ(Accumulate(model, -5, a, w), -5 + 255 * 127 + 12 - 255 * 128) << ToString(model);
  }
}

TEST(Models, ExactIsModulo32Bits) {
  const std::vector<uint8_t> a = {1};
  const std::vector<int8_t> w = {1};
  EXPECT_EQ(Accumulate(Model::kExact, kInt32Max, a, w), kInt32Min);
}

}  // namespace
}  // namespace intact::reference

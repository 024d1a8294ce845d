// The kernels' quantizer, which multiplies by a reciprocal, compared with the definition, which divides.
#include "kernels/codegen/quantizer.h"
#include "core/isas.h"
#include "core/types.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/contract/quantize.h"
#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::kernels {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

constexpr int kTies = 256;   // (n + 0.5)·scale, n from 0
constexpr int kNearest = 2;  // floats on either side of each tie

// The floats around every tie of `scale` within the range of activations, of both signs.
std::vector<float> AboutTies(float scale) {
  std::vector<float> numbers;
  for (int n = 0; n < kTies; ++n) {
    const float tie = (static_cast<float>(n) + 0.5f) * scale;
    if (!std::isfinite(tie)) break;
    const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(tie));
    for (int64_t near = -kNearest; near <= kNearest; ++near) {
      if (bits + near < 0) continue;
      const float x = std::bit_cast<float>(static_cast<uint32_t>(bits + near));
      if (std::isfinite(x)) numbers.insert(numbers.end(), {x, -x});
    }
  }
  return numbers;
}

void ExpectDivision(const Quantizer& quantizer, intact_type type, float scale, int32_t zero_point) {
  const std::vector<float> x = AboutTies(scale);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(x.data());
  std::vector<uint8_t> a(x.size());
  quantizer.Quantize(bytes, std::ssize(x), {scale, zero_point}, a.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto expected = static_cast<uint8_t>(reference::Quantize(x[i], type, {scale, zero_point}));
    ASSERT_EQ(a[i], expected) << std::hexfloat << x[i] << " by " << scale;
  }
}

class QuantizerTest : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
};

TEST_P(QuantizerTest, RoundsAsDivisionDoes) {
  // The limits of scales with a reciprocal, scales without one, and the largest and smallest mantissas.
  std::vector<float> scales = {0x1p-60f,
                               0x1p60f,
                               std::nextafter(0x1p-60f, 0.0f),
                               std::nextafter(0x1p60f, 1e30f),
                               1.0f,
                               0x1.fffffep0f,
                               0x1.000002p0f,
                               0x1p-126f,
                               0x1p-149f,
                               std::numeric_limits<float>::max() / 255.0f};
  support::Random random(1, 0, 0);
  for (int i = 0; i < 40; ++i) {
    const auto mantissa = static_cast<uint32_t>(random.Integer(0, (1 << 23) - 1));
    const auto exponent = static_cast<uint32_t>(random.Integer(60, 190));
    scales.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
  }
  for (const intact_type type : {INTACT_U8, INTACT_S8}) {
    const Result<Quantizer> quantizer =
        Quantizer::Create(static_cast<core::Isa>(GetParam()), type, INTACT_F32);
    ASSERT_TRUE(quantizer) << quantizer.error().message;
    for (const float scale : scales) {
      ExpectDivision(*quantizer, type, scale, 0);
      if (type == INTACT_U8) ExpectDivision(*quantizer, type, scale, 131);
    }
  }
}

TEST_P(QuantizerTest, FindsTheRange) {
  const Result<Quantizer> quantizer =
      Quantizer::Create(static_cast<core::Isa>(GetParam()), INTACT_U8, INTACT_F32);
  ASSERT_TRUE(quantizer) << quantizer.error().message;
  // Each lane of each vector in turn has the largest and the smallest number.
  for (size_t count : {1, 15, 16, 63, 64, 65, 200}) {
    for (size_t at = 0; at < count; ++at) {
      std::vector<float> x(count, 0.25f);
      x[at] = 3.0f;
      x[count - 1 - at] = count == 2 * at + 1 ? 3.0f : -2.0f;
      const NumberRange range = quantizer->Scan(reinterpret_cast<const uint8_t*>(x.data()), std::ssize(x));
      ASSERT_EQ(std::bit_cast<float>(range.positive), 3.0f) << at << " of " << count;
      if (count != 2 * at + 1) {
        ASSERT_EQ(std::bit_cast<float>(range.negative), -2.0f) << at << " of " << count;
      }
    }
  }
}

[[gnu::target("f16c")]] uint16_t HalfOf(float number) { return static_cast<uint16_t>(_cvtss_sh(number, 0)); }

TEST_P(QuantizerTest, TakesAnyNumberOfNumbers) {
  constexpr RowQuantization kHow = {0.01f, 17};
  constexpr int64_t kMost = 200;
  support::Random random(7, 8, 9);
  for (const intact_type source : core::kSourceTypes) {
    const Result<Quantizer> quantizer =
        Quantizer::Create(static_cast<core::Isa>(GetParam()), INTACT_U8, source);
    ASSERT_TRUE(quantizer) << quantizer.error().message;
    for (int64_t count = 1; count <= kMost; ++count) {
      SCOPED_TRACE(testing::Message() << count << " of " << core::NameOf(source));
      const auto x = verify::GuardedBuffer::Allocate(static_cast<size_t>(count * core::BytesOf(source)));
      const auto a = verify::GuardedBuffer::Allocate(static_cast<size_t>(count));
      ASSERT_TRUE(x && a);
      std::vector<uint8_t> expected;
      float high = 0, low = 0;
      for (int64_t i = 0; i < count; ++i) {
        // Multiples of 1/8 below 4 are exact in all types.
        const float number = static_cast<float>(random.Integer(-31, 31)) / 8;
        uint8_t* const to = x->data().data() + i * core::BytesOf(source);
        if (source == INTACT_F32) {
          std::memcpy(to, &number, sizeof number);
        } else {
          const auto half = source == INTACT_F16
                                ? HalfOf(number)
                                : static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
          std::memcpy(to, &half, sizeof half);
        }
        high = std::max(high, number);
        low = std::min(low, number);
        expected.push_back(
            static_cast<uint8_t>(reference::Quantize(number, INTACT_U8, {kHow.scale, kHow.zero_point})));
      }
      quantizer->Quantize(x->data().data(), count, kHow, a->data().data());
      EXPECT_TRUE(a->FrontIntact());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), a->data().begin()));
      const NumberRange range = quantizer->Scan(x->data().data(), count);
      ASSERT_EQ(std::bit_cast<float>(range.positive), high);
      ASSERT_EQ(low == 0 ? 0.0f : std::bit_cast<float>(range.negative), low);
    }
  }
}

// k numbers: the largest ones, which are first, and numbers about ties of the scale that they make.
std::vector<float> RowAboutTies(int64_t k, intact_type a_type, support::Random* random) {
  const auto largest =
      static_cast<float>(std::ldexp(1 + random->Unit(), static_cast<int>(random->Integer(-9, 9))));
  const bool is_signed = a_type == INTACT_S8, has_both = k > 1 && random->Integer(0, 1) == 0;
  std::vector<float> row = {largest};
  if (has_both) row.push_back(-largest);
  std::vector<float> about =
      AboutTies((has_both && !is_signed ? 2 * largest : largest) / (is_signed ? 127 : 255));
  std::erase_if(about, [&](float x) { return std::abs(x) > largest || (x < 0 && !has_both); });
  while (std::ssize(row) < k) {
    row.push_back(about[static_cast<size_t>(random->Integer(0, std::ssize(about) - 1))]);
  }
  return row;
}

// A number of row `row`: each row has numbers of another magnitude, and some rows have no scale, or a scale
// without a reciprocal.
float NumberOf(int64_t row, support::Random* random) {
  const auto bell = static_cast<float>(random->Gauss());
  switch (row % 11) {
    case 0:
      return 0.0f;
    case 3:
      return bell * 0x1p-130f;
    case 5:
      return random->Integer(0, 3) == 0 ? std::numeric_limits<float>::infinity() : bell;
    case 7:
      return random->Integer(0, 3) == 0 ? -std::numeric_limits<float>::quiet_NaN() : -std::abs(bell);
    case 9:
      return random->Integer(0, 3) == 0 ? std::numeric_limits<float>::quiet_NaN() : bell;
    case 4:
      return -0.0f;
    case 6:
      return std::copysign(0x1p127f, bell);
    case 8:
      return std::abs(bell) * 0x1p126f;
    default:
      return std::ldexp(bell, static_cast<int>(row % 7) - 3);
  }
}

std::vector<float> RowOf(int64_t number, int64_t k, intact_type a_type, support::Random* random) {
  if (number % 3 == 1) return RowAboutTies(k, a_type, random);
  std::vector<float> row(static_cast<size_t>(k));
  std::ranges::generate(row, [&] { return NumberOf(number, random); });
  return row;
}

TEST_P(QuantizerTest, QuantizesRowsLikeEachRow) {
  support::Random random(3, 1, 4);
  for (const intact_type source : core::kSourceTypes) {
    for (const intact_type a_type : {INTACT_U8, INTACT_S8}) {
      const Result<Quantizer> quantizer =
          Quantizer::Create(static_cast<core::Isa>(GetParam()), a_type, source);
      ASSERT_TRUE(quantizer) << quantizer.error().message;
      const int64_t bytes = core::BytesOf(source);
      for (const int64_t k : {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65}) {
        for (const int64_t count : {1, 3, 4, 5, 8, 9, 31, 32, 33, 36, 70}) {
          SCOPED_TRACE(testing::Message() << count << " rows of " << k << " " << core::NameOf(source));
          const int64_t stride = count % 2 == 0 ? 128 : (k + 3) / 4 * 4;
          const auto x = verify::GuardedBuffer::Allocate(static_cast<size_t>(count * k * bytes));
          const auto a = verify::GuardedBuffer::Allocate(static_cast<size_t>((count - 1) * stride + k));
          ASSERT_TRUE(x && a);
          std::vector<float> numbers;
          for (int64_t row = 0; row < count; ++row) {
            const std::vector<float> own = RowOf(row, k, a_type, &random);
            numbers.insert(numbers.end(), own.begin(), own.end());
          }
          for (int64_t i = 0; i < count * k; ++i) {
            const float number = numbers[static_cast<size_t>(i)];
            const auto half = source == INTACT_F16
                                  ? HalfOf(number)
                                  : static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
            uint8_t* const to = x->data().data() + i * bytes;
            source == INTACT_F32 ? std::memcpy(to, &number, sizeof number)
                                 : std::memcpy(to, &half, sizeof half);
          }
          const RowMap rows = RowMap::From(5, x->data().data(), k * bytes);
          std::vector<RowValues> values(static_cast<size_t>(count));
          quantizer->QuantizeRows(rows, 5, 5 + count, k, a->data().data(), stride, values.data());
          EXPECT_TRUE(a->FrontIntact());
          for (int64_t row = 0; row < count; ++row) {
            SCOPED_TRACE(row);
            const RowQuantization how = quantizer->Choose(quantizer->Scan(rows.At(5 + row), k));
            std::vector<uint8_t> expected(static_cast<size_t>(k));
            quantizer->Quantize(rows.At(5 + row), k, how, expected.data());
            const RowValues& own = values[static_cast<size_t>(row)];
            ASSERT_EQ(own.zero_point, how.zero_point);
            ASSERT_EQ(std::bit_cast<uint32_t>(own.scale), std::bit_cast<uint32_t>(how.scale));
            const uint8_t* const from = a->data().data() + row * stride;
            ASSERT_EQ(std::vector<uint8_t>(from, from + k), expected);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizerTest, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

// ----- the proof -------------------------------------------------------------------------------------------

// Whether eight x, `near` floats from the tie of n, have equal results.
[[gnu::target("avx2,fma")]] bool AreAlike(__m256 scale, __m256 high, __m256 low, __m256 n, int near) {
  const __m256 ties = _mm256_mul_ps(_mm256_add_ps(n, _mm256_set1_ps(0.5f)), scale);
  const __m256 x = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(ties), _mm256_set1_epi32(near)));
  const __m256i quotients = _mm256_cvtps_epi32(_mm256_div_ps(x, scale));
  const __m256i products = _mm256_cvtps_epi32(_mm256_fmadd_ps(x, high, _mm256_mul_ps(x, low)));
  return _mm256_movemask_epi8(_mm256_cmpeq_epi32(quotients, products)) == -1;
}

[[gnu::target("avx2,fma")]] int64_t CountDifferences(uint32_t mantissa) {
  const float scale = std::bit_cast<float>(0x3F800000 | mantissa);
  const float nearest = 1.0f / scale;
  const auto rest = static_cast<float>((1.0 - double{scale} * double{nearest}) / double{scale});
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256 high = _mm256_set1_ps(nearest);
  const __m256 low = _mm256_set1_ps(rest);
  int64_t differences = 0;
  for (int first = 0; first < kTies; first += 8) {
    const __m256 n =
        _mm256_add_ps(_mm256_set1_ps(static_cast<float>(first)), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    for (int near = -kNearest; near <= kNearest; ++near) {
      differences += AreAlike(scales, high, low, n, near) ? 0 : 1;
    }
  }
  return differences;
}

// All scales in [1, 2): without underflow and overflow, exponents change nothing, nor does a sign. More than
// two floats from a tie both round alike, because the sum is within a unit in the last place of the quotient.
TEST(QuantizerProof, AllMantissasAndTies) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr uint32_t kStep = 1;
#else
  constexpr uint32_t kStep = 61;  // all steps would take minutes
#endif
  int64_t differences = 0;
  for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += kStep)
    differences += CountDifferences(mantissa);
  EXPECT_EQ(differences, 0);
}

}  // namespace
}  // namespace intact::kernels

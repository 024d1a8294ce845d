// Row sums on every ISA compared with plain addition, on rows that end at an unmapped page.
#include "kernels/codegen/row_sums.h"
#include "core/isas.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::kernels {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

class RowSumsTest : public testing::TestWithParam<intact_isa> {};

void ExpectSums(core::Isa isa, intact_type type, int64_t rows, int64_t k, int64_t stride) {
  SCOPED_TRACE(testing::Message() << (type == INTACT_S8 ? "s8 " : "u8 ") << rows << "x" << k << " by "
                                  << stride);
  const auto a = verify::GuardedBuffer::Allocate(static_cast<size_t>((rows - 1) * stride + k));
  const auto sums = verify::GuardedBuffer::Allocate(static_cast<size_t>(rows) * sizeof(int32_t));
  ASSERT_TRUE(a && sums);
  support::Random random(1, 0, 0);
  for (uint8_t& value : a->data())
    value = static_cast<uint8_t>(random.Integer(0, 3) == 0 ? 255 : random.Next());
  auto* const actual = reinterpret_cast<int32_t*>(sums->data().data());
  const Result<RowSums> kernel = RowSums::Create(isa, type);
  ASSERT_TRUE(kernel) << kernel.error().message;
  Taps taps;
  taps.depth = k;
  kernel->Sum(RowMap(a->data().data(), stride), 0, rows, taps, actual);
  EXPECT_TRUE(sums->FrontIntact());
  for (int64_t row = 0; row < rows; ++row) {
    int32_t expected = 0;
    for (int64_t i = 0; i < k; ++i) {
      const uint8_t value = a->data()[static_cast<size_t>(row * stride + i)];
      expected += type == INTACT_S8 ? static_cast<int8_t>(value) + 128 : value;
    }
    ASSERT_EQ(actual[row], expected) << "row " << row;
  }
}

TEST_P(RowSumsTest, AreWhatKernelsSee) {
  if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  for (const intact_type type : {INTACT_U8, INTACT_S8}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 13}) {
      for (const int64_t k : {1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 127, 128, 191, 4099}) {
        ExpectSums(static_cast<core::Isa>(GetParam()), type, rows, k, k);
        ExpectSums(static_cast<core::Isa>(GetParam()), type, rows, k, k + 5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowSumsTest, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

}  // namespace
}  // namespace intact::kernels

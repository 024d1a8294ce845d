#include "verify/explain/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/mutants/mutants.h"
#include "verify/explain/judge.h"

namespace intact::verify {
namespace {

using testing::HasSubstr;

std::string ClaimOfLine(std::string_view claims, std::string_view line) {
  return ClaimOf(claims, KindOf(*Problem::Parse(line)));
}

TEST(ClaimOf, IsTheFirstOfTheOperation) {
  constexpr std::string_view kClaims =
      "u8s8: maddubs; half away from zero|depthwise u8u8s32 : any |\tconv  s8u8: maddubs | deconvolution: "
      "dpbusds | exact";
  const std::string conv = " in=4x4 c=4 o=4 kernel=3x3", depthwise = conv + " groups=4";
  EXPECT_EQ(ClaimOfLine(kClaims, "gemm u8s8u8 m=1 n=1 k=1"), "maddubs; half away from zero");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv u8s8s32" + depthwise), "maddubs; half away from zero");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv u8u8s32" + depthwise), "any");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv u8u8f32" + depthwise), "exact");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv s8u8f32" + conv), "maddubs");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv s8s8f32" + conv), "exact");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv s8u8f32 transposed=yes" + conv), "dpbusds");
  EXPECT_EQ(ClaimOfLine(kClaims, "conv u8u8s32 transposed=yes" + depthwise), "dpbusds");
  EXPECT_EQ(ClaimOfLine(kClaims, "gemm s8s8s32 m=1 n=1 k=1"), "exact");
  EXPECT_EQ(ClaimOfLine("any", "gemm s8s8s32 m=1 n=1 k=1"), "any");
}

TEST(CheckClaims, SaysWhatIsWrong) {
  for (const char* good :
       {"exact", "any", "maddubs", "u8s8: maddubs | exact", "conv u8s8u8: any | gemm: exact | any"}) {
    EXPECT_EQ(CheckClaims(good), std::nullopt) << good;
  }
  const auto error = [](std::string_view claims) { return CheckClaims(claims).value_or("nothing"); };
  EXPECT_THAT(error("tripel"), HasSubstr(R"(claims "tripel"; expected "exact")"));
  EXPECT_THAT(error("u8s8: tripel | exact"), HasSubstr(R"(claims "tripel"; expected)"));
  EXPECT_THAT(error(""), HasSubstr(R"(claims ""; expected "exact")"));
  EXPECT_THAT(error("u8s8: maddubs"), HasSubstr("before each claim but the last"));
  EXPECT_THAT(error("maddubs | exact"), HasSubstr("before each claim but the last"));
  EXPECT_THAT(error("u8x8: maddubs | exact"),
              HasSubstr(R"(something of "u8x8"; expected one of gemm, conv, depthwise, deconvolution)"));
  EXPECT_THAT(error("u8s8f: maddubs | exact"), HasSubstr(R"(something of "u8s8f")"));
  EXPECT_THAT(error("grouped u8s8: any | exact"),
              HasSubstr(R"(something of "grouped u8s8"; expected "grouped")"));
  EXPECT_THAT(error("gemm grouped: any | exact"),
              HasSubstr(R"(something of "gemm grouped"; expected "grouped")"));
  EXPECT_EQ(CheckClaims("grouped: any | exact"), std::nullopt);
  EXPECT_THAT(error(": maddubs | exact"), HasSubstr("before each claim but the last"));
}

// Clamps pairs of u8 activations, which a claim can express.
class Clamping : public ReferenceTarget {
 public:
  explicit Clamping(std::string claims) : claims_(std::move(claims)) {}
  std::string Arithmetic() const override { return claims_; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation, const RunOptions&) const override {
    const bool clamps = LinearOf(operation).a_type == INTACT_U8;
    return reference::Predict(operation, {clamps ? reference::Model::kMaddubs : reference::Model::kExact});
  }

 private:
  std::string claims_;
};

TEST(Claims, AreHeldToByOperation) {
  const Problem clamped = *Problem::Parse("gemm u8s8s32 m=4 n=8 k=16 fill=bait");
  const Problem exact = *Problem::Parse("gemm s8s8s32 m=4 n=8 k=16 fill=bait");
  const Clamping truthful("u8s8: maddubs | exact");
  EXPECT_FALSE(Fails(truthful, clamped));
  EXPECT_FALSE(Fails(truthful, exact));
  EXPECT_EQ(Judge(truthful, clamped)->failure, "");
  const Clamping lying("s8s8: maddubs | exact");
  EXPECT_TRUE(Fails(lying, clamped));
  EXPECT_TRUE(Fails(lying, exact));
  EXPECT_THAT(Judge(lying, clamped)->failure, HasSubstr("int16 saturation"));
  EXPECT_EQ(Judge(lying, clamped)->kind.Text(), "wrong output: int16 saturation, maddubs");
  EXPECT_THAT(Judge(lying, exact)->failure, HasSubstr("; all are exact"));
  EXPECT_EQ(Judge(lying, exact)->kind.Text(), "outputs that are not as claimed: all are exact");
}

}  // namespace
}  // namespace intact::verify

#include "verify/sweep/sweep_problems.h"

#include <algorithm>

#include "core/types.h"

namespace intact::verify {
namespace {

constexpr int32_t kU8ZeroPoints[] = {0, 3, 128, 255, 127};
constexpr int32_t kS8ZeroPoints[] = {0, -5, 127, -128, 1};

// Seven of 17 are plain s8, which most kernels are made for; 17 is coprime to the lengths of all other lists.
constexpr WeightKind kWeightKinds[] = {
    {INTACT_S8, 0},
    {INTACT_U8, 128},
    {INTACT_S8, 0},
    {INTACT_U8, 0},
    {INTACT_S8, 0},
    {INTACT_S8, 7},
    {INTACT_U8, 131, ZeroPointKind::kChannel},
    {INTACT_S8, 0},
    {INTACT_S8, -128, ZeroPointKind::kChannel},
    {INTACT_U8, 255},
    {INTACT_S8, 0},
    {INTACT_S8, -128},
    {INTACT_U8, 3},
    {INTACT_S8, 0},
    {INTACT_U8, 0, ZeroPointKind::kChannel},
    {INTACT_S8, 127},
    {INTACT_S8, 0},
};
static_assert(std::size(kWeightKinds) == kWeightKindCount);
static_assert(std::size(kU8ZeroPoints) == kZeroPointCount && std::size(kS8ZeroPoints) == kZeroPointCount);

}  // namespace

TypeCycle::TypeCycle()
    : u8_za_(kU8ZeroPoints),
      s8_za_(kS8ZeroPoints),
      u8_zc_(kU8ZeroPoints),
      s8_zc_(kS8ZeroPoints),
      weight_kinds_(kWeightKinds) {}

void TypeCycle::Set(intact_type a, intact_type c, Problem* problem) {
  problem->a_type = a;
  problem->c_type = c;
  problem->za = (a == INTACT_U8 ? u8_za_ : s8_za_).Next();
  const WeightKind weights = weight_kinds_.Next();
  problem->b_type = weights.type;
  problem->zb = weights.zb;
  problem->zb_kind = weights.kind;
  if (c == INTACT_U8) problem->zc = u8_zc_.Next();
  if (c == INTACT_S8) problem->zc = s8_zc_.Next();
  problem->scale = c == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
}

void TypeCycle::SetResidual(intact_type type, int64_t pad, bool in_place, Problem* problem) {
  problem->residual = type;
  if (type != INTACT_F32) problem->zres = (type == INTACT_U8 ? u8_zc_ : s8_zc_).Next();
  problem->in_place = in_place && core::BytesOf(type) == core::BytesOf(problem->c_type);
  problem->res_pad = problem->in_place ? 0 : pad;
}

void SetActivationRange(int32_t range_max, intact_range_check check, Problem* problem) {
  problem->range_max = range_max;
  problem->range_check = check;
  const int32_t lowest = core::LowestOf(problem->a_type);
  problem->za = std::clamp(problem->za, lowest + problem->range_min, lowest + range_max);
}

}  // namespace intact::verify

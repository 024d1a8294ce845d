// Products with grouped weights (intact/grouped.h). The bytes choose a random problem, and now and then a field of
// its descriptor or of its arguments that gets a wrong value.
#include <fmt/format.h>
#include <intact/grouped.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "fuzz/call.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "support/random.h"
#include "verify/problem/random_problem.h"
#include "verify/targets/guarded_grouped.h"
#include "verify/targets/intact_target.h"

namespace intact::fuzz {
namespace {

constexpr int64_t kTooLong = (int64_t{1} << 40) + 1, kTooMany = int64_t{1} << 31;
constexpr int32_t kNoType = 99;

// Sets a field to a value that is always refused.
void SpoilDesc(Input* input, intact_grouped_desc* desc) {
  const int64_t negative = input->Pick({int64_t{-1}, std::numeric_limits<int64_t>::min()});
  switch (input->Integer(0, 19)) {
    case 0:
      desc->n = input->Pick({int64_t{0}, negative, kTooMany});
      break;
    case 1:
      desc->k = input->Pick({int64_t{0}, negative, kTooMany});
      break;
    case 2:
      desc->group = input->Pick({negative, int64_t{1}, int64_t{33}, int64_t{512}});
      break;
    case 3:
      desc->a_source_type = input->Pick({int32_t{INTACT_U8}, int32_t{INTACT_S32}, kNoType});
      break;
    case 4:
      desc->a_type = input->Pick({int32_t{INTACT_F32}, int32_t{INTACT_U4}, kNoType});
      break;
    case 5:
      desc->a_granularity = input->Pick({-1, 2, std::numeric_limits<int32_t>::max()});
      break;
    case 6:
      desc->b_type = input->Pick({int32_t{INTACT_F32}, int32_t{INTACT_TYPE_NONE}, kNoType});
      break;
    case 7:
      desc->b_stride_n = input->Pick({negative, kTooLong});
      break;
    case 8:
      desc->b_stride_k = input->Pick({negative, kTooLong});
      break;
    case 9:
      desc->b_scales = nullptr;
      break;
    case 10:
      desc->scale_stride_n = input->Pick({negative, kTooLong});
      break;
    case 11:
      desc->scale_stride_g = input->Pick({negative, kTooLong});
      break;
    case 12:
      desc->scale_type = input->Pick({int32_t{INTACT_U8}, kNoType});
      break;
    case 13:
      desc->c_type = input->Pick({int32_t{INTACT_S32}, int32_t{INTACT_U8}, kNoType});
      break;
    case 14:
      desc->activation = input->Pick({-1, int32_t{kNoType}});
      break;
    case 15:
      desc->max_isa = input->Pick({-2, int32_t{kNoType}});
      break;
    case 16:
      desc->experts = input->Pick({int64_t{0}, negative, int64_t{65537}});
      break;
    case 17:
      desc->b_stride_expert = input->Pick({negative, kTooLong});
      break;
    case 18:
      desc->scale_stride_expert = input->Pick({negative, kTooLong});
      break;
    default:
      desc->activation = INTACT_ACTIVATION_CLAMP;
      desc->clamp_min = input->Pick({std::numeric_limits<float>::quiet_NaN(), 2.0f});
      desc->clamp_max = 1.0f;
  }
}

// Sets an argument to a value that is always refused. Runs have at least a row.
void SpoilArgs(Input* input, const reference::Grouped& grouped, intact_grouped_args* args) {
  static constexpr float kScale = 1;
  static constexpr int32_t kZeroPoint = 0;
  static constexpr std::array<int64_t, 2> kRows = {-1, -1};
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  const int64_t negative = input->Pick({int64_t{-1}, std::numeric_limits<int64_t>::min()});
  switch (input->Integer(0, 12)) {
    case 0:
      args->m = input->Pick({negative, kTooMany});
      break;
    case 1:
      args->a = nullptr;
      break;
    case 2:
      args->c = nullptr;
      break;
    case 3:
      args->a_stride = input->Pick({negative, kTooLong});
      break;
    case 4:
      args->c_stride = input->Pick({negative, kTooLong});
      break;
    case 5:
      args->a_scales = is_dynamic ? &kScale : nullptr;
      break;
    case 6:
      args->threads = input->Pick({-1, std::numeric_limits<int32_t>::min()});
      break;
    case 7:
      args->reserved = input->Pick({1, -1});
      break;
    case 8:
      args->scratch_bytes = input->Pick({size_t{1}, std::numeric_limits<size_t>::max()});
      break;
    case 9:
      args->batch = input->Pick({int64_t{-1}, std::numeric_limits<int64_t>::max()});
      break;
    case 10:
      args->a_batch_stride = args->c_batch_stride = input->Pick({negative, kTooLong});
      break;
    case 11:
      // All rows belong to no expert; or the number of rows is not that of the only expert.
      args->expert_rows = grouped.experts > 1 ? nullptr : kRows.data();
      break;
    default:
      if (is_dynamic) args->a_zero_points = &kZeroPoint;
      if (!is_dynamic) args->a_scales = nullptr;
  }
}

std::string CheckCreation(Input* input, const intact_grouped_desc& good, const void* b) {
  intact_grouped_desc desc = good;
  const bool has_b = !input->OneIn(20);
  if (has_b) SpoilDesc(input, &desc);
  const Versioned<intact_grouped_desc> given(desc, input);
  intact_grouped* plan = nullptr;
  const intact_status status = intact_grouped_create(given.get(), has_b ? b : nullptr, &plan);
  if (status == INTACT_OK) {
    intact_grouped_destroy(plan);
    return "a wrong descriptor is accepted";
  }
  return plan != nullptr ? "a refused creation gives a plan"
                         : WrongRefusal("intact_grouped_create", status, true);
}

// C's bytes, with its gaps.
std::vector<uint8_t> OutputBytes(const reference::Grouped& grouped, const intact_grouped_args& args) {
  const int64_t element = core::BytesOf(grouped.c_type);
  const auto* const c = static_cast<const uint8_t*>(args.c);
  return {c, c + ((args.m - 1) * args.c_stride + grouped.n) * element};
}

std::string CheckRefusedRun(Input* input, const Grouped& plan, const reference::Grouped& grouped,
                            const intact_grouped_args& good) {
  if (good.m == 0 || good.batch == 0) return "";
  intact_grouped_args args = good;
  const int32_t part = input->Pick({0, 1, -1, 2}), parts = input->Pick({2, 1, 0, -1});
  const bool is_part = input->OneIn(4), is_wrong_part = part < 0 || part >= parts;
  if (!is_part || !is_wrong_part) SpoilArgs(input, grouped, &args);
  const std::vector<uint8_t> before = OutputBytes(grouped, good);
  const Versioned<intact_grouped_args> given(args, input);
  const intact_status status = is_part ? intact_grouped_run_part(plan.handle(), given.get(), part, parts)
                                       : intact_grouped_run(plan.handle(), given.get());
  // Parts do not read `threads`.
  if (status == INTACT_OK) return is_part && args.threads < 0 ? "" : "a wrong argument is accepted";
  std::string wrong =
      WrongRefusal(is_part ? "intact_grouped_run_part" : "intact_grouped_run", INTACT_INVALID_ARGUMENT, true);
  if (wrong.empty() && before != OutputBytes(grouped, good)) wrong = "a refused run writes";
  return wrong;
}

// A small problem.
verify::Problem Draw(Input* input) {
  support::Random random(input->Word(), 0, 0);
  verify::Problem problem = verify::DrawGrouped(&random);
  if (problem.m > 8) {
    problem.m %= 9;
    problem.item = problem.item_pad = 0;
  }
  problem.n = problem.n % 40 + 1;
  problem.threads = std::min(problem.threads, 4);
  return problem;
}

}  // namespace

std::string CheckGrouped(std::span<const uint8_t> bytes, const Tamper& tamper) {
  Input input(bytes);
  const verify::Problem problem = Draw(&input);
  const reference::Grouped grouped = verify::MaterializeGrouped(problem);
  const verify::RunOptions options = verify::RunOptionsOf(problem);
  std::string wrong;
  if (input.OneIn(2)) {
    (void)verify::CallGuarded(grouped, options, [&](const intact_grouped_desc& desc, const void* b) -> Error {
      wrong = CheckCreation(&input, desc, b);
      return {};
    });
  }
  if (!wrong.empty()) return fmt::format("{}: {}", problem.ToString(), wrong);
  const Result<intact::Grouped> plan = verify::CreatePlan(grouped, options);
  if (!plan) return fmt::format("{}: {}", problem.ToString(), plan.error().message);
  if (input.OneIn(2)) {
    (void)verify::RunGuarded(grouped, options, [&](const intact_grouped_args& args) -> Error {
      if (wrong.empty()) wrong = CheckRefusedRun(&input, *plan, grouped, args);
      return {};
    });
  }
  if (!wrong.empty()) return fmt::format("{}: {}", problem.ToString(), wrong);
  Result<std::vector<uint8_t>> output =
      problem.saved ? verify::IntactTarget().Run(grouped, options) : verify::RunOn(*plan, grouped, options);
  if (!output) return fmt::format("{}: {}", problem.ToString(), output.error().message);
  if (tamper && !output->empty()) tamper(&*output);
  if (*output == reference::Outputs(grouped)) return "";
  return fmt::format("{}: the outputs differ from the reference's", problem.ToString());
}

}  // namespace intact::fuzz

#include "verify/problem/problem.h"

#include <fmt/format.h>

#include "fuzz/check.h"
#include "fuzz/peak_memory.h"
#include "verify/explain/judge.h"
#include "verify/problem/problem_size.h"
#include "verify/targets/intact_target.h"

namespace intact::fuzz {
namespace {

using verify::Problem;

constexpr int64_t kMostBytes = int64_t{1} << 22;  // tensors of larger problems are not made

constexpr int64_t kMostProducts = 1 << 18;  // larger problems of grouped weights are not run

std::string WrongRefusal(const Error& error) {
  if (error.status != INTACT_INVALID_ARGUMENT) return fmt::format("status {}", int{error.status});
  return error.message.empty() ? "a line is refused without a message" : "";
}

// "", or why `problem` is not the problem of its own line.
std::string WrongLine(const Problem& problem) {
  if (const std::optional<Error> error = problem.Check()) return "parsed, but not valid: " + error->message;
  const Result<Problem> again = Problem::Parse(problem.ToString());
  if (!again) return "its own line is refused: " + again.error().message;
  return *again == problem ? "" : "its own line is another problem: " + problem.ToString();
}

// Runs a product with grouped weights.
std::string CheckGrouped(const Problem& p) {
  const int64_t elements = p.m * (p.k + p.a_pad + p.n + p.c_pad) + p.n * (p.k + p.b_pad);
  if (p.m * p.n * p.k > kMostProducts || elements > kMostProducts) return "";
  const auto judgement = verify::Judge(verify::IntactTarget(), p);
  if (judgement) return judgement->failure;
  return judgement.error().status == INTACT_UNSUPPORTED ? "" : judgement.error().message;
}

}  // namespace

std::string CheckProblem(std::span<const uint8_t> bytes) {
  const std::string_view line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) return WrongRefusal(problem.error());
  if (std::string wrong = WrongLine(*problem); !wrong.empty()) return wrong;
  if (problem->grouped) return CheckGrouped(*problem);

  const int64_t foreseen = verify::MemoryOf(*problem);
  if (foreseen > kMostBytes) return "";
  const PeakMemory peak;
  verify::Materialize(*problem);
  if (peak.Bytes() <= foreseen) return "";
  return fmt::format("{} takes {} bytes; expected at most {}", problem->ToString(), peak.Bytes(), foreseen);
}

}  // namespace intact::fuzz

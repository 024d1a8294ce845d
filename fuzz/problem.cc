#include "verify/problem/problem.h"

#include <fmt/format.h>

#include "fuzz/check.h"
#include "fuzz/peak_memory.h"
#include "verify/problem/problem_size.h"

namespace intact::fuzz {
namespace {

using verify::Problem;

constexpr int64_t kMostBytes = int64_t{1} << 22;  // tensors of larger problems are not made

}  // namespace

std::string CheckProblem(std::span<const uint8_t> bytes) {
  const std::string_view line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) {
    const Error& error = problem.error();
    if (error.status != INTACT_INVALID_ARGUMENT) return fmt::format("status {}", int{error.status});
    return error.message.empty() ? "a line is refused without a message" : "";
  }
  if (const std::optional<Error> error = problem->Check()) return "parsed, but not valid: " + error->message;
  const Result<Problem> again = Problem::Parse(problem->ToString());
  if (!again) return "its own line is refused: " + again.error().message;
  if (*again != *problem) return "its own line is another problem: " + problem->ToString();

  const int64_t foreseen = verify::MemoryOf(*problem);
  if (foreseen > kMostBytes) return "";
  const PeakMemory peak;
  verify::Materialize(*problem);
  if (peak.Bytes() <= foreseen) return "";
  return fmt::format("{} takes {} bytes; expected at most {}", problem->ToString(), peak.Bytes(), foreseen);
}

}  // namespace intact::fuzz

#include "verify/report/report_junit.h"

#include <fmt/format.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/counted.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

/// `text` as the value of an attribute or as an element's text. Control characters, which XML cannot hold, become "?".
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\n') {
      escaped += "&#10;";
    } else {
      escaped += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    }
  }
  return escaped;
}

/// What a line of problem ran on: "avx2.exact", "any.saturating".
std::string ClassOf(const std::string& line) {
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) return "unknown";
  return fmt::format("{}.{}", intact_isa_name(problem->isa), ToString(problem->mode));
}

}  // namespace

std::string ToJunit(std::string_view suite, const SweepResult& result, std::span<const std::string> expected,
                    const SweepResult* random) {
  std::map<std::string, std::string> cases;  // what a <testcase> contains, by problem line
  for (const SweepDigest& digest : result.digests) cases[digest.problem];
  std::vector<SweepFailure> failures = result.failures;
  if (random != nullptr) failures.insert(failures.end(), random->failures.begin(), random->failures.end());
  for (const SweepFailure& failure : failures) {
    cases[failure.problem] =
        fmt::format("<failure message=\"{}\">intact verify replay '{}'&#10;{}</failure>",
                    Escaped(failure.reason), Escaped(failure.Line()), Escaped(failure.Reason()));
  }
  for (const std::string& line : expected) cases[line] = "<skipped message=\"failed as expected\"/>";
  for (const SweepSkip& skip : result.skips) {
    cases[skip.problem] = fmt::format("<skipped message=\"{}\"/>", Escaped(skip.reason));
  }
  std::string xml = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" "
      "failures=\"{}\" "
      "errors=\"{}\" skipped=\"{}\">\n",
      Escaped(suite), cases.size() + (result.not_run > 0 ? 1 : 0), failures.size(),
      result.not_run > 0 ? 1 : 0, result.skips.size() + expected.size());
  for (const auto& [line, content] : cases) {
    xml += fmt::format("<testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", ClassOf(line), Escaped(line),
                       content);
  }
  if (result.not_run > 0) {
    xml += fmt::format(
        "<testcase classname=\"target\" name=\"{} that did not run\"><error "
        "message=\"{}\"/></testcase>\n",
        support::Counted(result.not_run, "problem"), Escaped(result.why_not_run));
  }
  return xml + "</testsuite>\n</testsuites>\n";
}

}  // namespace intact::verify

// The report on targets, several side by side. For each target: what it computes for each kind of operation,
// what the sweep found, where the target saturates, and its ramp. report.json is for programs, report.html
// for people.
//
// report.json, schema version 2:
//
//   schema           "intact-target-report"; schema_version 3; version of intact; date and command
//   machine          as in verify/report/report.h
//   targets[]        target (as --target named it), name (its own), claims (the arithmetic that it claims),
//                    passed, fitted: how many problems of the standard sweep (of) were run unchanged, were
//                    run with sizes rounded up (rounded), could not be fitted to what it takes (left_out),
//                    and have a feature that it lacks (lacking {}), computes[] (as in
//                    verify/report/sweep_file.h), sweep, failures[], saturation_map and ramp as in
//                    verify/report/report.h; instead of a map or ramp that cannot be run: a string that says
//                    why
#ifndef INTACT_VERIFY_REPORT_TARGET_REPORT_H_
#define INTACT_VERIFY_REPORT_TARGET_REPORT_H_

#include <intact/intact.hpp>
#include <span>
#include <string>
#include <vector>

#include "support/origin.h"
#include "verify/report/report.h"
#include "verify/report/report_json.h"
#include "verify/studies/ramp.h"
#include "verify/studies/saturation_map.h"
#include "verify/sweep/mixture.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/fit.h"

namespace intact::verify {

struct TargetFindings {
  std::string target;  // the value of --target
  std::string name;    // the target's own name
  std::string claims;
  FittedProblems fitted;  // the problems of the sweep
  std::vector<Mixture> computes;
  SweepResult sweep;
  Result<SaturationMap> map = Error{};
  Result<Ramp> ramp = Error{};
  bool is_unfinished = false;  // a deadline prevented map and ramp
};

struct TargetReport {
  support::Origin origin;
  support::Machine machine;
  std::vector<TargetFindings> targets;
  /// Failed if any target failed; else unfinished if a deadline prevented a part.
  SweepVerdict Verdict() const;
  bool Passed() const { return Verdict() == SweepVerdict::kPassed; }
};

/// Runs the sweep of `problems`, the map and the ramp on `target`. `named`: the user's name of `target`. After `deadline`
/// no further problem begins, and neither map nor ramp.
TargetFindings Examine(const Target& target, const std::string& named, std::span<const Problem> problems,
                       const Progress& progress, const support::Deadline& deadline = {});

std::string ToText(const TargetReport& report);
Json ToJson(const TargetReport& report);
std::string ToHtml(const TargetReport& report);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_TARGET_REPORT_H_

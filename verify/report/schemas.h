// The schemas of the JSON files that the verifier writes, for the code that writes them and the code that
// reads them.
#ifndef INTACT_VERIFY_REPORT_SCHEMAS_H_
#define INTACT_VERIFY_REPORT_SCHEMAS_H_

#include <string_view>

namespace intact::verify {

/// "schema" and "schema_version" of a file.
struct Schema {
  std::string_view name;
  int version;
};
inline constexpr Schema kReportSchema = {"intact-report", 3};               // verify/report/report.h
inline constexpr Schema kTargetReportSchema = {"intact-target-report", 3};  // verify/report/target_report.h
inline constexpr Schema kSweepSchema = {"intact-sweep", 6};                 // verify/report/sweep_file.h
inline constexpr Schema kJournalSchema = {"intact-sweep-journal", 7};       // verify/report/sweep_file.h
inline constexpr Schema kPairingSchema = {"intact-pairing", 1};  // tools/commands/verify_pairing.cc

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_SCHEMAS_H_

// Kinds of failures. Failures of one kind are likely one bug. Reports also have texts for people; programs
// read only the kind.
#ifndef INTACT_VERIFY_PROBLEM_FAILURE_H_
#define INTACT_VERIFY_PROBLEM_FAILURE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace intact::verify {

enum class FailureKind : uint8_t {
  kError,  // the target reports an error, or cannot be run
  kRefusal,
  kCrash,
  kCleanExit,
  kExit,
  kHang,
  kFlood,
  kLostConnection,
  kBrokenMemory,
  kStrayWrite,
  kFloatControl,
  kChangesFromRunToRun,
  kChangesWithMemory,
  kChangesWithAlignment,
  kOutput,
  kSaturation,
  kClaim,
};

constexpr std::string_view ToString(FailureKind kind) {
  switch (kind) {
    case FailureKind::kError:
      return "error";
    case FailureKind::kRefusal:
      return "refusal in a second run";
    case FailureKind::kCrash:
      return "crash";
    case FailureKind::kCleanExit:
      return "exit with status 0";
    case FailureKind::kExit:
      return "exit";
    case FailureKind::kHang:
      return "no return";
    case FailureKind::kFlood:
      return "flood of output";
    case FailureKind::kLostConnection:
      return "lost connection";
    case FailureKind::kBrokenMemory:
      return "memory overwritten";
    case FailureKind::kStrayWrite:
      return "write outside C";
    case FailureKind::kFloatControl:
      return "floating-point control changed";
    case FailureKind::kChangesFromRunToRun:
      return "change from run to run";
    case FailureKind::kChangesWithMemory:
      return "change with the contents of memory";
    case FailureKind::kChangesWithAlignment:
      return "change with the alignment";
    case FailureKind::kOutput:
      return "wrong output";
    case FailureKind::kSaturation:
      return "missing saturation";
    case FailureKind::kClaim:
      return "outputs that are not as claimed";
  }
  return "unknown";
}

/// Whether failures of both kinds may be one bug, so that one stands for the other in a smaller problem.
/// Wrong outputs are alike, steady or not. A crash, a hang or a write outside C is alike only to its own
/// kind.
constexpr bool AreAlike(FailureKind x, FailureKind y) {
  const auto is_of_outputs = [](FailureKind kind) {
    return kind == FailureKind::kOutput || kind == FailureKind::kSaturation || kind == FailureKind::kClaim ||
           kind == FailureKind::kChangesFromRunToRun || kind == FailureKind::kChangesWithMemory ||
           kind == FailureKind::kChangesWithAlignment;
  };
  return x == y || (is_of_outputs(x) && is_of_outputs(y));
}

struct Failure {
  FailureKind kind = FailureKind::kError;
  std::string of = {};  // distinguishes failures of one kind: a signal and a tensor, a cause, an arithmetic
  /// "crash: SIGSEGV, a read beyond A"
  std::string Text() const {
    const std::string text(ToString(kind));
    return of.empty() ? text : text + ": " + of;
  }
};

constexpr bool AreAlike(const Failure& x, const Failure& y) {
  return AreAlike(x.kind, y.kind) && x.of == y.of;
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FAILURE_H_

// The time at which long work ends: `--time` of all programs.
#ifndef INTACT_SUPPORT_DEADLINE_H_
#define INTACT_SUPPORT_DEADLINE_H_

#include <chrono>
#include <optional>

namespace intact::support {

/// What reports say of work that a deadline prevented.
inline constexpr const char* kTimeIsOver = "the time of --time was over";

class Deadline {
 public:
  Deadline() = default;  // never over
  /// Over in `seconds` from now; 0: never.
  explicit Deadline(double seconds) {
    if (seconds > 0) end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  /// Whether there is an end at all.
  bool IsSet() const { return end_.has_value(); }
  bool IsOver() const { return end_ && Clock::now() >= *end_; }
  /// 0 if the deadline is over. Requires IsSet().
  double SecondsLeft() const {
    const double left = Seconds(*end_ - Clock::now()).count();
    return left > 0 ? left : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  std::optional<Clock::time_point> end_;
};

}  // namespace intact::support
#endif  // INTACT_SUPPORT_DEADLINE_H_

// A target in its own process. A crash, an exit, a hang or an access beyond its tensors becomes an error with
// a description. The next run then starts another process.
//
//   this process          worker, made by fork()
//   tensors, options ──►  shared memory (memfd) ──►  Target::Run() between guard pages
//   output, error    ◄──  shared memory         ◄──
//                         signal handler: which signal, which address, in or near which tensor
//
// A number sent through a socket passes the turn to the other side. If there is no answer within the
// deadline, the worker and all processes that it started are killed. The worker's output is kept. If the
// worker is lost, the error quotes the output's most informative line.
//
// Each run is repeated with its tensors in another place, at other alignments and with other contents of
// uninitialised memory. If the outputs change, an error says what they depend on. There are two other places:
// a few bytes before an inaccessible page, and right behind an inaccessible page. A hash of the problem's
// line chooses one place. With RunOptions::in_all_places, the run is repeated in both places.
//
// A target that has failed to return from five calls is given up. FreshForHangs() has a shorter time limit
// for the search for the smallest problem that hangs.
#ifndef INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_
#define INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/worker.h"

namespace intact::verify {

/// Makes a target; called once in each worker.
using TargetFactory = std::function<Result<std::unique_ptr<Target>>()>;

class IsolatedTarget : public Target {
 public:
  static constexpr std::chrono::milliseconds kDeadline{10000};
  static constexpr int kMostHangs = 5;

  /// Starts a worker. Errors come from `factory`, or describe how the worker was lost. The calling process
  /// must not have run threads whose runtimes do not survive a fork(). Not thread-safe.
  static Result<std::unique_ptr<Target>> Start(TargetFactory factory,
                                               std::chrono::milliseconds deadline = kDeadline);
  ~IsolatedTarget() override;
  IsolatedTarget(const IsolatedTarget&) = delete;
  IsolatedTarget& operator=(const IsolatedTarget&) = delete;

  std::string Name() const override { return introduction_.name; }
  std::string Arithmetic() const override { return introduction_.arithmetic; }
  FeatureMasks Features() const override { return introduction_.features; }
  std::unique_ptr<Target> Fresh() const override;
  std::unique_ptr<Target> FreshForHangs() const override;
  Failure LastFailure() const override { return failure_; }
  std::string WhyGivenUp() const override;
  std::string Printed() const override { return printed_; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;

 private:
  // How the target describes itself.
  struct Introduction {
    std::string name, arithmetic;
    FeatureMasks features;
  };
  // A run: its bytes in a place, and its line for messages.
  struct Job {
    std::string line;
    std::function<std::vector<uint8_t>(const Surroundings&)> request;
  };

  IsolatedTarget(TargetFactory factory, std::chrono::milliseconds deadline);
  // Sets worker_.
  Result<Introduction> StartWorker() const;
  // The error for outputs that change; `with` describes what they change with.
  Error Unsteady(FailureKind kind, std::string_view with) const;
  // Runs `job` at `usual`, then at `others`.
  Result<std::vector<uint8_t>> RunEverywhere(const Job& job, const Surroundings& usual,
                                             std::span<const Surroundings> others) const;
  // Repeats a run with its tensors at `place`. An error if the run fails, or if its outputs differ from
  // `first`.
  Error RunElsewhere(const Job& job, const std::vector<uint8_t>& first, const Surroundings& usual,
                     const Surroundings& place) const;
  Result<std::vector<uint8_t>> RunOnce(const Job& job, const Surroundings& place) const;

  const TargetFactory factory_;
  const std::chrono::milliseconds deadline_;
  std::chrono::milliseconds patience_;  // how long to wait for a call; at most the deadline
  mutable std::chrono::steady_clock::duration slowest_{0};  // the slowest call that returned
  Introduction introduction_;
  mutable std::unique_ptr<Worker> worker_;  // nullptr after the worker has died
  static constexpr const char* kCreation = "its creation";
  mutable std::string ran_ = kCreation;  // the last call, for messages
  mutable std::string printed_;
  mutable int hangs_ = 0;
  mutable Failure failure_;  // the last run's failure
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_

// A target in a process of its own: what it does there, a crash, an exit, a hang, an access beyond its
// tensors, is an error with words for it, and the next run starts another such process.
//
//   this process          worker, made by fork()
//   tensors, options ──►  shared memory (memfd) ──►  Target::Run() between guard pages
//   output, error    ◄──  shared memory         ◄──
//                         signal handler: which signal, which address, in or near which tensor
//
// A number through a socket tells the other side that its turn has come; no answer within the deadline, and
// the worker is killed, with all that it has started. What the worker prints is kept, and the line that tells
// most of it quoted when it is lost.
//
// A run is done twice, the second time with its tensors in another place, other alignments and other contents
// of memory that nobody has written: outputs that change are an error too, which says with what they change.
// There are two such places, a few bytes before a page that cannot be touched and right behind one: of a
// problem one, by its line, unless all are asked for.
//
// A target that has not returned five times is given up. Who looks for the smallest problem of which it does
// not return need not wait the whole deadline each time.
#ifndef INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_
#define INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/target.h"
#include "verify/targets/worker.h"

namespace intact::verify {

/// Makes a target; called in the worker, once in each.
using TargetFactory = std::function<Result<std::unique_ptr<Target>>()>;

class IsolatedTarget : public Target {
 public:
  static constexpr std::chrono::milliseconds kDeadline{10000};
  static constexpr int kMostHangs = 5;

  /// Starts a worker. Errors: those of `factory`, and what became of the worker. The calling process must not
  /// have run threads whose runtimes do not survive a fork(). Not thread-safe.
  static Result<std::unique_ptr<Target>> Start(TargetFactory factory,
                                               std::chrono::milliseconds deadline = kDeadline);
  ~IsolatedTarget() override;
  IsolatedTarget(const IsolatedTarget&) = delete;
  IsolatedTarget& operator=(const IsolatedTarget&) = delete;

  std::string Name() const override { return introduction_.name; }
  std::string Arithmetic() const override { return introduction_.arithmetic; }
  uint64_t Features() const override { return introduction_.features; }
  std::unique_ptr<Target> Fresh() const override;
  std::unique_ptr<Target> FreshForHangs() const override;
  Failure LastFailure() const override { return failure_; }
  std::string WhyGivenUp() const override;
  std::string Printed() const override { return printed_; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;

 private:
  // What the target says of itself.
  struct Introduction {
    std::string name, arithmetic;
    uint64_t features = 0;
  };

  IsolatedTarget(TargetFactory factory, std::chrono::milliseconds deadline);
  // Sets worker_.
  Result<Introduction> StartWorker() const;
  // The error of outputs that change: `with` what, in words.
  Error Unsteady(FailureKind kind, std::string_view with) const;
  // The error of a run with its tensors elsewhere, or that its outputs are not `first`.
  Error RunElsewhere(const reference::Operation& operation, RunOptions options,
                     const std::vector<uint8_t>& first, const Surroundings& place) const;
  Result<std::vector<uint8_t>> RunOnce(const reference::Operation& operation,
                                       const RunOptions& options) const;

  const TargetFactory factory_;
  const std::chrono::milliseconds deadline_;
  std::chrono::milliseconds patience_;                      // with calls: the deadline at most
  mutable std::chrono::steady_clock::duration slowest_{0};  // of the calls that returned
  Introduction introduction_;
  mutable std::unique_ptr<Worker> worker_;  // nullptr once it has died
  static constexpr const char* kCreation = "its creation";
  mutable std::string ran_ = kCreation;  // what it did last
  mutable std::string printed_;
  mutable int hangs_ = 0;
  mutable Failure failure_;  // of the last run
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_ISOLATED_TARGET_H_

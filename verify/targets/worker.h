// A process of our own making, by fork(), that answers requests: where code runs that may crash, hang or end
// it.
//
//   memfd   | header page: sizes, what a signal handler saw | request, then answer |
//
// The number of a request, sent through a socket and back, says whose turn it is. What the worker prints goes
// to another memfd.
//
// Between this process and the worker stands a keeper, the worker's parent. It says by another socket how the
// worker ended. When the worker ends, or this process ends or destroys the Worker, the keeper kills the worker
// and every process that the worker has started, those that have left its session included: the keeper is
// their subreaper (prctl(2)). It finds them in /proc, and cannot kill processes of another user. None of them
// holds anything up, whatever they hold of the worker's socket.
#ifndef INTACT_VERIFY_TARGETS_WORKER_H_
#define INTACT_VERIFY_TARGETS_WORKER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/failure.h"

namespace intact::verify {

class Worker {
 public:
  /// Called in the worker for each request; returns the answer.
  using Serve = std::function<std::vector<uint8_t>(std::span<const uint8_t> request)>;

  /// OUT_OF_MEMORY if the system gives no process or no memory.
  static Result<std::unique_ptr<Worker>> Start(const Serve& serve);
  /// Kills the worker and what it has started.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The answer to a request. The error, CODEGEN_FAILED, says what became of the worker, which is then of no
  /// more use: a signal, with the tensor that it hit (NamedBufferAt()), an exit, no answer within the
  /// deadline; and what it printed.
  Result<std::vector<uint8_t>> Ask(std::span<const uint8_t> request, std::chrono::milliseconds deadline);

  /// After an error of Ask(): how the worker was lost, and whether it died after it had answered one request,
  /// before it took the next.
  const Failure& failure() const { return failure_; }
  bool died_between() const { return died_between_; }
  /// What the worker printed while it answered the last request, on stdout and stderr: of much the beginning
  /// and the end, 64 KiB each.
  std::string Printed() const;

 private:
  class SharedMemory;

  /// What the keeper sends: first `status` alone, 0 or errno where there is no worker; then how the worker
  /// ended, as in siginfo_t.
  struct Note {
    int32_t code = 0, status = 0;
  };

  Worker(std::unique_ptr<SharedMemory> memory, int socket, int printed, int keeper_socket, pid_t keeper);
  // The keeper's side.
  [[noreturn]] static void Keep(const Serve& serve, SharedMemory* memory, int socket, int printed,
                                int parent) noexcept;
  // An exception must not unwind into the caller's frames, which are the parent's: it ends the worker.
  [[noreturn]] static void Live(const Serve& serve, SharedMemory* memory, int socket, int printed) noexcept;
  enum class Waited : uint8_t { kAnswered, kGone, kTimeout, kFlood };
  /// For the answer to the last request.
  Waited AwaitAnswer(std::chrono::milliseconds deadline) const;
  /// Whether it has printed more than memory is to be spent on.
  bool Floods() const;
  /// How the worker has ended, if it has.
  std::optional<Note> End() const;
  /// Nothing if the worker lives on for two seconds.
  std::optional<Note> AwaitEnd() const;
  /// What became of a worker that ended by itself, in words and in failure_.
  std::string Obituary();
  /// `what`, and what the worker printed before it.
  std::string AfterPrinting(const std::string& what) const;
  std::string PrintedAt(off_t begin, size_t most) const;

  const std::unique_ptr<SharedMemory> memory_;
  const int socket_, printed_;
  const int keeper_socket_;  // closed, it ends the keeper and its worker
  const pid_t keeper_;
  uint64_t sequence_ = 0;  // of the last request
  Failure failure_;
  bool died_between_ = false;
};

/// The line of what a program printed before its end that tells most of it: the first that has "error:" in
/// it, in any case, as sanitizers' have; else the last that is not blank. "" if there is none.
std::string TellingLine(std::string_view printed);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_WORKER_H_

// A child process, made by fork(), that answers requests. The worker runs code that may crash, hang or end
// the process.
//
//   memfd   | header page: sizes, what a signal handler saw | request, then answer |
//
// The number of a request is sent through a socket and back. The process that received the number last may
// access the memory. The worker's output goes to another memfd.
//
// A keeper, the worker's parent, is between this process and the worker. Through another socket, the keeper
// reports how the worker ended. When the worker ends, or this process ends or destroys the Worker, the keeper
// kills the worker and every process that the worker has started, also in other sessions: the keeper is their
// subreaper (prctl(2)). The keeper finds these processes in /proc. It cannot kill processes of another user.
// Open copies of the worker's socket in these processes delay nothing.
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

  /// OUT_OF_MEMORY if the system refuses a process or memory.
  static Result<std::unique_ptr<Worker>> Start(const Serve& serve);
  /// Kills the worker and what it has started.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The answer to a request. An error, CODEGEN_FAILED, describes how the worker was lost (a signal, with the
  /// tensor that it hit, see NamedBufferAt(); an exit; or no answer within the deadline) and what the worker
  /// printed. Another error, UNSUPPORTED, is Refuse()'s. A lost worker must not be asked again.
  Result<std::vector<uint8_t>> Ask(std::span<const uint8_t> request, std::chrono::milliseconds deadline);

  /// In the worker: ends it. Ask() then returns UNSUPPORTED with `why`. Async-signal-safe.
  [[noreturn]] static void Refuse(const char* why);

  /// After an error of Ask(): how the worker was lost, and whether it died between requests, after the
  /// previous answer.
  const Failure& failure() const { return failure_; }
  bool died_between() const { return died_between_; }
  /// What the worker wrote to stdout and stderr while it answered the last request. Long output is shortened
  /// to its first and last 64 KiB.
  std::string Printed() const;

 private:
  class SharedMemory;

  /// The keeper's messages. The first has only `status`: 0, or errno if there is no worker. The second
  /// reports how the worker ended, as siginfo_t does.
  struct Note {
    int32_t code = 0, status = 0;
  };

  Worker(std::unique_ptr<SharedMemory> memory, int socket, int printed, int keeper_socket, pid_t keeper);
  // The keeper's side.
  [[noreturn]] static void Keep(const Serve& serve, SharedMemory* memory, int socket, int printed,
                                int parent) noexcept;
  // The worker's side. An exception must not unwind into frames copied from the parent, so it ends the
  // worker.
  [[noreturn]] static void Live(const Serve& serve, SharedMemory* memory, int socket, int printed) noexcept;
  enum class Waited : uint8_t { kAnswered, kGone, kTimeout, kFlood };
  /// Waits for the answer to the last request.
  Waited AwaitAnswer(std::chrono::milliseconds deadline) const;
  /// Whether the worker has printed more than is kept.
  bool Floods() const;
  /// How the worker has ended, if it has.
  std::optional<Note> End() const;
  /// Waits up to two seconds for the worker's end; nullopt if it still lives.
  std::optional<Note> AwaitEnd() const;
  /// Describes how a worker ended by itself; sets failure_.
  std::string Obituary();
  /// `what`, followed by the worker's last output.
  std::string AfterPrinting(const std::string& what) const;
  std::string PrintedAt(off_t begin, size_t most) const;

  const std::unique_ptr<SharedMemory> memory_;
  const int socket_, printed_;
  const int keeper_socket_;  // closing it ends the keeper and its worker
  const pid_t keeper_;
  uint64_t sequence_ = 0;  // the number of the last request
  Failure failure_;
  bool died_between_ = false;
};

/// The most informative line of a program's output: the first that contains "error:" in any case, as
/// sanitizers print it; otherwise the last line that is not blank; "" if there is none.
std::string ErrorOrLastLine(std::string_view printed);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_WORKER_H_

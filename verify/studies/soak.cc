#include "verify/studies/soak.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "core/isas.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "support/fnv1a.h"
#include "support/random.h"
#include "support/some_threads.h"
#include "verify/explain/audit.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/random_problem.h"
#include "verify/targets/blocks.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

constexpr size_t kSlots = 24;  // number of kept plans
constexpr unsigned kChildSeconds = 120;
constexpr auto kReportInterval = std::chrono::milliseconds(100);

/// A plan with what it must compute.
struct Soaked {
  Problem problem;
  std::vector<uint8_t> expected;
  std::unique_ptr<HeldPlan> plan;

  /// Runs the plan; returns "" or what is wrong with the output.
  std::string Run(std::vector<uint8_t>* output) const {
    Result<std::vector<uint8_t>> bytes = plan->Run();
    if (!bytes) return bytes.error().message;
    *output = std::move(*bytes);
    const ByteComparison compared = CompareBytes(problem.c_type, expected, *output);
    return compared.differing == 0
               ? ""
               : fmt::format("{} of {} outputs differ", compared.differing, compared.outputs);
  }
};

/// Calls of the library share this lock; a fork takes it alone, as docs/embedding.md requires. A thread that
/// forks holds the door and waits for the threads inside; no other thread can enter meanwhile.
class Calls {
 public:
  std::shared_lock<std::shared_mutex> Enter() {
    const std::lock_guard door(door_);
    return std::shared_lock(inside_);
  }
  template <class Fork>
  pid_t Alone(const Fork& fork) {
    const std::lock_guard door(door_);
    const std::unique_lock alone(inside_);
    return fork();
  }

 private:
  std::mutex door_;
  std::shared_mutex inside_;
};

class Soak {
 public:
  explicit Soak(const SoakOptions& options) : options_(options) {
    for (const intact_isa isa : core::kIsaLadder) {
      if (intact_isa_available(isa) != 0) isas_.push_back(isa);
    }
  }

  SoakState Run(const std::function<bool(const SoakState&)>& goes_on) {
    std::vector<std::jthread> workers;
    std::unique_lock lock(mutex_);
    workers = support::StartSomeThreads(options_.workers, [this](int) { Work(); });
    working_ = static_cast<int>(workers.size());
    if (workers.empty()) {
      lock.unlock();
      WorkHere(goes_on);
      lock.lock();
    }
    while (!done_.wait_for(lock, kReportInterval, [this] { return working_ == 0; })) {
      const SoakState state = state_;
      lock.unlock();
      if (!goes_on(state)) stops_ = true;
      lock.lock();
    }
    for (auto& slot : slots_) slot.reset();
    state_.plans = 0;
    return state_;
  }

 private:
  // False if no run is left.
  bool RunNext() {
    const int64_t number = next_++;
    if (options_.most_runs > 0 && number >= options_.most_runs) return false;
    RunOne(static_cast<uint64_t>(number));
    return true;
  }

  // Used if no thread can be made.
  void WorkHere(const std::function<bool(const SoakState&)>& goes_on) {
    auto last_report = std::chrono::steady_clock::now();
    while (RunNext()) {
      const auto now = std::chrono::steady_clock::now();
      if (now - last_report < kReportInterval) continue;
      if (!goes_on(state_)) break;
      last_report = now;
    }
  }

  void Work() {
    while (!stops_ && RunNext()) {
    }
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) done_.notify_all();
  }

  void RunOne(uint64_t number) {
    support::Random random(options_.seed, 1, number);
    auto soaked = std::make_shared<Soaked>();
    soaked->problem = Draw(&random);
    soaked->problem.isa =
        isas_.empty() ? INTACT_ISA_ANY : isas_[static_cast<size_t>(random.Next() % isas_.size())];
    const bool forks = random.Integer(0, 31) == 0;
    const bool is_kept = random.Integer(0, 3) == 0;
    const auto slot = static_cast<size_t>(random.Integer(0, kSlots - 1));
    std::vector<uint8_t> output;
    std::string wrong = Make(soaked.get());
    if (wrong.empty()) wrong = RunPlan(*soaked, &output);
    Count(*soaked, wrong, support::Fnv1a(output, number + 1));
    if (wrong.empty() && forks) Fork(*soaked);
    if (wrong.empty()) Exchange(is_kept ? soaked : nullptr, slot);
    const auto inside = calls_.Enter();
    soaked.reset();  // no thread forks while a plan is destroyed
  }

  Problem Draw(support::Random* random) const {
    Problem problem = DrawProblem(blocks_, INTACT_EXACT, random);
    constexpr std::array<int32_t, 6> kThreads = {1, 2, 3, 0, 8, 1};
    problem.threads = kThreads[static_cast<size_t>(random->Integer(0, std::ssize(kThreads) - 1))];
    return problem;
  }

  std::string Make(Soaked* soaked) {
    reference::Operation operation = Materialize(soaked->problem);
    soaked->expected =
        reference::Outputs(operation, reference::Accumulators(operation, reference::Model::kExact));
    const auto inside = calls_.Enter();
    auto plan = Hold(std::move(operation), RunOptionsOf(soaked->problem));
    if (!plan) return plan.error().message;
    soaked->plan = std::move(*plan);
    return "";
  }

  std::string RunPlan(const Soaked& soaked, std::vector<uint8_t>* output) {
    const auto inside = calls_.Enter();
    return soaked.Run(output);
  }

  // The child has only this thread.
  void Fork(const Soaked& soaked) {
    const pid_t child = calls_.Alone([&] { return fork(); });
    if (child == 0) {
      alarm(kChildSeconds);
      std::vector<uint8_t> output;
      _exit(soaked.Run(&output).empty() ? 0 : 1);
    }
    if (child < 0) return;  // the limit of processes; not the plan's fault
    int status = -1;
    waitpid(child, &status, 0);
    const std::lock_guard lock(mutex_);
    ++state_.forks;
    if (status != 0) Fail(soaked, fmt::format("a child ended with status {:#x}", status));
  }

  // Puts `kept` into a slot, unless it is null, and runs the plan that was there.
  void Exchange(std::shared_ptr<const Soaked> kept, size_t slot) {
    const bool replaces = kept != nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (replaces) {
        std::swap(slots_[slot], kept);
        state_.plans += kept == nullptr ? 1 : 0;
      } else {
        kept = slots_[slot];
      }
    }
    if (kept == nullptr) return;
    std::vector<uint8_t> output;
    const std::string wrong = RunPlan(*kept, &output);
    {
      const std::lock_guard lock(mutex_);
      ++state_.kept_runs;
      if (!wrong.empty()) Fail(*kept, "a kept plan: " + wrong);
    }
    const auto inside = calls_.Enter();
    kept.reset();  // this may destroy the plan
  }

  void Count(const Soaked& soaked, const std::string& wrong, uint64_t digest) {
    const std::lock_guard lock(mutex_);
    ++state_.runs;
    state_.digest += digest;
    if (!wrong.empty()) Fail(soaked, wrong);
  }

  // Under mutex_.
  void Fail(const Soaked& soaked, const std::string& reason) {
    ++state_.differences;
    if (state_.failures.size() < kMaxSoakFailures) {
      state_.failures.push_back({soaked.problem.ToString(), reason});
    }
  }

  const SoakOptions options_;
  const std::vector<Block> blocks_ = BlocksOf(INTACT_ISA_ANY);
  std::vector<intact_isa> isas_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> stops_ = false;
  Calls calls_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  int working_ = 0;
  SoakState state_;
  std::array<std::shared_ptr<const Soaked>, kSlots> slots_;
};

}  // namespace

SoakState RunSoak(const SoakOptions& options, const std::function<bool(const SoakState&)>& goes_on) {
  return Soak(options).Run(goes_on);
}

}  // namespace intact::verify

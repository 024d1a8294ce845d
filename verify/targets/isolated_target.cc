#include "verify/targets/isolated_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "support/fnv1a.h"
#include "verify/targets/wire.h"

namespace intact::verify {
namespace {

using Bytes = std::vector<uint8_t>;

enum class Request : uint8_t { kName, kRun };

constexpr int kRepetitions = 8;  // to see whether outputs change from run to run

// Memory around the tensors of the second run of each pair.
constexpr std::array kElsewhere = {Surroundings{0x5a, 61, false}, Surroundings{0x5a, 0, true}};

std::span<const Surroundings> PlacesOf(const RunOptions& options) {
  if (options.in_all_places) return kElsewhere;
  const std::string& line = options.line;
  const uint64_t hash = support::Fnv1a(line);
  return std::span(kElsewhere).subspan(line.empty() ? 0 : hash >> 32 & 1, 1);
}

void Put(const Result<Bytes>& output, const Failure& failure, WireWriter* answer) {
  (*answer)(output ? INTACT_OK : output.error().status);
  (*answer)(output ? std::string() : output.error().message);
  (*answer)(failure.kind);
  (*answer)(failure.of);
  (*answer)(output ? *output : Bytes());
}

// The worker's side.
class Server {
 public:
  explicit Server(const TargetFactory& factory) : factory_(factory) {}

  Bytes Serve(std::span<const uint8_t> bytes) {
    WireReader request(bytes);
    auto kind = Request::kName;
    request(kind);
    return kind == Request::kName ? Introduce() : RunTarget(&request);
  }

 private:
  // Makes the target.
  Bytes Introduce() {
    Result<std::unique_ptr<Target>> made = factory_();
    WireWriter answer;
    answer(made ? INTACT_OK : made.error().status);
    answer(made ? std::string() : made.error().message);
    if (made) target_ = std::move(*made);
    answer(target_ ? target_->Name() : "");
    answer(target_ ? target_->Arithmetic() : "");
    answer(target_ ? target_->Features() : FeatureMasks());
    return answer.bytes();
  }

  Bytes RunTarget(WireReader* request) {
    const reference::Operation operation = ReadOperation(request);
    RunOptions options;
    (*request)(static_cast<RunSettings&>(options));
    (*request)(options.surroundings);
    WireWriter answer;
    const Result<Bytes> output = target_->Run(operation, options);
    Put(output, target_->LastFailure(), &answer);
    return answer.bytes();
  }

  const TargetFactory& factory_;
  std::unique_ptr<Target> target_;
};

Error Broken() { return {INTACT_CODEGEN_FAILED, "overwrote memory that is not its own"}; }

}  // namespace

IsolatedTarget::IsolatedTarget(TargetFactory factory, std::chrono::milliseconds deadline)
    : factory_(std::move(factory)), deadline_(deadline), patience_(deadline) {}
IsolatedTarget::~IsolatedTarget() = default;

Result<std::unique_ptr<Target>> IsolatedTarget::Start(TargetFactory factory,
                                                      std::chrono::milliseconds deadline) {
  std::unique_ptr<IsolatedTarget> target(new IsolatedTarget(std::move(factory), deadline));
  ASSIGN_OR_RETURN(target->introduction_, target->StartWorker());
  return std::unique_ptr<Target>(std::move(target));
}

Result<IsolatedTarget::Introduction> IsolatedTarget::StartWorker() const {
  Server server(factory_);
  Result<std::unique_ptr<Worker>> worker =
      Worker::Start([&server](std::span<const uint8_t> request) { return server.Serve(request); });
  if (!worker) return worker.error();
  WireWriter request;
  request(Request::kName);
  const Result<Bytes> bytes = (*worker)->Ask(request.bytes(), deadline_);
  if (!bytes) {
    failure_ = (*worker)->failure();
    if (failure_.kind == FailureKind::kHang) ++hangs_;
    if (bytes.error().status == INTACT_UNSUPPORTED) return bytes.error();
    return Error{bytes.error().status, "while it was loaded, the target " + bytes.error().message};
  }
  WireReader answer(*bytes);
  Error error;
  Introduction introduction;
  answer(error.status);
  answer(error.message);
  answer(introduction.name);
  answer(introduction.arithmetic);
  answer(introduction.features);
  if (answer.failed()) return Broken();
  if (!error.ok()) return error;
  worker_ = std::move(*worker);
  return introduction;
}

std::unique_ptr<Target> IsolatedTarget::Fresh() const {
  Result<std::unique_ptr<Target>> fresh = Start(factory_, deadline_);
  return fresh ? std::move(*fresh) : nullptr;
}

std::unique_ptr<Target> IsolatedTarget::FreshForHangs() const {
  constexpr int kTimesTheSlowest = 20;
  constexpr std::chrono::milliseconds kLeast{500};
  std::unique_ptr<IsolatedTarget> target(new IsolatedTarget(factory_, deadline_));
  Result<Introduction> introduction = target->StartWorker();
  if (!introduction) return nullptr;
  target->introduction_ = std::move(*introduction);
  const auto many_times = std::chrono::ceil<std::chrono::milliseconds>(kTimesTheSlowest * slowest_);
  target->patience_ = std::min(deadline_, std::max(kLeast, many_times));
  return target;
}

std::string IsolatedTarget::WhyGivenUp() const {
  if (hangs_ < kMostHangs) return {};
  return fmt::format("the target did not return within {:g} s {} times",
                     static_cast<double>(deadline_.count()) / 1e3, hangs_);
}

Result<Bytes> IsolatedTarget::RunOnce(const Job& job, const Surroundings& place) const {
  failure_ = {};
  if (worker_ == nullptr) {
    RETURN_IF_ERROR(StartWorker().error());
  }
  const Bytes request = job.request(place);
  const auto start = std::chrono::steady_clock::now();
  const Result<Bytes> bytes = worker_->Ask(request, patience_);
  if (bytes) slowest_ = std::max(slowest_, std::chrono::steady_clock::now() - start);
  const std::string ran = std::exchange(ran_, job.line.empty() ? "a call" : "'" + job.line + "'");
  if (std::string printed = worker_->Printed(); !printed.empty()) printed_ = std::move(printed);
  if (!bytes) {
    failure_ = worker_->failure();
    const bool died_between = worker_->died_between();
    worker_.reset();
    ran_ = kCreation;
    if (bytes.error().status == INTACT_UNSUPPORTED) return bytes.error();
    if (failure_.kind == FailureKind::kHang) ++hangs_;
    std::string what = "the target " + bytes.error().message;
    if (died_between) what += fmt::format(", between calls, after {}", ran);
    return Error{bytes.error().status, std::move(what)};
  }
  WireReader answer(*bytes);
  Error error;
  Bytes output;
  answer(error.status);
  answer(error.message);
  answer(failure_.kind);
  answer(failure_.of);
  answer(output);
  if (answer.failed()) {
    worker_.reset();
    failure_ = {FailureKind::kBrokenMemory};
    return Broken();
  }
  if (!error.ok()) return error;
  return output;
}

Result<Bytes> IsolatedTarget::RunEverywhere(const Job& job, const Surroundings& usual,
                                            std::span<const Surroundings> others) const {
  Result<Bytes> first = RunOnce(job, usual);
  if (!first) return first;
  for (const Surroundings& elsewhere : others) {
    RETURN_IF_ERROR(RunElsewhere(job, *first, usual, elsewhere));
  }
  return first;
}

Result<Bytes> IsolatedTarget::Run(const reference::Operation& operation, const RunOptions& options) const {
  const auto request = [&](const Surroundings& place) {
    WireWriter writer;
    writer(Request::kRun);
    Write(operation, &writer);
    writer(static_cast<const RunSettings&>(options));
    writer(place);
    return writer.bytes();
  };
  return RunEverywhere({options.line, request}, options.surroundings, PlacesOf(options));
}

Error IsolatedTarget::Unsteady(FailureKind kind, std::string_view with) const {
  failure_ = {kind};
  return {INTACT_CODEGEN_FAILED, fmt::format("the outputs change {}", with)};
}

Error IsolatedTarget::RunElsewhere(const Job& job, const Bytes& first, const Surroundings& usual,
                                   const Surroundings& place) const {
  const Result<Bytes> elsewhere = RunOnce(job, place);
  if (!elsewhere) {
    Error error = elsewhere.error();
    if (error.status == INTACT_UNSUPPORTED) {  // UNSUPPORTED would not count as a failure
      error = {INTACT_CODEGEN_FAILED, "the target answers differently: it refuses, " + error.message};
      failure_ = {FailureKind::kRefusal};
    }
    error.message += ", in a second run, with other alignments and other contents of memory";
    return error;
  }
  if (*elsewhere == first) return {};
  for (int i = 0; i < kRepetitions; ++i) {
    const Result<Bytes> again = RunOnce(job, usual);
    const Result<Bytes> elsewhere_again = RunOnce(job, place);
    for (const Result<Bytes>* run : {&again, &elsewhere_again}) {
      if (*run) continue;
      return Unsteady(FailureKind::kChangesFromRunToRun,
                      fmt::format("from run to run, and once {}", run->error().message));
    }
    const bool is_steady = *again == first && *elsewhere_again == *elsewhere;
    if (!is_steady) return Unsteady(FailureKind::kChangesFromRunToRun, "from run to run");
  }
  Surroundings refilled = usual;
  refilled.canary = place.canary;
  const Result<Bytes> other_contents = RunOnce(job, refilled);
  const bool is_contents = !other_contents || *other_contents != first;
  if (!is_contents) return Unsteady(FailureKind::kChangesWithAlignment, "with the alignment of its tensors");
  return Unsteady(FailureKind::kChangesWithMemory, "with the contents of memory that nobody has written");
}

}  // namespace intact::verify

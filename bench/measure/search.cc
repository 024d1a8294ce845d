#include "bench/measure/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "bench/cases/workload.h"
#include "bench/report/report_table.h"
#include "core/result.h"
#include "core/types.h"
#include "support/counted.h"
#include "support/random.h"
#include "support/turns.h"
#include "verify/problem/problem_size.h"
#include "verify/report/report_json.h"
#include "verify/sweep/minimise.h"
#include "verify/targets/guarded_run.h"
#include "verify/targets/intact_target.h"

namespace intact::bench {
namespace {

using reference::Axis;
using reference::ConvGeometry;
using verify::Problem;
using Clock = std::chrono::steady_clock;

struct Effort {
  Seconds turn;    // the least time of a turn
  Seconds budget;  // for all turns
};
constexpr Effort kGlance = {Seconds(5e-5), Seconds(0)};           // for each problem and neighbour
constexpr Effort kConfirmation = {Seconds(5e-5), Seconds(0.02)};  // for a problem that seems to be a trap
constexpr Effort kReport = {kShortestTurn, Seconds(0.1)};         // for what is reported
constexpr double kMostProducts = 1 << 22;                         // of a drawn problem
constexpr int64_t kMostBytes = int64_t{1} << 26;  // of a drawn problem's tensors while they are made

std::span<const Axis> AxesOf(const ConvGeometry& g) {
  return std::span(g.axes).last(static_cast<size_t>(g.dims));
}

// ----- runs -----------------------------------------------------------------------------------------------

intact_status Run(const Gemm& plan, const intact_gemm_args& args) {
  return intact_gemm_run(plan.handle(), &args);
}
intact_status Run(const Conv& plan, const intact_conv_args& args) {
  return intact_conv_run(plan.handle(), &args);
}

void SetRuntimeB(const reference::Gemm& gemm, const verify::RunOptions& options, Bytes* b,
                 intact_gemm_args* args) {
  if (!gemm.has_runtime_b) return;
  *b = ToBytes(options.b_by_columns ? reference::FromColumns(gemm.b, gemm.k, gemm.n) : gemm.b);
  args->b = b->data();
}
void SetRuntimeB(const reference::Conv& /*conv*/, const verify::RunOptions& /*options*/, Bytes* /*b*/,
                 intact_conv_args* /*args*/) {}

// An operation with its plan and its tensors, each aligned to a cache line.
template <class Plan, class Operation, class Args>
class Runner {
 public:
  Runner(Operation operation, const verify::RunOptions& options, Plan plan)
      : operation_(std::move(operation)), plan_(std::move(plan)) {
    a_ = ToBytes(verify::StoredInput(operation_, options));
    residual_ = ToBytes(operation_.residual);
    const reference::Extents c = reference::OutputOf(operation_);
    const std::vector<uint8_t> zeros(
        static_cast<size_t>(c.rows * c.columns * core::BytesOf(operation_.c_type)));
    c_ = ToBytes(zeros);
    args_ = verify::ArgsOf(operation_, options,
                           {a_.data(), c_.data(), operation_.HasResidual() ? residual_.data() : nullptr});
    SetRuntimeB(operation_, options, &b_, &args_);
  }

  intact_status Run() const { return bench::Run(plan_, args_); }

 private:
  Operation operation_;
  Plan plan_;
  Bytes a_, b_, c_, residual_;
  Args args_;
};

template <class Plan, class Args, class Operation>
Result<support::Measurement> TimeOperation(Operation operation, const verify::RunOptions& options,
                                           Seconds shortest) {
  ASSIGN_OR_RETURN(Plan plan, verify::CreatePlan(operation, options));
  const auto runner =
      std::make_shared<Runner<Plan, Operation, Args>>(std::move(operation), options, std::move(plan));
  if (const intact_status status = runner->Run(); status != INTACT_OK) {
    return Error{status, intact_last_error()};
  }
  return TurnOf(
      [runner](int64_t calls) { return support::MicrosecondsPerCall([&] { (void)runner->Run(); }, calls); },
      shortest);
}

// ----- random problems ------------------------------------------------------------------------------------

class Draw {
 public:
  Draw(std::span<const core::Isa> isas, support::Random* random) : random_(*random) {
    problem_.isa = static_cast<intact_isa>(random_.Of(isas));
    problem_.fill = verify::Fill::kLaplace;
  }

  Problem Any() {
    if (random_.OneIn(2)) {
      SetGemm();
    } else {
      SetConv();
    }
    Problem& p = problem_;
    p.a_type = random_.Of({INTACT_U8, INTACT_S8});
    p.b_type = random_.Of({INTACT_S8, INTACT_S8, INTACT_S8, INTACT_U8});
    p.c_type = random_.Of(core::kOutputTypes);
    p.zb = random_.OneIn(4) ? 5 : 0;
    if (p.c_type != INTACT_S32) SetOutputs();
    if (!p.IsDynamic()) p.za = random_.OneIn(2) ? 3 : 0;
    return p;
  }

 private:
  // In [1, most]; small extents are as likely as large ones.
  int64_t Extent(int64_t most) {
    return static_cast<int64_t>(std::exp2(std::log2(static_cast<double>(most) + 1) * random_.Unit()));
  }

  void SetGemm() {
    Problem& p = problem_;
    p.m = Extent(16384);
    p.n = Extent(4096);
    p.k = Extent(4096);
    p.a_by_columns = random_.OneIn(6);
    p.b_by_columns = random_.OneIn(4);
    p.runtime_b = random_.OneIn(4);
    if (random_.OneIn(4)) p.batch = random_.Integer(2, 8);
  }

  void SetConv() {
    ConvGeometry& g = problem_.conv.emplace();
    g.dims = random_.OneIn(4) ? 1 : 2;
    if (random_.OneIn(4)) g.batch = random_.Integer(2, 8);
    g.groups = random_.OneIn(2) ? 1 : Extent(256);
    const bool is_depthwise = g.groups > 1 && random_.OneIn(2);
    g.input_channels = g.groups * (is_depthwise ? 1 : Extent(512 / g.groups));
    g.output_channels =
        g.groups * (is_depthwise ? random_.Of<int64_t>({1, 1, 2, 3}) : Extent(512 / g.groups));
    const bool is_transposed = random_.OneIn(6);
    for (Axis& axis : std::span(g.axes).last(static_cast<size_t>(g.dims))) {
      axis.transposed = is_transposed;
      axis.input = Extent(g.dims == 1 ? 16384 : 256);
      axis.kernel = random_.Of<int64_t>({1, 1, 3, 3, 3, 2, 4, 5, 7, Extent(32)});
      axis.stride = random_.Of<int64_t>({1, 1, 1, 2, 2, 3, Extent(8)});
      axis.dilation = random_.Of<int64_t>({1, 1, 1, 1, 2, Extent(16)});
      axis.pad_begin = random_.Of<int64_t>({0, axis.kernel / 2, axis.kernel - 1, Extent(8)});
      axis.pad_end = random_.OneIn(4) ? 0 : axis.pad_begin;
    }
    problem_.open_extents = random_.OneIn(4);
  }

  // What outputs of other types than s32 may have.
  void SetOutputs() {
    Problem& p = problem_;
    p.scale = random_.Of({verify::ScaleKind::kTensor, verify::ScaleKind::kChannel});
    p.activation = random_.OneIn(3) ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
    p.has_table = core::IsInt8(p.c_type) && random_.OneIn(6);
    if (core::IsInt8(p.c_type) && random_.OneIn(6)) {
      p.fixed = random_.Of({verify::FixedKind::kAway, verify::FixedKind::kUp});
      return;
    }
    if (random_.OneIn(6)) p.residual = random_.Of({INTACT_U8, INTACT_F32});
    if (!random_.OneIn(3)) return;
    p.quantization = p.conv
                         ? INTACT_QUANTIZATION_DYNAMIC_TENSOR
                         : random_.Of({INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_QUANTIZATION_DYNAMIC_ROWS});
    p.source = random_.Of(core::kSourceTypes);
  }

  support::Random& random_;
  Problem problem_;
};

// ----- neighbours -----------------------------------------------------------------------------------------

struct Neighbour {
  std::function<void(Problem*)> change;  // makes a neighbour of a problem; it may be invalid, or no other
  bool is_isa = false;                   // the problem must not be slower than this neighbour
};

constexpr auto kSteps = std::to_array<int64_t (*)(int64_t)>(
    {[](int64_t extent) { return extent - 1; }, [](int64_t extent) { return extent + 1; },
     [](int64_t extent) { return extent / 2; }, [](int64_t extent) { return extent * 2; }});

std::vector<Neighbour> NeighboursOf(const Problem& problem) {
  std::vector<Neighbour> neighbours;
  const auto add_steps = [&](const auto& apply) {
    for (const auto step : kSteps) {
      neighbours.push_back({[apply, step](Problem* p) { apply(p, step); }});
    }
  };
  if (problem.conv) {
    for (int64_t ConvGeometry::*extent : {&ConvGeometry::batch, &ConvGeometry::groups}) {
      add_steps([extent](Problem* p, const auto step) {
        ConvGeometry& g = *p->conv;
        const int64_t inputs = g.GroupInputs(), outputs = g.GroupOutputs();
        g.*extent = step(g.*extent);
        g.input_channels = g.groups * inputs;
        g.output_channels = g.groups * outputs;
      });
    }
    for (int64_t ConvGeometry::*channels : {&ConvGeometry::input_channels, &ConvGeometry::output_channels}) {
      add_steps([channels](Problem* p, const auto step) {
        ConvGeometry& g = *p->conv;
        g.*channels = g.groups * step(g.*channels / g.groups);
      });
    }
    for (size_t i = reference::kMaxSpatial - static_cast<size_t>(problem.conv->dims); i < 3; ++i) {
      for (int64_t Axis::*extent :
           {&Axis::input, &Axis::kernel, &Axis::stride, &Axis::dilation, &Axis::pad_begin, &Axis::pad_end}) {
        add_steps([i, extent](Problem* p, const auto step) {
          p->conv->axes.at(i).*extent = step(p->conv->axes.at(i).*extent);
        });
      }
    }
  } else {
    for (int64_t Problem::*extent : {&Problem::m, &Problem::n, &Problem::k, &Problem::batch}) {
      add_steps([extent](Problem* p, const auto step) { p->*extent = step(p->*extent); });
    }
  }
  for (const auto& keys : std::initializer_list<std::vector<std::string_view>>{{"quant", "src", "x"},
                                                                               {"runtimeb"},
                                                                               {"alayout"},
                                                                               {"blayout"},
                                                                               {"res"},
                                                                               {"table"},
                                                                               {"fixed"},
                                                                               {"act"},
                                                                               {"za"},
                                                                               {"zb"},
                                                                               {"open"}}) {
    neighbours.push_back({[keys](Problem* p) {
      for (const std::string_view key : keys) p->Reset(key);
    }});
  }
  const auto other = [](intact_type type) { return type == INTACT_U8 ? INTACT_S8 : INTACT_U8; };
  neighbours.push_back({[=](Problem* p) { p->a_type = other(p->a_type); }});
  neighbours.push_back({[=](Problem* p) { p->b_type = other(p->b_type); }});
  const bool needs_bytes = problem.has_table || problem.fixed != verify::FixedKind::kNone;
  for (const intact_type type : core::kOutputTypes) {
    // A neighbour of another type has the same options.
    if (type == INTACT_S32 || (needs_bytes && !core::IsInt8(type))) continue;
    neighbours.push_back({[=](Problem* p) {
      if (p->c_type != INTACT_S32) p->SetOutput(type);
    }});
  }
  const auto isa = static_cast<core::Isa>(problem.isa);
  for (const core::Isa lower : core::kAllIsas) {
    if (core::TraitsOf(lower).rank >= core::TraitsOf(isa).rank) continue;
    neighbours.push_back({[=](Problem* p) { p->isa = static_cast<intact_isa>(lower); }, true});
  }
  return neighbours;
}

std::optional<Problem> Apply(const Neighbour& neighbour, const Problem& problem) {
  Problem changed = problem;
  neighbour.change(&changed);
  if (changed.conv) {
    // A problem may have fewer dimensions than the problem that the neighbour was made for.
    const auto outside =
        std::span(changed.conv->axes).first(reference::kMaxSpatial - static_cast<size_t>(changed.conv->dims));
    if (!std::ranges::all_of(outside, [](const Axis& axis) { return axis == Axis{}; })) return std::nullopt;
  }
  const bool is_empty = changed.conv ? changed.conv->batch == 0 : changed.m == 0 || changed.batch == 0;
  if (is_empty || changed.Check() || changed.ToString() == problem.ToString()) return std::nullopt;
  return changed;
}

// ----- work -----------------------------------------------------------------------------------------------

/// Bytes of the tensors, each read or written once.
double BytesOf(const Problem& p) {
  const double of_a = p.IsDynamic() ? core::BytesOf(p.source) : 1;
  const double of_c =
      core::BytesOf(p.c_type) + (p.residual == INTACT_TYPE_NONE ? 0 : core::BytesOf(p.residual));
  const auto sum = [=](int64_t a, int64_t b, int64_t c) {
    return of_a * static_cast<double>(a) + static_cast<double>(b) + of_c * static_cast<double>(c);
  };
  if (p.conv) {
    const ConvGeometry& g = *p.conv;
    return sum(g.InputPixels() * g.input_channels, g.Taps() * g.GroupInputs() * g.output_channels,
               g.OutputPixels() * g.output_channels);
  }
  return sum(p.batch * p.m * p.k, (p.runtime_b ? p.batch : 1) * p.n * p.k, p.batch * p.m * p.n);
}

// How many times as long `problem` may take as `neighbour`.
double Work(const Problem& problem, const Problem& neighbour) {
  const double products = Products(problem) / std::max(Products(neighbour), 1.0);
  return std::max({1.0, products, BytesOf(problem) / BytesOf(neighbour)});
}

// ----- the search -----------------------------------------------------------------------------------------

/// A neighbour of a problem, and which of the two seems to be a trap.
struct Suspicion {
  Neighbour neighbour;
  bool is_neighbour_slow = false;
};

double LimitOf(const Neighbour& neighbour) { return neighbour.is_isa ? kLimitOfIsas : kLimit; }

class Searcher {
 public:
  Searcher(const SearchRequest& request, const Stopwatch& stopwatch)
      : stopwatch_(stopwatch),
        random_(request.seed, 0, 0),
        isas_(request.isas),
        reduction_(request.reduction) {
    results_.machine = support::DescribeMachine();
    results_.seed = request.seed;
  }

  /// Measures one more problem and its neighbours.
  void Step() {
    const Problem problem = DrawModest();
    const std::optional<Suspicion> suspicion = Suspect(problem);
    if (!suspicion) return;
    if (!FindTrap(problem, *suspicion, kConfirmation)) return;
    const auto end = Clock::now() + reduction_;
    const Problem least = verify::Minimise(problem, [&](const Problem& p) {
      return Clock::now() < end && FindTrap(p, *suspicion, kGlance) && FindTrap(p, *suspicion, kConfirmation);
    });
    std::optional<Finding> finding = FindTrap(least, *suspicion, kReport);
    if (!finding) finding = FindTrap(problem, *suspicion, kReport);
    if (!finding) return;
    const bool is_known = std::ranges::any_of(results_.findings, [&](const Finding& known) {
      return known.slow == finding->slow && known.fast == finding->fast;
    });
    if (!is_known) results_.findings.push_back(*finding);
  }

  SearchResults Results() && {
    std::ranges::stable_sort(results_.findings, {},
                             [](const Finding& finding) { return Products(finding.slow); });
    return std::move(results_);
  }

 private:
  Problem DrawModest() {
    for (;;) {
      const Problem problem = Draw(isas_, &random_).Any();
      if (problem.Check() || verify::MemoryOf(problem) > kMostBytes) continue;
      if (Products(problem) <= kMostProducts) return problem;
    }
  }

  // Nothing if the problem cannot be measured; errors are counted.
  std::optional<support::Measurement> Prepare(const Problem& problem, Seconds shortest) {
    Result<support::Measurement> turn = stopwatch_(problem, shortest);
    if (turn) return std::move(*turn);
    if (turn.error().status == INTACT_UNSUPPORTED) return std::nullopt;
    if (results_.errors++ == 0) {
      results_.first_error = fmt::format("{}: {}", problem.ToString(), turn.error().message);
    }
    return std::nullopt;
  }

  // The suspicion with the largest ratio over its limit; nothing if none is above it.
  std::optional<Suspicion> Suspect(const Problem& problem) {
    const std::optional<support::Measurement> of_problem = Prepare(problem, kGlance.turn);
    if (!of_problem) return std::nullopt;
    ++results_.problems;
    std::optional<Suspicion> worst;
    double excess = 1;
    for (const Neighbour& neighbour : NeighboursOf(problem)) {
      const std::optional<Problem> changed = Apply(neighbour, problem);
      if (!changed || verify::MemoryOf(*changed) > 4 * kMostBytes) continue;
      const std::optional<support::Measurement> of_neighbour = Prepare(*changed, kGlance.turn);
      if (!of_neighbour) continue;
      ++results_.neighbours;
      const std::array turns = {*of_problem, *of_neighbour};
      const std::vector<std::vector<double>> figures = support::TakeTurns(turns, kGlance.budget);
      for (const bool is_neighbour_slow : {false, true}) {
        if (is_neighbour_slow && neighbour.is_isa) continue;
        const Finding finding = Compare(problem, *changed, figures, is_neighbour_slow);
        if (!IsTrap(finding, neighbour) || finding.ratio / LimitOf(neighbour) <= excess) continue;
        excess = finding.ratio / LimitOf(neighbour);
        worst = Suspicion{neighbour, is_neighbour_slow};
      }
    }
    return worst;
  }

  // Measures again whether the suspicion holds for `problem`.
  std::optional<Finding> FindTrap(const Problem& problem, const Suspicion& suspicion, const Effort& effort) {
    const std::optional<Problem> changed = Apply(suspicion.neighbour, problem);
    if (!changed) return std::nullopt;
    const std::optional<support::Measurement> of_problem = Prepare(problem, effort.turn);
    if (!of_problem) return std::nullopt;
    const std::optional<support::Measurement> of_neighbour = Prepare(*changed, effort.turn);
    if (!of_neighbour) return std::nullopt;
    const std::array turns = {*of_problem, *of_neighbour};
    Finding finding =
        Compare(problem, *changed, support::TakeTurns(turns, effort.budget), suspicion.is_neighbour_slow);
    if (!IsTrap(finding, suspicion.neighbour)) return std::nullopt;
    return finding;
  }

  static Finding Compare(const Problem& problem, const Problem& neighbour,
                         std::span<const std::vector<double>> figures, bool is_neighbour_slow) {
    const size_t slow = is_neighbour_slow ? 1 : 0, fast = 1 - slow;
    Finding finding{problem, neighbour};
    if (is_neighbour_slow) std::swap(finding.slow, finding.fast);
    finding.microseconds = support::Median(figures[slow]);
    finding.neighbour_microseconds = support::Median(figures[fast]);
    finding.work = Work(finding.slow, finding.fast);
    finding.ratio = support::MedianRatio(figures[slow], figures[fast]) / finding.work;
    return finding;
  }

  static bool IsTrap(const Finding& finding, const Neighbour& neighbour) {
    const double explained = finding.work * finding.neighbour_microseconds;
    return finding.ratio > LimitOf(neighbour) && finding.microseconds - explained >= kLeastMicroseconds;
  }

  const Stopwatch& stopwatch_;
  support::Random random_;
  std::vector<core::Isa> isas_;
  Seconds reduction_;
  SearchResults results_;
};

}  // namespace

Result<support::Measurement> TimeRuns(const verify::Problem& problem, Seconds shortest) {
  reference::Operation operation = verify::Materialize(problem);
  const verify::RunOptions options = verify::RunOptionsOf(problem);
  if (auto* gemm = std::get_if<reference::Gemm>(&operation)) {
    return TimeOperation<Gemm, intact_gemm_args>(std::move(*gemm), options, shortest);
  }
  return TimeOperation<Conv, intact_conv_args>(std::get<reference::Conv>(std::move(operation)), options,
                                               shortest);
}

double Products(const verify::Problem& p) {
  if (!p.conv) return static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k);
  const ConvGeometry& g = *p.conv;
  double products = static_cast<double>(g.batch * g.GroupInputs() * g.output_channels);
  for (const Axis& axis : AxesOf(g)) {
    int64_t inside = 0;
    for (int64_t o = 0; o < axis.Output(); ++o) {
      for (int64_t k = 0; k < axis.kernel; ++k) inside += axis.Holds(axis.Position(o, k)) ? 1 : 0;
    }
    products *= static_cast<double>(inside);
  }
  return products;
}

SearchResults Search(const SearchRequest& request, const Stopwatch& stopwatch,
                     const verify::Progress& progress) {
  Searcher searcher(request, stopwatch);
  const auto start = Clock::now();
  const auto total = static_cast<int64_t>(request.time.count());
  Seconds spent(0);
  for (int64_t i = 0; i < request.problems && spent < request.time; ++i) {
    progress(static_cast<int64_t>(spent.count()), total);
    searcher.Step();
    spent = Clock::now() - start;
  }
  progress(total, total);
  return std::move(searcher).Results();
}

std::string ToText(const SearchResults& results) {
  Table table;
  table.title = fmt::format("intact {}: search for traps, seed {}; one thread, medians of turns\n  {}",
                            intact_version(), results.seed, results.machine.cpu);
  table.head = {"us", "work", "ratio", "problem and neighbour"};
  for (const Finding& finding : results.findings) {
    table.rows.push_back({fmt::format("{:.2f}", finding.microseconds), fmt::format("{:.2f}", finding.work),
                          fmt::format("{:.2f}", finding.ratio), finding.slow.ToString()});
    table.rows.push_back(
        {fmt::format("{:.2f}", finding.neighbour_microseconds), "", "", finding.fast.ToString()});
  }
  table.notes.push_back(fmt::format("traps: {}, among {} with {}", results.findings.size(),
                                    support::Counted(results.problems, "problem"),
                                    support::Counted(results.neighbours, "neighbour")));
  if (results.errors != 0) {
    table.notes.push_back(fmt::format("errors: {}; the first: {}", results.errors, results.first_error));
  }
  if (results.problems == 0) table.notes.emplace_back("no problem was measured");
  return ToText(table);
}

nlohmann::ordered_json ToJson(const SearchResults& results) {
  nlohmann::ordered_json json = {{"schema", "intact-bench-search"},
                                 {"schema_version", 1},
                                 {"version", intact_version()},
                                 {"machine", verify::ToJson(results.machine)},
                                 {"seed", results.seed},
                                 {"problems", results.problems},
                                 {"neighbours", results.neighbours},
                                 {"errors", results.errors}};
  if (results.errors != 0) json["first_error"] = results.first_error;
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : results.findings) {
    json["findings"].push_back({{"slow", finding.slow.ToString()},
                                {"fast", finding.fast.ToString()},
                                {"microseconds", finding.microseconds},
                                {"neighbour_microseconds", finding.neighbour_microseconds},
                                {"work", finding.work},
                                {"ratio", finding.ratio}});
  }
  return json;
}

}  // namespace intact::bench

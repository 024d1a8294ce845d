#include <fmt/format.h>
#include <fmt/ranges.h>
#include <intact/engines.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engines.h"
#include "core/isas.h"
#include "core/result.h"
#include "support/counted.h"
#include "tools/commands/certify_weights.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/explain/audit.h"
#include "verify/explain/pairing.h"
#include "verify/problem/place.h"
#include "verify/report/report_json.h"

namespace intact::tools {
namespace {

constexpr int64_t kWitnessesListed = 8;

struct CertifyOptions {
  std::vector<std::string> files;
  WeightChoice weights;
  int amax = 255;
  std::string engine;  // "": all
  std::string json;
  TimeLimit time;
};

// The schedule of exact kernels on an ISA without VNNI.
struct Schedule {
  intact_isa isa;
  int64_t quads, items, groups;
  double PerQuad(int64_t count) const { return static_cast<double>(count) / static_cast<double>(quads); }
};

// A pair that can saturate: depths k and k1 of a column, as reference/models/lowering.h counts them.
struct FailingPair {
  int64_t n, k, k1;
  int32_t w0, w1, a0, a1, sum;
};

// Pairs to certify. `isa`: the CPUs that have them, if an engine's pairs depend on the CPU; else ANY.
struct Asked {
  intact_engine_pairs pairs;
  intact_isa isa = INTACT_ISA_ANY;
  bool operator==(const Asked&) const = default;
};

struct PairingFindings {
  Asked asked;
  intact_certificate certificate;
  std::vector<FailingPair> witnesses;  // the first ones

  double FailingShare() const {
    return static_cast<double>(certificate.failing_pairs) / static_cast<double>(certificate.pairs);
  }
};

struct Findings {
  std::vector<Asked> without_pairs;       // on these CPUs the engine adds no products in int16
  std::vector<PairingFindings> pairings;  // for each kind of pairs that matters
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;  // what does not depend on the pairing
  std::vector<intact_panel_certificate> panels;              // only of a matrix
  std::vector<Schedule> schedules;

  bool IsProven() const {
    return std::ranges::all_of(pairings, [](const auto& of) { return of.certificate.failing_pairs == 0; });
  }
  int64_t SafeDepthQuads() const {
    const auto less = [](const auto& a, const auto& b) { return a.safe_depth_quads < b.safe_depth_quads; };
    return std::min_element(panels.begin(), panels.end(), less)->safe_depth_quads;
  }
};

// Describes the conditions of the certificate. Nothing else is limited: sums may leave int32, and the bounds
// of accumulators then show this.
void SetLinear(const Weights& weights, int amax, intact_isa isa, intact_linear_desc* linear) {
  linear->b_type = weights.type;
  if (!weights.zero_points.empty()) linear->b_zero_points = weights.zero_points.data();
  linear->b_zero_point_count = std::ssize(weights.zero_points);
  linear->a_max = amax;
  linear->range_check = INTACT_RANGE_UNCHECKED;
  linear->overflow = INTACT_OVERFLOW_WRAPS;
  linear->max_isa = isa;
}

Result<Gemm> CreateGemm(const Weights& weights, int amax, intact_isa isa) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = weights.n;
  desc.k = weights.k;
  desc.b_stride_k = 1;
  desc.b_stride_n = weights.k;
  SetLinear(weights, amax, isa, &desc.linear);
  return Gemm::Create(desc, weights.values.data());
}

// A convolution with an input as large as the kernel.
Result<Conv> CreateConv(const Weights& weights, int amax, intact_isa isa) {
  const std::vector<int64_t> kernel = weights.Kernel();
  ConvDesc desc = MakeConvDesc();
  desc.spatial_dims = weights.conv->dims;
  desc.input_channels = weights.conv->input_channels;
  desc.output_channels = weights.n;
  desc.groups = weights.conv->groups;
  std::copy(kernel.begin(), kernel.end(), std::begin(desc.input));
  std::copy(kernel.begin(), kernel.end(), std::begin(desc.kernel));
  SetLinear(weights, amax, isa, &desc.linear);
  return Conv::Create(desc, weights.values.data());
}

intact_pairing PairingOf(intact_engine_pairs pairs) {
  return pairs == INTACT_ENGINE_PAIRS_FLATTENED ? INTACT_PAIRING_FLATTENED : INTACT_PAIRING_WITHIN_TAP;
}

Result<intact_certificate> CertificateOf(const Gemm& plan, intact_engine_pairs) { return plan.Certificate(); }
Result<intact_certificate> CertificateOf(const Conv& plan, intact_engine_pairs pairs) {
  return plan.Certificate(PairingOf(pairs));
}

Result<std::vector<FailingPair>> WitnessesOf(const Gemm& plan, const Weights& weights, intact_engine_pairs) {
  std::array<intact_failing_pair, kWitnessesListed> pairs;
  int64_t written = 0;
  const intact_status status =
      intact_gemm_failing_pairs(plan.handle(), 0, kWitnessesListed, pairs.data(), &written);
  if (status != INTACT_OK) return Error{status, intact_last_error()};
  std::vector<FailingPair> witnesses;
  for (const intact_failing_pair& pair : std::span(pairs).first(static_cast<size_t>(written))) {
    const int64_t k1 = std::min(pair.k + 1, weights.k - 1);
    witnesses.push_back({pair.n, pair.k, k1, pair.w0, pair.w1, pair.a0, pair.a1, pair.sum});
  }
  return witnesses;
}

Result<std::vector<FailingPair>> WitnessesOf(const Conv& plan, const Weights& weights,
                                             intact_engine_pairs pairs_asked) {
  std::array<intact_conv_failing_pair, kWitnessesListed> pairs;
  int64_t written = 0;
  const intact_status status = intact_conv_failing_pairs(plan.handle(), PairingOf(pairs_asked), 0,
                                                         kWitnessesListed, pairs.data(), &written);
  if (status != INTACT_OK) return Error{status, intact_last_error()};
  const std::vector<int64_t> kernel = weights.Kernel();
  const reference::ConvGeometry& conv = *weights.conv;
  std::vector<FailingPair> witnesses;
  for (const intact_conv_failing_pair& pair : std::span(pairs).first(static_cast<size_t>(written))) {
    int64_t tap = 0;
    for (size_t i = 0; i < kernel.size(); ++i) tap = tap * kernel[i] + pair.tap[i];
    const int64_t k = tap * conv.TapDepth() + pair.channel;
    // A pair that can saturate has two weights. The weight after the last channel is in the next tap.
    const int64_t k1 = pair.channel + 1 < conv.GroupInputs() ? k + 1 : (tap + 1) * conv.TapDepth();
    witnesses.push_back({pair.output_channel, k, k1, pair.w0, pair.w1, pair.a0, pair.a1, pair.sum});
  }
  return witnesses;
}

Error AddPanels(const Gemm& plan, Findings* findings) {
  findings->panels.resize(static_cast<size_t>(findings->certificate.panels));
  const intact_status status =
      intact_gemm_panel_certificates(plan.handle(), 0, findings->certificate.panels, findings->panels.data());
  return status == INTACT_OK ? Error() : Error{status, intact_last_error()};
}
Error AddPanels(const Conv& /*plan*/, Findings* /*findings*/) { return {}; }

// Returns `weights` with one more depth behind the odd first half. Its products are 0, so adjacent depths are then the
// pairs of each half.
Weights WithHalvesApart(Weights weights) {
  const uint8_t nothing = weights.type == INTACT_U8 ? 128 : 0;
  std::vector<uint8_t> values;
  values.reserve(weights.values.size() + static_cast<size_t>(weights.n));
  const std::span<const uint8_t> all = weights.values;
  const auto depths = static_cast<size_t>(weights.k), first = (depths + 1) / 2;
  for (size_t n = 0; n < static_cast<size_t>(weights.n); ++n) {
    const auto column = all.subspan(n * depths, depths);
    values.insert(values.end(), column.begin(), column.begin() + static_cast<std::ptrdiff_t>(first));
    values.push_back(nothing);
    values.insert(values.end(), column.begin() + static_cast<std::ptrdiff_t>(first), column.end());
  }
  weights.values = std::move(values);
  ++weights.k;
  return weights;
}

// Adds the certificate of `moved`: the weights in an order in which usual pairs are the asked ones. `create` makes a
// plan of weights for an ISA. `place`: the depth in the weights of a depth in `moved`.
template <class Create, class Place>
Error AddMoved(const Weights& moved, const Asked& asked, const Create& create, const Place& place,
               Findings* findings) {
  ASSIGN_OR_RETURN(const auto plan, create(moved, INTACT_ISA_ANY));
  ASSIGN_OR_RETURN(const intact_certificate certificate, CertificateOf(plan, asked.pairs));
  ASSIGN_OR_RETURN(std::vector<FailingPair> witnesses, WitnessesOf(plan, moved, asked.pairs));
  for (FailingPair& pair : witnesses) {
    for (int64_t* const k : {&pair.k, &pair.k1}) *k = place(*k);
  }
  findings->pairings.push_back({asked, certificate, std::move(witnesses)});
  return {};
}

template <class Create>
Error AddHalves(const Weights& weights, const Asked& asked, const Create& create, Findings* findings) {
  const auto place = [&](int64_t k) { return k > weights.k / 2 ? k - 1 : k; };
  return AddMoved(WithHalvesApart(weights), asked, create, place, findings);
}

// Returns the weights of a convolution with the taps of a kernel row, or with the taps of a plane in the order of its
// columns, as channels of one tap. The layer has one input channel in a group.
Weights WithTapsAsChannels(Weights weights, intact_engine_pairs pairs) {
  reference::ConvGeometry& conv = *weights.conv;
  int64_t channels = std::exchange(conv.axes.back().kernel, 1);
  if (pairs == INTACT_ENGINE_PAIRS_KERNEL_COLUMN) {
    const int64_t width = channels, height = std::exchange(conv.axes[conv.axes.size() - 2].kernel, 1);
    channels = width * height;
    const std::vector<uint8_t> values = weights.values;
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t plane = i / channels, tap = i % channels;
      weights.values[static_cast<size_t>(plane * channels + tap % width * height + tap / width)] =
          values[static_cast<size_t>(i)];
    }
  }
  conv.input_channels = conv.groups * channels;
  return weights;
}

template <class Create>
Error AddTaps(const Weights& weights, const Asked& asked, const Create& create, Findings* findings) {
  const Weights moved = WithTapsAsChannels(weights, asked.pairs);
  const int64_t channels = moved.conv->GroupInputs(), pitch = moved.conv->TapDepth();
  const int64_t width = weights.conv->axes.back().kernel, height = channels / width;
  const auto place = [&](int64_t k) {
    int64_t tap = k % pitch;
    if (asked.pairs == INTACT_ENGINE_PAIRS_KERNEL_COLUMN) tap = tap % height * width + tap / height;
    return (k / pitch * channels + tap) * weights.conv->TapDepth();
  };
  return AddMoved(moved, asked, create, place, findings);
}

template <class Create>
Error AddCertificates(const Weights& weights, const std::vector<Asked>& all_asked, const Create& create,
                      Findings* findings) {
  ASSIGN_OR_RETURN(const auto plan, create(weights, INTACT_ISA_ANY));
  ASSIGN_OR_RETURN(findings->certificate, CertificateOf(plan, INTACT_ENGINE_PAIRS_WITHIN_TAP));
  for (const Asked& asked : all_asked) {
    if (asked.pairs == INTACT_ENGINE_PAIRS_NONE) {
      findings->without_pairs.push_back(asked);
    } else if (asked.pairs == INTACT_ENGINE_PAIRS_HALVES) {
      RETURN_IF_ERROR(AddHalves(weights, asked, create, findings));
    } else if (asked.pairs == INTACT_ENGINE_PAIRS_KERNEL_ROW ||
               asked.pairs == INTACT_ENGINE_PAIRS_KERNEL_COLUMN) {
      RETURN_IF_ERROR(AddTaps(weights, asked, create, findings));
    } else {
      ASSIGN_OR_RETURN(const intact_certificate certificate, CertificateOf(plan, asked.pairs));
      ASSIGN_OR_RETURN(std::vector<FailingPair> witnesses, WitnessesOf(plan, weights, asked.pairs));
      findings->pairings.push_back({asked, certificate, std::move(witnesses)});
    }
  }
  return AddPanels(plan, findings);
}

// Plans hold the weights, in one layout or more, so at most two live at a time.
template <class Create>
Result<Findings> Certify(const Weights& weights, const std::vector<Asked>& asked, const Create& create) {
  Findings findings;
  RETURN_IF_ERROR(AddCertificates(weights, asked, create, &findings));
  for (const intact_isa isa : core::kIsaLadder) {
    if (!core::SaturatesInt16(isa) || intact_isa_available(isa) == 0) continue;
    ASSIGN_OR_RETURN(const auto capped, create(weights, isa));
    ASSIGN_OR_RETURN(const intact_certificate of_isa, CertificateOf(capped, INTACT_ENGINE_PAIRS_WITHIN_TAP));
    if (of_isa.schedule_quads == 0) continue;  // the plan needs no schedule
    findings.schedules.push_back({isa, of_isa.schedule_quads, of_isa.schedule_items, of_isa.schedule_groups});
  }
  return findings;
}

Result<Findings> Certify(const Weights& weights, const std::vector<Asked>& asked, int amax) {
  if (!weights.conv) {
    return Certify(weights, asked,
                   [=](const Weights& of, intact_isa isa) { return CreateGemm(of, amax, isa); });
  }
  return Certify(weights, asked,
                 [=](const Weights& of, intact_isa isa) { return CreateConv(of, amax, isa); });
}

verify::EngineLayer LayerOf(const Weights& weights) {
  return verify::EngineLayerOf(weights.conv, weights.k, weights.type);
}

// The kinds of pairs that differ. With an `engine`: its pairs, on CPUs with AVX2 and, if they differ, on CPUs
// with AVX-512, for outputs of every width.
Result<std::vector<Asked>> PairsToCertify(const Weights& weights, const core::Engine* engine) {
  const verify::EngineLayer layer = LayerOf(weights);
  std::vector<Asked> asked;
  if (engine == nullptr) {
    for (const intact_engine_pairs pairs : verify::PairsOf(layer)) asked.push_back({pairs});
    return asked;
  }
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512}) {
    for (const verify::EngineLayer& one : verify::WithAllWidths(layer)) {
      const std::optional<intact_engine_pairs> pairs = core::PairsOf(*engine, one, isa);
      if (!pairs) return Error{INTACT_UNSUPPORTED, fmt::format("{}: nothing is known", engine->words)};
      const Asked asks = {*pairs, static_cast<intact_isa>(isa)};
      if (asked.empty() || asked.back() != asks) asked.push_back(asks);
    }
  }
  const bool is_one = asked.size() == 2 && verify::AreSame(asked[0].pairs, asked[1].pairs, layer);
  return is_one ? std::vector<Asked>{{asked[0].pairs}} : asked;
}

// "", " with AVX2", " with AVX-512": the CPUs that have these pairs.
std::string_view CpusText(const Asked& asked) {
  if (asked.isa == INTACT_ISA_ANY) return "";
  return asked.isa == INTACT_ISA_AVX512 ? " with AVX-512" : " with AVX2";
}

// "3 of 27 pairs (11.11 %)".
std::string ShareText(int64_t failing_pairs, int64_t pairs) {
  return fmt::format("{} of {} ({:.2f} %)", failing_pairs, support::Counted(pairs, "pair"),
                     100 * static_cast<double>(failing_pairs) / static_cast<double>(pairs));
}

std::string PairsText(const PairingFindings& of) {
  const intact_certificate& c = of.certificate;
  if (c.failing_pairs == 0) {
    return fmt::format("proven: none of {} can saturate VPMADDUBSW, whatever the activations",
                       support::Counted(c.pairs, "pair"));
  }
  return fmt::format("{} can saturate VPMADDUBSW; worst column {} with {}",
                     ShareText(c.failing_pairs, c.pairs), c.worst_column, c.worst_column_failing_pairs);
}

// "w.npy: 64 columns × 3×3 taps × 3 channels, read as ohwi".
std::string Heading(const std::string& file, const Weights& weights) {
  return fmt::format("{}: {} × {}, read as {}", file, support::Counted(weights.n, "column"), weights.Depths(),
                     weights.order);
}

bool LeaveInt32(const intact_certificate& c) {
  return c.accumulator_min < std::numeric_limits<int32_t>::min() ||
         c.accumulator_max > std::numeric_limits<int32_t>::max();
}

std::string ZeroPointsText(const Weights& weights) {
  if (weights.zero_points.empty()) return {};
  const auto [low, high] = std::ranges::minmax(weights.zero_points);
  if (low == high) return fmt::format(", zero point of weights {}", low);
  return fmt::format(", zero points of weights {} to {}", low, high);
}

void PrintWarning(const Weights& weights) {
  if (!weights.warning.empty()) Print("  warning: {}\n", weights.warning);
}

// The line for one of several files.
void PrintLine(const std::string& file, const Weights& weights, const Findings& findings) {
  std::string text;
  for (const PairingFindings& of : findings.pairings) {
    const intact_certificate& c = of.certificate;
    text += fmt::format("; {}{}: {}", verify::InWords(of.asked.pairs), CpusText(of.asked),
                        c.failing_pairs == 0 ? "proven" : ShareText(c.failing_pairs, c.pairs));
  }
  for (const Asked& none : findings.without_pairs)
    text += fmt::format("; no pairs{}: proven", CpusText(none));
  Print("{}{}\n", Heading(file, weights), text);
  PrintWarning(weights);
}

void PrintFindings(const std::string& file, const Weights& weights, const core::Engine* engine,
                   const Findings& findings) {
  const intact_certificate& c = findings.certificate;
  Print("{}, activations in [{}, {}]{}\n", Heading(file, weights), c.a_min, c.a_max, ZeroPointsText(weights));
  PrintWarning(weights);
  for (const PairingFindings& of : findings.pairings) {
    Print("  {} ({}): {}\n", verify::InWords(of.asked.pairs),
          engine != nullptr ? fmt::format("{}{}, {}", engine->words, CpusText(of.asked), engine->versions)
                            : verify::InWords(verify::EnginesWith(of.asked.pairs, LayerOf(weights))),
          PairsText(of));
    for (const FailingPair& w : of.witnesses) {
      const std::string place = weights.conv ? verify::PairPlace(weights.conv, w.n, w.k, w.k1)
                                             : fmt::format("depths {}, {}", w.k, w.k1);
      Print("    column {} {}: {}·({}) + {}·({}) = {}\n", w.n, place, w.a0, w.w0, w.a1, w.w1, w.sum);
    }
  }
  for (const Asked& none : findings.without_pairs) {
    Print("  {} ({}) adds no products in int16 here{}: proven\n", engine->words, engine->versions,
          CpusText(none));
  }
  if (!findings.panels.empty()) {
    Print("  adjacent k-quads that int16 can add up anywhere: {}\n", findings.SafeDepthQuads());
  }
  Print("  accumulators from {} to {}{}\n", c.accumulator_min, c.accumulator_max,
        LeaveInt32(c) ? " (leaves int32)" : "");
  for (const Schedule& schedule : findings.schedules) {
    Print("  exact on {}: {:.2f} items and {:.2f} widenings a k-quad (saturating: 1 and 1)\n",
          intact_isa_name(schedule.isa), schedule.PerQuad(schedule.items), schedule.PerQuad(schedule.groups));
  }
}

support::Json ToJson(const PairingFindings& of, const Weights& weights) {
  const intact_certificate& c = of.certificate;
  support::Json json = {{"pairing", verify::NameOf(of.asked.pairs)},
                        {"engines", support::Json::array()},
                        {"engines_with_avx512", support::Json::array()},
                        {"proven", c.failing_pairs == 0},
                        {"pairs", c.pairs},
                        {"failing_pairs", c.failing_pairs},
                        {"failing_share", of.FailingShare()},
                        {"worst_column", c.worst_column},
                        {"worst_column_failing_pairs", c.worst_column_failing_pairs},
                        {"witnesses", support::Json::array()}};
  if (of.asked.isa != INTACT_ISA_ANY) json["isa"] = intact_isa_name(of.asked.isa);
  for (const verify::EngineUse& use : verify::EnginesWith(of.asked.pairs, LayerOf(weights))) {
    json[use.only_with_avx512 ? "engines_with_avx512" : "engines"].push_back(use.engine->name);
  }
  for (const FailingPair& w : of.witnesses) {
    support::Json witness = {{"n", w.n},   {"k", w.k},   {"k1", w.k1}, {"w0", w.w0},
                             {"w1", w.w1}, {"a0", w.a0}, {"a1", w.a1}, {"sum", w.sum}};
    if (weights.conv) {
      for (const auto& [number, k] : {std::pair("", w.k), std::pair("1", w.k1)}) {
        const auto at = reference::TapChannelOf(*weights.conv, k);
        witness[std::string("tap") + number] = verify::OfItsDimensions(*weights.conv, at.tap);
        witness[std::string("channel") + number] = at.channel;
      }
    }
    json["witnesses"].push_back(std::move(witness));
  }
  return json;
}

support::Json ToJson(const std::string& file, const Weights& weights, const Findings& findings) {
  const intact_certificate& c = findings.certificate;
  support::Json json = {{"file", file},
                        {"columns", weights.n},
                        {"depth", weights.k},
                        {"shape", weights.shape},
                        {"layout", weights.order},
                        {"activation_min", c.a_min},
                        {"activation_max", c.a_max},
                        {"proven", findings.IsProven()},
                        {"pairings", support::Json::array()},
                        {"accumulator_min", c.accumulator_min},
                        {"accumulator_max", c.accumulator_max},
                        {"schedules", support::Json::array()}};
  if (!weights.warning.empty()) json["warning"] = weights.warning;
  for (const PairingFindings& of : findings.pairings) json["pairings"].push_back(ToJson(of, weights));
  if (weights.conv) {
    json["kernel"] = weights.Kernel();
    json["channels"] = weights.conv->GroupInputs();
    json["groups"] = weights.conv->groups;
  } else {
    json["panels"] = support::Json::array();
    json["safe_depth_quads"] = findings.SafeDepthQuads();
  }
  for (const intact_panel_certificate& panel : findings.panels) {
    json["panels"].push_back(
        {{"failing_pairs", panel.failing_pairs}, {"safe_depth_quads", panel.safe_depth_quads}});
  }
  for (const Schedule& schedule : findings.schedules) {
    json["schedules"].push_back({{"isa", intact_isa_name(schedule.isa)},
                                 {"quads", schedule.quads},
                                 {"items", schedule.items},
                                 {"groups", schedule.groups}});
  }
  return json;
}

// The sum over all files, for one kind of pairs or for an engine on some CPUs.
class Total {
 public:
  // `key`, `name`: a member of the JSON object. `asked`: the pairs, or an engine's CPUs. `is_optional`: the
  // total matters only if some file has just these pairs.
  Total(std::string_view words, std::string key, std::string_view name, Asked asked, bool is_optional = false)
      : words_(words), key_(std::move(key)), name_(name), asked_(asked), matters_(!is_optional) {}

  // Adds the file's pairs that `asked` names, or the only kind of pairs that the file has. Of an engine with several
  // kinds on some CPUs, the kind with the most pairs that can saturate counts.
  void Add(const std::string& file, const Findings& findings) {
    const auto is_asked = [this](const Asked& one) {
      return asked_.isa == INTACT_ISA_ANY ? one.pairs == asked_.pairs : one.isa == asked_.isa;
    };
    const intact_certificate* worst = nullptr;
    for (const PairingFindings& of : findings.pairings) {
      if (!is_asked(of.asked)) continue;
      if (worst == nullptr || of.certificate.failing_pairs > worst->failing_pairs) worst = &of.certificate;
    }
    const bool has_none = std::ranges::any_of(findings.without_pairs, is_asked);
    matters_ = matters_ || has_none || worst != nullptr;
    if (has_none || (worst == nullptr && findings.pairings.size() != 1)) return;
    Add(file, worst != nullptr ? *worst : findings.pairings.front().certificate);
  }

  bool Matters() const { return matters_; }

  std::string ToText() const {
    if (failing_pairs_ == 0)
      return fmt::format("  {}: proven: none of {}\n", words_, support::Counted(pairs_, "pair"));
    return fmt::format("  {}: {}; worst file {} with {}\n", words_, ShareText(failing_pairs_, pairs_),
                       worst_file_, ShareText(worst_failing_pairs_, worst_pairs_));
  }

  support::Json ToJson() const {
    support::Json json = {{key_, name_}, {"pairs", pairs_}, {"failing_pairs", failing_pairs_}};
    if (asked_.isa != INTACT_ISA_ANY) json["isa"] = intact_isa_name(asked_.isa);
    if (failing_pairs_ == 0) return json;
    json["worst_file"] = worst_file_;
    json["worst_file_failing_pairs"] = worst_failing_pairs_;
    return json;
  }

 private:
  void Add(const std::string& file, const intact_certificate& c) {
    pairs_ += c.pairs;
    failing_pairs_ += c.failing_pairs;
    if (c.failing_pairs <= worst_failing_pairs_) return;
    worst_failing_pairs_ = c.failing_pairs;
    worst_pairs_ = c.pairs;
    worst_file_ = file;
  }

  std::string words_, key_, name_;
  Asked asked_;
  bool matters_;
  int64_t pairs_ = 0, failing_pairs_ = 0;
  std::string worst_file_;
  int64_t worst_pairs_ = 0, worst_failing_pairs_ = 0;
};

// The summary of several files.
class Summary {
 public:
  explicit Summary(const core::Engine* engine) {
    if (engine != nullptr) {
      const std::string with_avx512 = std::string(engine->words) + " with AVX-512";
      totals_.emplace_back(engine->words, "engine", engine->name,
                           Asked{INTACT_ENGINE_PAIRS_NONE, INTACT_ISA_AVX2});
      totals_.emplace_back(with_avx512, "engine", engine->name,
                           Asked{INTACT_ENGINE_PAIRS_NONE, INTACT_ISA_AVX512}, true);
      return;
    }
    // A matrix has the same pairs in both pairings of convolutions.
    for (const intact_engine_pairs pairs :
         {INTACT_ENGINE_PAIRS_WITHIN_TAP, INTACT_ENGINE_PAIRS_FLATTENED, INTACT_ENGINE_PAIRS_HALVES,
          INTACT_ENGINE_PAIRS_KERNEL_ROW, INTACT_ENGINE_PAIRS_KERNEL_COLUMN}) {
      const bool is_optional =
          pairs != INTACT_ENGINE_PAIRS_WITHIN_TAP && pairs != INTACT_ENGINE_PAIRS_FLATTENED;
      totals_.emplace_back(verify::InWords(pairs), "pairing", verify::NameOf(pairs), Asked{pairs},
                           is_optional);
    }
  }

  void Add(const std::string& file, const Findings& findings) {
    ++files_;
    if (findings.IsProven()) ++proven_;
    for (Total& total : totals_) total.Add(file, findings);
  }

  std::string ToText() const {
    std::string text = fmt::format("{}: {} proven, {} with pairs that can saturate VPMADDUBSW\n",
                                   support::Counted(files_, "file"), proven_, files_ - proven_);
    for (const Total& total : totals_) text += total.Matters() ? total.ToText() : "";
    return text;
  }

  support::Json ToJson() const {
    support::Json json = {{"files", files_}, {"proven", proven_}, {"totals", support::Json::array()}};
    for (const Total& total : totals_) {
      if (total.Matters()) json["totals"].push_back(total.ToJson());
    }
    return json;
  }

 private:
  int64_t files_ = 0, proven_ = 0;
  std::vector<Total> totals_;
};

int RunCertify(const CertifyOptions& options) {
  const support::Deadline deadline = options.time.Start();
  const core::Engine* engine = core::FindEngine(options.engine);
  if (const std::optional<Error> error = options.weights.WhyNot()) return Fail(*error);
  int status = kParity;
  Summary summary(engine);
  support::Json files = support::Json::array();
  std::vector<std::string> missing;
  for (const std::string& file : options.files) {
    if (deadline.IsOver() && &file != &options.files.front()) {
      missing.push_back(file);
      continue;
    }
    const Result<Weights> weights = ReadWeights(file, options.weights);
    if (!weights) {
      status = Fail(weights.error());
      continue;
    }
    const Result<std::vector<Asked>> asked = PairsToCertify(*weights, engine);
    const Result<Findings> findings =
        asked ? Certify(*weights, *asked, options.amax) : Result<Findings>(asked.error());
    if (!findings) {
      status = Fail(file + ": " + findings.error().message);
      continue;
    }
    if (options.files.size() == 1) {
      PrintFindings(file, *weights, engine, *findings);
    } else {
      PrintLine(file, *weights, *findings);
    }
    summary.Add(file, *findings);
    files.push_back(ToJson(file, *weights, *findings));
  }
  if (!files.empty() && options.files.size() > 1) Print("{}", summary.ToText());
  for (const std::string& file : missing) status = WorseOf(status, Missing(file));
  if (files.empty()) return status;
  return WriteJson(
      options.json,
      {{"files", std::move(files)}, {"summary", summary.ToJson()}, {"missing", std::move(missing)}}, status);
}

}  // namespace

void AddVerifyCertify(CLI::App* verify, Command* command) {
  auto options = std::make_shared<CertifyOptions>();
  CLI::App* certify =
      verify->add_subcommand("certify",
                             "which weights can make VPMADDUBSW saturate, for each engine's pairs of depths, "
                             "and the bounds of accumulators if zero points of activations are 0; "
                             "information, not a verdict: exit status 0");
  RefuseEmpty(
      certify->add_option("WEIGHTS", options->files,
                          ".npy files of int8 or uint8: (columns, depth), or (output channels, "
                          "kernel…, channels) for a convolution; several files: a line each and totals"))
      ->type_name("FILE")
      ->required();
  certify->add_option("--amax", options->amax, "activations as the instruction sees them lie in [0, amax]")
      ->check(CLI::Range(1, 255))
      ->capture_default_str();
  certify
      ->add_option(
          "--layout", options->weights.layouts,
          "order of the files' dimensions: ohwi (default: TensorFlow Lite), oihw (ONNX, PyTorch) or hwio "
          "for convolutions, with any number of dimensions; nk (default) or kn for matrices; or both: "
          "ohwi,kn")
      ->type_name(fmt::format("{{{}}}", fmt::join(OrderNames(), ",")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(OrderNames()).description(""));
  RefuseEmpty(certify->add_option("--zero-point", options->weights.zero_points,
                                  "zero point of the weights, or a .npy file of one for each output channel: "
                                  "changes accumulators, not pairs"))
      ->type_name("N|FILE");
  certify->add_option("--groups", options->weights.groups, "groups of the convolution")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""))
      ->capture_default_str();
  certify
      ->add_option("--operator", options->weights.op,
                   "linear or conv (default: linear if there are two dimensions, else conv)")
      ->check(CLI::IsMember({"linear", "conv"}));
  std::vector<std::string> engines;
  for (const core::Engine& engine : core::Engines()) engines.emplace_back(engine.name);
  certify
      ->add_option("--engine", options->engine,
                   "certify for this engine's pairs only: " + fmt::format("{}", fmt::join(engines, ", ")))
      ->type_name("ENGINE")
      ->check(CLI::IsMember(engines).description(""));
  options->time.Add(certify, "begin no further file, and name the files that are left (status 4)");
  AddJsonOption(certify, &options->json, "write the certificates and their totals");
  certify->callback([options, command] { *command = [options] { return RunCertify(*options); }; });
}

}  // namespace intact::tools

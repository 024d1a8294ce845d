#include <fmt/format.h>
#include <fmt/ranges.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/commands.h"
#include "tools/terminal.h"
#include "verify/audit.h"
#include "verify/npy.h"
#include "verify/place.h"
#include "verify/report_json.h"

namespace intact::tools {
namespace {

constexpr int64_t kWitnessesListed = 8;

struct CertifyOptions {
  std::string file;
  int amax = 255;
  std::string json;
};

struct Weights {
  int64_t n = 0, k = 0;
  verify::MaybeConv conv;  // whose channels and kernel are the weights'; its groups do not matter to pairs
  intact_type type = INTACT_S8;
  std::vector<uint8_t> values;  // n×k; s8 in two's complement
  // "64 depths", "3×3 taps × 20 channels"
  std::string Depths() const {
    if (!conv) return fmt::format("{} depths", k);
    return fmt::format("{} taps × {} channels", fmt::join(Kernel(), "×"), conv->input_channels);
  }
  std::vector<int64_t> Kernel() const {
    std::vector<int64_t> kernel;
    for (int i = 3 - conv->dims; i < 3; ++i) kernel.push_back(conv->axes[static_cast<size_t>(i)].kernel);
    return kernel;
  }
};

// What exact kernels of an ISA without VNNI run.
struct Schedule {
  intact_isa isa;
  int64_t quads, items, groups;
  double PerQuad(int64_t count) const { return static_cast<double>(count) / static_cast<double>(quads); }
};

struct Findings {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  std::vector<intact_panel_certificate> panels;  // of a matrix
  std::vector<intact_failing_pair> witnesses;    // the first; k is that of reference/conv.h
  std::vector<Schedule> schedules;

  double FailingShare() const {
    return static_cast<double>(certificate.failing_pairs) / static_cast<double>(certificate.pairs);
  }
  int64_t SafeDepthQuads() const {
    const auto less = [](const auto& a, const auto& b) { return a.safe_depth_quads < b.safe_depth_quads; };
    return std::min_element(panels.begin(), panels.end(), less)->safe_depth_quads;
  }
};

Result<Weights> ReadWeights(const std::string& file) {
  Result<verify::NpyArray> npy = verify::ReadNpy(file);
  if (!npy) return npy.error();
  const auto invalid = [&](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", file, what)};
  };
  if (npy->type != INTACT_S8 && npy->type != INTACT_U8) return invalid("elements are not int8 or uint8");
  if (npy->shape.size() < 2) {
    return invalid(
        fmt::format("shape is {}; expected (columns, depth) or (output channels, kernel…, channels)",
                    verify::ShapeString(npy->shape)));
  }
  if (npy->shape.size() > 2 + INTACT_MAX_SPATIAL) {
    return invalid(fmt::format("shape is {}; expected a kernel of at most {} dimensions",
                               verify::ShapeString(npy->shape), INTACT_MAX_SPATIAL));
  }
  Weights weights;
  weights.n = npy->shape[0];
  if (npy->shape.size() > 2) {
    reference::ConvGeometry& conv = weights.conv.emplace();
    conv.dims = static_cast<int>(npy->shape.size()) - 2;
    for (size_t i = 1; i + 1 < npy->shape.size(); ++i) {
      conv.axes[i + 2 - static_cast<size_t>(conv.dims)].kernel = npy->shape[i];
    }
    conv.input_channels = npy->shape.back();
    conv.output_channels = weights.n;
  }
  weights.type = npy->type;
  weights.values = std::move(npy->bytes);
  weights.k = std::ssize(weights.values) / weights.n;
  return weights;
}

// What the certificate is to hold for, whatever is beyond.
void SetRange(int amax, intact_isa isa, intact_linear_desc* linear) {
  linear->a_max = amax;
  linear->range_check = INTACT_RANGE_UNCHECKED;
  linear->max_isa = isa;
}

Result<Gemm> CreateGemm(const Weights& weights, int amax, intact_isa isa) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = weights.n;
  desc.k = weights.k;
  desc.linear.b_type = weights.type;
  desc.b_stride_k = 1;
  desc.b_stride_n = weights.k;
  SetRange(amax, isa, &desc.linear);
  return Gemm::Create(desc, weights.values.data());
}

// A convolution of an input as large as the kernel.
Result<Conv> CreateConv(const Weights& weights, int amax, intact_isa isa) {
  const std::vector<int64_t> kernel = weights.Kernel();
  ConvDesc desc = MakeConvDesc();
  desc.spatial_dims = weights.conv->dims;
  desc.input_channels = weights.conv->input_channels;
  desc.output_channels = weights.n;
  std::copy(kernel.begin(), kernel.end(), std::begin(desc.input));
  std::copy(kernel.begin(), kernel.end(), std::begin(desc.kernel));
  desc.linear.b_type = weights.type;
  SetRange(amax, isa, &desc.linear);
  return Conv::Create(desc, weights.values.data());
}

intact_certificate CertificateOf(const Gemm& plan) {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  (void)intact_gemm_certificate(plan.handle(), &certificate);
  return certificate;
}
Result<intact_certificate> CertificateOf(const Conv& plan) { return plan.Certificate(); }

Error AddWitnesses(const Gemm& plan, const Weights& /*weights*/, Findings* findings) {
  findings->panels.resize(static_cast<size_t>(findings->certificate.panels));
  (void)intact_gemm_panel_certificates(plan.handle(), 0, findings->certificate.panels,
                                       findings->panels.data());
  findings->witnesses.resize(kWitnessesListed);
  int64_t written = 0;
  (void)intact_gemm_failing_pairs(plan.handle(), 0, kWitnessesListed, findings->witnesses.data(), &written);
  findings->witnesses.resize(static_cast<size_t>(written));
  return {};
}

Error AddWitnesses(const Conv& plan, const Weights& weights, Findings* findings) {
  std::array<intact_conv_failing_pair, kWitnessesListed> pairs;
  int64_t written = 0;
  const intact_status status =
      intact_conv_failing_pairs(plan.handle(), 0, kWitnessesListed, pairs.data(), &written);
  if (status != INTACT_OK) return {status, intact_last_error()};
  const std::vector<int64_t> kernel = weights.Kernel();
  for (const intact_conv_failing_pair& pair : std::span(pairs).first(static_cast<size_t>(written))) {
    int64_t tap = 0;
    for (size_t i = 0; i < kernel.size(); ++i) tap = tap * kernel[i] + pair.tap[i];
    const int64_t k = tap * weights.conv->TapDepth() + pair.channel;
    findings->witnesses.push_back({k, pair.output_channel, pair.w0, pair.w1, pair.a0, pair.a1, pair.sum});
  }
  return {};
}

// `create` makes a plan for an ISA.
template <class Create>
Error AddCertificate(const Weights& weights, const Create& create, Findings* findings) {
  const auto plan = create(INTACT_ISA_ANY);
  if (!plan) return plan.error();
  const Result<intact_certificate> certificate = CertificateOf(*plan);
  if (!certificate) return certificate.error();
  findings->certificate = *certificate;
  return AddWitnesses(*plan, weights, findings);
}

// One plan lives at a time: each holds the weights, in one form or more.
template <class Create>
Result<Findings> Certify(const Weights& weights, const Create& create) {
  Findings findings;
  Error error = AddCertificate(weights, create, &findings);
  if (error.status != INTACT_OK) return error;
  for (const intact_isa isa : verify::kIsaLadder) {
    if (!verify::SaturatesInt16(isa) || intact_isa_available(isa) == 0) continue;
    const auto capped = create(isa);
    if (!capped) return capped.error();
    const Result<intact_certificate> of_isa = CertificateOf(*capped);
    if (!of_isa) return of_isa.error();
    if (of_isa->schedule_quads == 0) continue;  // such a plan needs none
    findings.schedules.push_back(
        {isa, of_isa->schedule_quads, of_isa->schedule_items, of_isa->schedule_groups});
  }
  return findings;
}

Result<Findings> Certify(const Weights& weights, int amax) {
  if (!weights.conv) {
    return Certify(weights, [&](intact_isa isa) { return CreateGemm(weights, amax, isa); });
  }
  return Certify(weights, [&](intact_isa isa) { return CreateConv(weights, amax, isa); });
}

void PrintFindings(const std::string& file, const Weights& weights, const Findings& findings) {
  const intact_certificate& c = findings.certificate;
  Print("{}: {} columns × {}, activations in [{}, {}]\n", file, weights.n, weights.Depths(), c.a_min,
        c.a_max);
  if (c.failing_pairs == 0) {
    Print("  proven: none of {} pairs can saturate VPMADDUBSW, whatever the activations\n", c.pairs);
  } else {
    Print("  {} of {} pairs ({:.2f} %) can saturate VPMADDUBSW; worst column {} with {}\n", c.failing_pairs,
          c.pairs, 100 * findings.FailingShare(), c.worst_column, c.worst_column_failing_pairs);
  }
  if (!findings.panels.empty()) {
    Print("  adjacent k-quads that int16 can add up anywhere: {}\n", findings.SafeDepthQuads());
  }
  Print("  accumulators from {} to {}\n", c.accumulator_min, c.accumulator_max);
  for (const Schedule& schedule : findings.schedules) {
    Print("  exact on {}: {:.2f} items and {:.2f} widenings a k-quad (saturating: 1 and 1)\n",
          intact_isa_name(schedule.isa), schedule.PerQuad(schedule.items), schedule.PerQuad(schedule.groups));
  }
  for (const intact_failing_pair& w : findings.witnesses) {
    const std::string place =
        weights.conv ? verify::PairPlace(weights.conv, w.n, w.k) : fmt::format("depths {}, {}", w.k, w.k + 1);
    Print("  column {} {}: {}·({}) + {}·({}) = {}\n", w.n, place, w.a0, w.w0, w.a1, w.w1, w.sum);
  }
}

verify::Json ToJson(const std::string& file, const Weights& weights, const Findings& findings) {
  const intact_certificate& c = findings.certificate;
  verify::Json json = {{"file", file},
                       {"columns", weights.n},
                       {"depth", weights.k},
                       {"activation_min", c.a_min},
                       {"activation_max", c.a_max},
                       {"proven", c.failing_pairs == 0},
                       {"pairs", c.pairs},
                       {"failing_pairs", c.failing_pairs},
                       {"failing_share", findings.FailingShare()},
                       {"worst_column", c.worst_column},
                       {"worst_column_failing_pairs", c.worst_column_failing_pairs},
                       {"accumulator_min", c.accumulator_min},
                       {"accumulator_max", c.accumulator_max},
                       {"schedules", verify::Json::array()},
                       {"witnesses", verify::Json::array()}};
  if (weights.conv) {
    json["kernel"] = weights.Kernel();
    json["channels"] = weights.conv->input_channels;
  } else {
    json["panels"] = verify::Json::array();
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
  for (const intact_failing_pair& w : findings.witnesses) {
    verify::Json witness = {{"n", w.n},   {"k", w.k},   {"w0", w.w0},  {"w1", w.w1},
                            {"a0", w.a0}, {"a1", w.a1}, {"sum", w.sum}};
    if (weights.conv) {
      const auto at = reference::TapChannelOf(*weights.conv, w.k);
      witness["tap"] = verify::OfItsDimensions(*weights.conv, at.tap);
      witness["channel"] = at.channel;
    } else {
      witness["k"] = w.k;
    }
    json["witnesses"].push_back(std::move(witness));
  }
  return json;
}

int RunCertify(const CertifyOptions& options) {
  const Result<Weights> weights = ReadWeights(options.file);
  if (!weights) return Fail(weights.error());
  const Result<Findings> findings = Certify(*weights, options.amax);
  if (!findings) return Fail(options.file + ": " + findings.error().message);
  PrintFindings(options.file, *weights, *findings);
  return WriteJson(options.json, ToJson(options.file, *weights, *findings), kParity);
}

}  // namespace

void AddVerifyCertify(CLI::App* verify, Command* command) {
  auto options = std::make_shared<CertifyOptions>();
  CLI::App* certify = verify->add_subcommand(
      "certify",
      "which weights can make VPMADDUBSW saturate, and what accumulators reach where zero points are 0; "
      "information, not a verdict: exit status 0");
  RefuseEmpty(
      certify->add_option(
          "WEIGHTS", options->file,
          ".npy file of int8 or uint8: (columns, depth), or (output channels, kernel…, channels) of a "
          "convolution, whose pairs are adjacent channels of a tap"))
      ->type_name("FILE")
      ->required();
  certify->add_option("--amax", options->amax, "activations as the instruction sees them lie in [0, amax]")
      ->check(CLI::Range(1, 255))
      ->capture_default_str();
  AddJsonOption(certify, &options->json, "write the certificate");
  certify->callback([options, command] { *command = [options] { return RunCertify(*options); }; });
}

}  // namespace intact::tools

#include <fmt/format.h>
#include <intact/intact.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tools/commands.h"
#include "verify/npy.h"
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
  intact_type type = INTACT_S8;
  std::vector<uint8_t> values;  // n×k; s8 in two's complement
};

// What exact kernels of an ISA without VNNI run.
struct Schedule {
  intact_isa isa;
  int64_t quads, items, groups;
  double PerQuad(int64_t count) const { return static_cast<double>(count) / static_cast<double>(quads); }
};

struct Findings {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  std::vector<intact_panel_certificate> panels;
  std::vector<intact_failing_pair> witnesses;  // the first
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
  const Result<verify::NpyArray> npy = verify::ReadNpy(file);
  if (!npy) return npy.error();
  const auto invalid = [&](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", file, what)};
  };
  if (npy->type != INTACT_S8 && npy->type != INTACT_U8) return invalid("elements are not int8 or uint8");
  if (npy->shape.size() < 2) {
    return invalid(fmt::format("shape is {}; expected (columns, depth…)", verify::ShapeString(npy->shape)));
  }
  Weights weights;
  weights.n = npy->shape[0];
  weights.type = npy->type;
  weights.values = npy->bytes;
  weights.k = std::ssize(weights.values) / weights.n;
  return weights;
}

Result<Gemm> CreatePlan(const Weights& weights, int amax, intact_isa isa) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = weights.n;
  desc.k = weights.k;
  desc.b_type = weights.type;
  desc.b_stride_k = 1;
  desc.b_stride_n = weights.k;
  desc.a_max = amax;
  desc.range_check = INTACT_RANGE_UNCHECKED;  // the certificate is to hold for this range, whatever is beyond
  desc.max_isa = isa;
  return Gemm::Create(desc, weights.values.data());
}

Result<Findings> Certify(const Weights& weights, int amax) {
  Findings findings;
  const Result<Gemm> plan = CreatePlan(weights, amax, INTACT_ISA_ANY);
  if (!plan) return plan.error();
  intact_certificate& certificate = findings.certificate;
  (void)intact_gemm_certificate(plan->handle(), &certificate);
  findings.panels.resize(static_cast<size_t>(certificate.panels));
  (void)intact_gemm_panel_certificates(plan->handle(), 0, certificate.panels, findings.panels.data());
  int64_t written = 0;
  findings.witnesses.resize(kWitnessesListed);
  (void)intact_gemm_failing_pairs(plan->handle(), 0, kWitnessesListed, findings.witnesses.data(), &written);
  findings.witnesses.resize(static_cast<size_t>(written));
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512}) {
    if (intact_isa_available(isa) == 0) continue;
    const Result<Gemm> capped = CreatePlan(weights, amax, isa);
    if (!capped) return capped.error();
    intact_certificate of_isa = INTACT_CERTIFICATE_INIT;
    (void)intact_gemm_certificate(capped->handle(), &of_isa);
    findings.schedules.push_back({isa, of_isa.schedule_quads, of_isa.schedule_items, of_isa.schedule_groups});
  }
  return findings;
}

void Print(const std::string& file, const Weights& weights, const Findings& findings) {
  const intact_certificate& c = findings.certificate;
  fmt::print("{}: {} columns × {} depths, activations in [{}, {}]\n", file, weights.n, weights.k, c.a_min,
             c.a_max);
  if (c.failing_pairs == 0) {
    fmt::print("  proven: none of {} pairs can saturate VPMADDUBSW, whatever the activations\n", c.pairs);
  } else {
    fmt::print("  {} of {} pairs ({:.2f} %) can saturate VPMADDUBSW; worst column {} with {}\n",
               c.failing_pairs, c.pairs, 100 * findings.FailingShare(), c.worst_column,
               c.worst_column_failing_pairs);
  }
  fmt::print("  adjacent k-quads that int16 can add up anywhere: {}\n", findings.SafeDepthQuads());
  fmt::print("  accumulators from {} to {}\n", c.accumulator_min, c.accumulator_max);
  for (const Schedule& schedule : findings.schedules) {
    fmt::print("  exact on {}: {:.2f} items and {:.2f} widenings a k-quad (saturating: 1 and 1)\n",
               intact_isa_name(schedule.isa), schedule.PerQuad(schedule.items),
               schedule.PerQuad(schedule.groups));
  }
  for (const intact_failing_pair& w : findings.witnesses) {
    fmt::print("  column {} depths {}, {}: {}·({}) + {}·({}) = {}\n", w.n, w.k, w.k + 1, w.a0, w.w0, w.a1,
               w.w1, w.sum);
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
                       {"safe_depth_quads", findings.SafeDepthQuads()},
                       {"accumulator_min", c.accumulator_min},
                       {"accumulator_max", c.accumulator_max},
                       {"panels", verify::Json::array()},
                       {"schedules", verify::Json::array()},
                       {"witnesses", verify::Json::array()}};
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
    json["witnesses"].push_back(
        {{"n", w.n}, {"k", w.k}, {"w0", w.w0}, {"w1", w.w1}, {"a0", w.a0}, {"a1", w.a1}, {"sum", w.sum}});
  }
  return json;
}

int RunCertify(const CertifyOptions& options) {
  const Result<Weights> weights = ReadWeights(options.file);
  if (!weights) return Fail(weights.error());
  const Result<Findings> findings = Certify(*weights, options.amax);
  if (!findings) return Fail(options.file + ": " + findings.error().message);
  Print(options.file, *weights, *findings);
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
          ".npy file of int8 or uint8 (columns, depth…); further dimensions are flattened into the depth"))
      ->required();
  certify->add_option("--amax", options->amax, "activations as the instruction sees them lie in [0, amax]")
      ->check(CLI::Range(1, 255))
      ->capture_default_str();
  AddJsonOption(certify, &options->json, "write the certificate");
  certify->callback([options, command] { *command = [options] { return RunCertify(*options); }; });
}

}  // namespace intact::tools

#include <utility>

#include "fuzz/call.h"
#include "fuzz/features.h"
#include "fuzz/items.h"
#include "reference/models/operands.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::fuzz {
namespace {

constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

intact_gemm_desc ReadDesc(Input* input) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = input->Integer(1, 80);
  desc.k = input->OneIn(8) ? input->Integer(1, 1600) : input->Integer(1, 200);
  switch (input->Byte() % 4) {
    case 1:  // by columns
      desc.b_stride_k = 1;
      desc.b_stride_n = desc.k;
      break;
    case 2:
      desc.b_stride_k = desc.n + input->Integer(0, 5);
      break;
    case 3:
      desc.b_stride_n = 2;
      desc.b_stride_k = 2 * desc.n;
      break;
    default:
      break;
  }
  desc.usual_m = input->Pick<int64_t>({0, 0, 1, 8, 40, 128});
  return desc;
}

// Values that the library must refuse before it reads weights.
void Spoil(Input* input, intact_gemm_desc* desc) {
  input->Spoil(&desc->n, {0, -1, kLowest, kHighest, int64_t{1} << 31});
  input->Spoil(&desc->k, {0, -1, kLowest, kHighest, int64_t{1} << 31});
  input->Spoil(&desc->b_stride_k, {-1, kLowest, kHighest});
  input->Spoil(&desc->b_stride_n, {-1, kLowest, kHighest});
  input->Spoil(&desc->usual_m, {-1, kLowest, kHighest, (int64_t{1} << 31) - 1});
}

// The list of failing pairs must be as long as the certificate says. Each pair must fail for its witness.
std::string CheckCertificate(const intact_gemm* gemm, const reference::Gemm& operation) {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  if (intact_gemm_certificate(gemm, &certificate) != INTACT_OK) return intact_last_error();
  std::vector<intact_failing_pair> pairs(static_cast<size_t>(certificate.failing_pairs) + 1);
  int64_t written = 0;
  if (intact_gemm_failing_pairs(gemm, 0, std::ssize(pairs), pairs.data(), &written) != INTACT_OK) {
    return intact_last_error();
  }
  if (written != certificate.failing_pairs) {
    return fmt::format("{} failing pairs, but {} are listed", certificate.failing_pairs, written);
  }
  pairs.pop_back();
  for (const intact_failing_pair& pair : pairs) {
    const int32_t w1 = pair.k + 1 < operation.k ? ShiftedWeight(operation, pair.k + 1, pair.n) : 0;
    const bool is_true = pair.w0 == ShiftedWeight(operation, pair.k, pair.n) && pair.w1 == w1 &&
                         pair.sum == pair.a0 * pair.w0 + pair.a1 * pair.w1 &&
                         (pair.sum > 32767 || pair.sum < -32768);
    if (!is_true) return fmt::format("the pair at k {} n {} does not fail", pair.k, pair.n);
  }
  return "";
}

// Plans with runtime B have no certificates and cannot be tuned.
std::string CheckHasNoCertificates(intact_gemm* gemm) {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  intact_failing_pair pair;
  intact_panel_certificate panel;
  int64_t written = 0;
  const bool is_refused = intact_gemm_certificate(gemm, &certificate) == INTACT_UNSUPPORTED &&
                          intact_gemm_panel_certificates(gemm, 0, 1, &panel) == INTACT_UNSUPPORTED &&
                          intact_gemm_failing_pairs(gemm, 0, 1, &pair, &written) == INTACT_UNSUPPORTED &&
                          intact_gemm_tune(gemm, 1, 0, nullptr) == INTACT_UNSUPPORTED;
  return is_refused ? "" : "a plan without weights has a certificate, or is tuned";
}

// Certificates, and now and then a tuning.
std::string Examine(Input* input, const reference::Gemm& operation, intact_gemm* gemm) {
  if (input->OneIn(4)) {
    std::string wrong =
        operation.has_runtime_b ? CheckHasNoCertificates(gemm) : CheckCertificate(gemm, operation);
    if (!wrong.empty()) return wrong;
  }
  if (!input->OneIn(64) || operation.has_runtime_b) return "";
  return intact_gemm_tune(gemm, operation.m, 0, nullptr) == INTACT_OK ? "" : intact_last_error();
}

// The layout of B's elements, if the descriptor is valid.
Layout LayoutOf(const intact_gemm_desc& desc) {
  return {desc.k, desc.b_stride_k == 0 ? desc.n : desc.b_stride_k, desc.n,
          desc.b_stride_n == 0 ? 1 : desc.b_stride_n};
}

// Creates a plan with `weights` or NULL. Returns nullptr if the library refuses the plan or should have
// refused it. `*wrong` describes a wrong answer of the library, if there is one.
PlanOwner<GemmApi> Create(Input* input, const intact_gemm_desc& desc, const intact_linear_desc& linear,
                          bool gives_weights, const std::vector<uint8_t>& weights, std::string* wrong) {
  const Versioned<intact_gemm_desc> given(desc, input);
  const Versioned<intact_linear_desc> given_linear(linear, input);
  auto b = verify::GuardedBuffer::Allocate(weights.size());
  if (!b) {
    *wrong = b.error().message;
    return nullptr;
  }
  std::copy(weights.begin(), weights.end(), b->data().begin());
  b->MakeReadOnly();
  intact_gemm* created = nullptr;
  const intact_status status = intact_gemm_create(given.get(), given_linear.get(),
                                                  gives_weights ? b->data().data() : nullptr, &created);
  PlanOwner<GemmApi> plan(created);
  const bool is_wrongly_given = gives_weights == (desc.runtime_b != 0);
  const bool is_spoilt = given.is_spoilt() || given_linear.is_spoilt() || is_wrongly_given;
  if (status != INTACT_OK) {
    *wrong = created != nullptr
                 ? "a creation fails and makes a plan"
                 : WrongCreation("intact_gemm_create", status, linear, input->is_spoilt() || is_spoilt);
    return nullptr;
  }
  if (is_spoilt) *wrong = "a struct of a wrong size is accepted, or a B that does not fit runtime_b";
  return is_spoilt ? nullptr : std::move(plan);
}

}  // namespace

std::string CheckGemm(std::span<const uint8_t> bytes, const Tamper& tamper) {
  Input input(bytes);
  const Features features(input.Byte());
  intact_gemm_desc desc = ReadDesc(&input);
  reference::Gemm operation;
  operation.n = desc.n;
  operation.k = desc.k;
  const Layout layout = LayoutOf(desc);
  Linear linear;
  ReadLinear(&input, desc.n, features.OutputTypes(), features.quantization, &linear);
  Spoil(&input, &desc);
  bool gives_weights = !features.has_runtime_b;
  if (features.Any()) {
    ReadFeatures(&input, features, &desc, &linear.desc);
    input.Spoil(&gives_weights, {features.has_runtime_b});
  }
  const std::vector<uint8_t> weights =
      features.has_runtime_b ? std::vector<uint8_t>(1) : ReadTensor(&input, layout.Extent());
  std::string wrong;
  PlanOwner<GemmApi> plan = Create(&input, desc, linear.desc, gives_weights, weights, &wrong);
  if (plan == nullptr) return wrong;

  Describe(linear.desc, operation.n, &operation);
  if (!features.has_runtime_b) {
    const std::vector<uint8_t> b = Dense(weights, layout, 1);
    operation.b.assign(b.begin(), b.end());
  }
  FeatureRun run(&input, linear.desc, layout, &operation);
  wrong = run.Read(features);
  if (!wrong.empty()) return wrong;
  verify::RunOptions options = ReadOptions(&input, operation.rows() * operation.n, &operation);
  run.ReadOptions(features, &options);
  wrong = Examine(&input, operation, plan.get());
  if (!wrong.empty()) return wrong;
  Others<intact_gemm_args> others;
  if (features.Any()) {
    others.amend = [&run](intact_gemm_args* args) { run.Amend(args); };
    others.spoil = [&run](intact_gemm_args* args) { return run.Spoil(args); };
  }
  return Call<GemmApi>(&input, "intact_gemm_run", operation, options, std::move(others))
      .Check(std::move(plan), tamper);
}

}  // namespace intact::fuzz

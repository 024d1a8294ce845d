#include <utility>

#include "fuzz/call.h"
#include "verify/guarded_buffer.h"

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

// Values that are refused without a look at the weights.
void Spoil(Input* input, intact_gemm_desc* desc) {
  input->Spoil(&desc->n, {0, -1, kLowest, kHighest, int64_t{1} << 31});
  input->Spoil(&desc->k, {0, -1, kLowest, kHighest, int64_t{1} << 31});
  input->Spoil(&desc->b_stride_k, {-1, kLowest, kHighest});
  input->Spoil(&desc->b_stride_n, {-1, kLowest, kHighest});
  input->Spoil(&desc->usual_m, {-1, kLowest, kHighest, (int64_t{1} << 31) - 1});
}

// The lists of failing pairs are as long as the certificate says, and each of them fails by its witness.
std::string CheckCertificate(const intact_gemm* gemm, const reference::Gemm& operation) {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  if (intact_gemm_certificate(gemm, &certificate) != INTACT_OK) return intact_last_error();
  std::vector<intact_failing_pair> pairs(static_cast<size_t>(certificate.failing_pairs) + 1);
  int64_t written = 0;
  if (intact_gemm_failing_pairs(gemm, 0, std::ssize(pairs), pairs.data(), &written) != INTACT_OK) {
    return intact_last_error();
  }
  if (written != certificate.failing_pairs) {
    return fmt::format("{} failing pairs, and {} are listed", certificate.failing_pairs, written);
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

}  // namespace

std::string CheckGemm(std::span<const uint8_t> bytes, const Tamper& tamper) {
  Input input(bytes);
  intact_gemm_desc desc = ReadDesc(&input);
  reference::Gemm operation;
  operation.n = desc.n;
  operation.k = desc.k;
  const int64_t stride_k = desc.b_stride_k == 0 ? desc.n : desc.b_stride_k;
  const int64_t stride_n = desc.b_stride_n == 0 ? 1 : desc.b_stride_n;
  Linear linear;
  ReadLinear(&input, desc.n, &linear);
  Spoil(&input, &desc);
  const std::vector<uint8_t> weights =
      ReadTensor(&input, (operation.k - 1) * stride_k + (operation.n - 1) * stride_n + 1);
  const Versioned<intact_gemm_desc> given(desc, &input);
  const Versioned<intact_linear_desc> given_linear(linear.desc, &input);
  auto b = verify::GuardedBuffer::Allocate(weights.size());
  if (!b) return b.error().message;
  std::copy(weights.begin(), weights.end(), b->data().begin());
  b->MakeReadOnly();
  intact_gemm* created = nullptr;
  const intact_status status =
      intact_gemm_create(given.get(), given_linear.get(), b->data().data(), &created);
  PlanOwner<GemmApi> plan(created);
  if (status != INTACT_OK) {
    if (created != nullptr) return "a plan that is refused is made";
    return WrongRefusal("intact_gemm_create", status,
                        input.is_spoilt() || given.is_spoilt() || given_linear.is_spoilt());
  }
  if (given.is_spoilt() || given_linear.is_spoilt()) return "a struct of a wrong size is taken";

  Describe(linear.desc, operation.n, &operation);
  for (int64_t k = 0; k < operation.k; ++k) {
    for (int64_t n = 0; n < operation.n; ++n) {
      operation.b.push_back(static_cast<int8_t>(weights[static_cast<size_t>(k * stride_k + n * stride_n)]));
    }
  }
  operation.m = input.OneIn(8) ? input.Integer(1, 300) : input.Integer(1, 40);
  operation.a = ReadTensor(&input, operation.m * operation.k);
  if (linear.desc.range_check == INTACT_RANGE_UNCHECKED) ClampToDeclared(linear.desc, &operation.a);
  const verify::RunOptions options = ReadOptions(&input, operation.m * operation.n, &operation);
  if (input.OneIn(4)) {
    std::string wrong = CheckCertificate(plan.get(), operation);
    if (!wrong.empty()) return wrong;
  }
  if (input.OneIn(64) && intact_gemm_tune(plan.get(), operation.m, 0, nullptr) != INTACT_OK) {
    return intact_last_error();
  }
  return Call<GemmApi>(&input, "intact_gemm_run", operation, options).Check(std::move(plan), tamper);
}

}  // namespace intact::fuzz

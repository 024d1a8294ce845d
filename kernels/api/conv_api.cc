// The C ABI of convolutions.
#include <intact/intact.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/api/guard.h"
#include "kernels/plans/convolution.h"

struct intact_conv {
  std::unique_ptr<intact::kernels::Convolution> plan;
};

namespace {

using intact::Error;
using intact::kernels::CheckListing;
using intact::kernels::CheckStruct;
using intact::kernels::ConvGeometry;
using intact::kernels::Convolution;
using intact::kernels::FailingPair;
using intact::kernels::Guard;
using intact::kernels::IsVerbose;
using intact::kernels::ModeName;
using intact::kernels::NullArgument;
using intact::kernels::Spatial;
using intact::kernels::Stopwatch;

// "1x56x56"
std::string Text(const Spatial& spatial) {
  std::string text = std::to_string(spatial.front());
  for (size_t i = 1; i < spatial.size(); ++i) text.append("x").append(std::to_string(spatial[i]));
  return text;
}

// `what`: "plan" or "run batch=1"; `how`: "" or " threads=2".
void Print(const Convolution& plan, const std::string& what, const std::string& how, const Stopwatch& watch) {
  const ConvGeometry& geometry = plan.geometry();
  std::fprintf(
      stderr,
      "intact: %s in=%s c=%lld o=%lld kernel=%s stride=%s dilation=%s groups=%lld%s %s mode=%s%s %.1f us\n",
      what.c_str(), Text(geometry.input).c_str(), static_cast<long long>(geometry.input_channels),
      static_cast<long long>(geometry.output_channels), Text(geometry.kernel).c_str(),
      Text(geometry.stride).c_str(), Text(geometry.dilation).c_str(), static_cast<long long>(geometry.groups),
      geometry.is_transposed ? " transposed" : "", plan.kernel_name().c_str(), ModeName(plan.mode()),
      how.c_str(), watch.Microseconds());
}

intact_conv_failing_pair ToStruct(const FailingPair& pair, const Convolution& plan) {
  const Spatial& kernel = plan.geometry().kernel;
  intact_conv_failing_pair made = {pair.n,  {},      pair.k % plan.PairPitch(), pair.w0, pair.w1, pair.a0,
                                   pair.a1, pair.sum};
  int64_t tap = pair.k / plan.PairPitch();
  for (int i = plan.spatial_dims() - 1; i >= 0; --i) {
    const int64_t extent = kernel[kernel.size() - static_cast<size_t>(plan.spatial_dims() - i)];
    made.tap[i] = tap % extent;
    tap /= extent;
  }
  return made;
}

}  // namespace

extern "C" {

intact_status intact_conv_create(const intact_conv_desc* desc, const void* weights, intact_conv** conv) {
  return Guard("intact_conv_create", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    *conv = nullptr;
    if (desc == nullptr) return NullArgument("desc");
    const Stopwatch watch;
    auto plan = Convolution::Create(*desc, weights);
    if (!plan) return plan.error();
    if (IsVerbose()) Print(**plan, "plan", "", watch);
    *conv = new intact_conv{std::move(*plan)};
    return {};
  });
}

intact_status intact_conv_run(const intact_conv* conv, const intact_conv_args* args) {
  return Guard("intact_conv_run", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    if (args == nullptr) return NullArgument("args");
    const Stopwatch watch;
    Error error = conv->plan->Run(*args);
    if (IsVerbose() && error.status == INTACT_OK) {
      Print(*conv->plan, "run batch=" + std::to_string(args->batch),
            " threads=" + std::to_string(args->threads), watch);
    }
    return error;
  });
}

intact_status intact_conv_run_part(const intact_conv* conv, const intact_conv_args* args, int32_t part,
                                   int32_t parts) {
  return Guard("intact_conv_run_part", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    if (args == nullptr) return NullArgument("args");
    const Stopwatch watch;
    Error error = conv->plan->RunPart(*args, part, parts);
    if (IsVerbose() && error.status == INTACT_OK) {
      Print(*conv->plan, "run batch=" + std::to_string(args->batch),
            " part=" + std::to_string(part) + "/" + std::to_string(parts), watch);
    }
    return error;
  });
}

intact_status intact_conv_query(const intact_conv* conv, intact_conv_info* info) {
  return Guard("intact_conv_query", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    Error error = CheckStruct("info", info);
    if (error.status != INTACT_OK) return error;
    const Convolution& plan = *conv->plan;
    *info = {sizeof(intact_conv_info),
             {1, 1, 1},
             static_cast<intact_isa>(plan.isa()),
             plan.mode(),
             plan.kernel_name().c_str(),
             plan.packed_bytes(),
             plan.accumulator_min(),
             plan.accumulator_max()};
    const Spatial& output = plan.geometry().output;
    std::copy(output.end() - plan.spatial_dims(), output.end(), info->output);
    return {};
  });
}

intact_status intact_conv_certificate(const intact_conv* conv, intact_certificate* certificate) {
  return Guard("intact_conv_certificate", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    Error error = CheckStruct("certificate", certificate);
    if (error.status != INTACT_OK) return error;
    const auto made = conv->plan->MakeCertificate();
    if (!made) return made.error();
    *certificate = ToStruct(*made, conv->plan->a_type(), conv->plan->schedule_statistics());
    return {};
  });
}

intact_status intact_conv_failing_pairs(const intact_conv* conv, int64_t first, int64_t count,
                                        intact_conv_failing_pair* pairs, int64_t* written) {
  return Guard("intact_conv_failing_pairs", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    Error error = CheckListing(first, count, pairs, written);
    if (error.status != INTACT_OK) return error;
    const auto listed = conv->plan->ListFailingPairs(first, count);
    if (!listed) return listed.error();
    for (const auto& pair : *listed) pairs[(*written)++] = ToStruct(pair, *conv->plan);
    return {};
  });
}

void intact_conv_destroy(intact_conv* conv) { delete conv; }

}  // extern "C"

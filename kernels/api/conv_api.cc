// The C ABI of convolutions.
#include <intact/intact.h>

#include <cstdio>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/result.h"
#include "kernels/api/bound.h"
#include "kernels/api/calls.h"
#include "kernels/api/guard.h"
#include "kernels/plans/convolution.h"
#include "kernels/problem/checks.h"

struct intact_conv {
  std::unique_ptr<intact::kernels::Convolution> plan;
};

namespace {

using intact::Error;
using intact::Result;
using namespace intact::kernels;  // NOLINT(google-build-using-namespace): this file is their C ABI

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
      geometry.is_transposed ? " transposed" : "", plan.kernel_name().c_str(), ModeName(plan.problem().mode),
      how.c_str(), watch.Microseconds());
}

void PrintTuned(const Convolution& plan, const int64_t* given, const Tuned& tuned) {
  const ConvGeometry& geometry = plan.geometry();
  Spatial input = geometry.input;
  for (int i = 0; i < geometry.dims && given != nullptr; ++i) {
    if (given[i] != 0) input[geometry.Place(i)] = given[i];
  }
  std::fprintf(stderr, "intact: tune in=%s c=%lld o=%lld kernel=%s %s\n", Text(input).c_str(),
               static_cast<long long>(geometry.input_channels),
               static_cast<long long>(geometry.output_channels), Text(geometry.kernel).c_str(),
               TextOf(tuned).c_str());
}

intact_conv_failing_pair ToStruct(const FailingPair& pair, const Convolution& plan, int32_t pairing) {
  const Spatial& kernel = plan.geometry().kernel;
  const int64_t pitch = Convolution::PairPitch(plan.geometry(), pairing);
  intact_conv_failing_pair made = {pair.n, {}, pair.k % pitch, pair.w0, pair.w1, pair.a0, pair.a1, pair.sum};
  int64_t tap = pair.k / pitch;
  for (int i = plan.geometry().dims - 1; i >= 0; --i) {
    const int64_t extent = kernel[plan.geometry().Place(i)];
    made.tap[i] = tap % extent;
    tap /= extent;
  }
  return made;
}

}  // namespace

template <>
struct intact::kernels::Kind<intact_conv> {
  static constexpr const char* kName = "conv";
  static constexpr intact_conv_args kArgs = INTACT_CONV_ARGS_INIT;
  static constexpr bool kKeepsImage = false;
  static constexpr auto Load = LoadConvolution;
  static Error CheckHasWeights(const Convolution& /*plan*/, const char* /*what*/) { return {}; }
  static void PrintPlan(const Convolution& plan, const Stopwatch& watch) { Print(plan, "plan", "", watch); }
  static void PrintRun(const Convolution& plan, const intact_conv_args& args, const std::string& how,
                       const Stopwatch& watch) {
    Print(plan, "run batch=" + std::to_string(args.batch), " " + how, watch);
  }
};

extern "C" {

intact_status intact_conv_create(const intact_conv_desc* desc, const intact_linear_desc* linear,
                                 const void* weights, intact_conv** conv) {
  return CreateCall("create", conv, [&] {
    return MakePlanOf(desc, intact_conv_desc(INTACT_CONV_DESC_INIT), linear, weights);
  });
}

intact_status intact_conv_prepare(const intact_conv* conv, const intact_conv_args* args,
                                  intact_run_info* info) {
  return PrepareCall(conv, args, info);
}

intact_status intact_conv_tune(intact_conv* conv, const int64_t* input, double milliseconds,
                               intact_tune_info* info) {
  return GuardCall<intact_conv>("tune", conv, [&]() -> Error {
    RETURN_IF_ERROR(CheckTuning(milliseconds, info));
    ASSIGN_OR_RETURN(const Tuned tuned, conv->plan->Tune(input, BudgetOf(milliseconds)));
    PrintIfVerbose([&] { PrintTuned(*conv->plan, input, tuned); });
    WriteTuned(tuned, info);
    return {};
  });
}

intact_status intact_conv_run(const intact_conv* conv, const intact_conv_args* args) {
  return RunCall(conv, args);
}

intact_status intact_conv_bind(const intact_conv* conv, const intact_conv_args* args, intact_bound** bound) {
  return BindCall(conv, args, bound);
}

intact_status intact_conv_run_part(const intact_conv* conv, const intact_conv_args* args, int32_t part,
                                   int32_t parts) {
  return RunPartCall(conv, args, part, parts);
}

intact_status intact_conv_query(const intact_conv* conv, intact_conv_info* info) {
  return FillCall("query", conv, "info", info, INTACT_CONV_INFO_INIT, [&](intact_conv_info* made) -> Error {
    const Convolution& plan = *conv->plan;
    const ConvGeometry& geometry = plan.geometry();
    made->spatial_dims = geometry.dims;
    made->a_type = plan.problem().a_type;
    made->b_type = plan.problem().b_type;
    made->c_type = plan.problem().output.c_type;
    made->residual_type = plan.problem().output.residual_type;
    made->isa = static_cast<int32_t>(plan.isa());
    made->mode = plan.problem().mode;
    made->input_channels = geometry.input_channels;
    made->output_channels = geometry.output_channels;
    for (int i = 0; i < INTACT_MAX_SPATIAL; ++i) {
      made->input[i] = i < geometry.dims ? geometry.input[geometry.Place(i)] : 1;
      made->output[i] = i < geometry.dims ? geometry.output[geometry.Place(i)] : 1;
    }
    made->kernel = plan.kernel_name().c_str();
    made->packed_bytes = plan.packed_bytes();
    std::tie(made->accumulator_min, made->accumulator_max) = plan.AccumulatorBounds();
    made->a_quantization = plan.problem().a_quantization;
    made->a_source_type = plan.problem().a_source_type;
    return {};
  });
}

intact_status intact_conv_certificate(const intact_conv* conv, int32_t pairing,
                                      intact_certificate* certificate) {
  return FillCall("certificate", conv, "certificate", certificate, INTACT_CERTIFICATE_INIT,
                  [&](intact_certificate* made) -> Error {
                    RETURN_IF_ERROR(CheckPairing(pairing));
                    ASSIGN_OR_RETURN(const auto found, conv->plan->MakeCertificate(pairing));
                    *made = ToStruct(found, conv->plan->problem().a_type, conv->plan->schedule_statistics(),
                                     pairing);
                    return {};
                  });
}

intact_status intact_conv_failing_pairs(const intact_conv* conv, int32_t pairing, int64_t first,
                                        int64_t count, intact_conv_failing_pair* pairs, int64_t* written) {
  const auto list = [&]() -> Result<std::vector<FailingPair>> {
    RETURN_IF_ERROR(CheckPairing(pairing));
    return conv->plan->ListFailingPairs(pairing, first, count);
  };
  return FailingPairsCall(conv, first, count, pairs, written, list,
                          [&](const FailingPair& pair) { return ToStruct(pair, *conv->plan, pairing); });
}

intact_status intact_conv_save(const intact_conv* conv, const char* path) { return SaveCall(conv, path); }

intact_status intact_conv_save_memory(const intact_conv* conv, void* data, size_t* size) {
  return SaveMemoryCall(conv, data, size);
}

intact_status intact_conv_load(const char* path, int32_t max_isa, intact_conv** conv) {
  return LoadCall(path, max_isa, conv);
}

intact_status intact_conv_load_memory(const void* data, size_t size, int32_t max_isa, intact_conv** conv) {
  return LoadMemoryCall(data, size, max_isa, conv);
}

void intact_conv_destroy(intact_conv* conv) { delete conv; }

}  // extern "C"

// The C ABI of convolutions.
#include <intact/intact.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/api/create.h"
#include "kernels/api/guard.h"
#include "kernels/plans/convolution.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/whole_file.h"
#include "kernels/weights/pack_file.h"

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

Error Adopt(Result<std::unique_ptr<Convolution>> plan, const Stopwatch& watch, intact_conv** conv) {
  if (!plan) return plan.error();
  PrintIfVerbose([&] { Print(**plan, "plan", "", watch); });
  *conv = new intact_conv{std::move(*plan)};
  return {};
}

Error Create(const intact_conv_desc* given_desc, const intact_linear_desc* given_linear, const void* weights,
             intact_conv** conv) {
  const Stopwatch watch;
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  Error error = ReadStruct("desc", given_desc, &desc);
  if (error.status == INTACT_OK && given_linear != nullptr) {
    error = ReadStruct("linear", given_linear, &linear);
  }
  return error.status == INTACT_OK ? Adopt(MakePlan(desc, linear, weights), watch, conv) : error;
}

// Runs `run` on arguments of this version.
template <class Run>
Error WithArguments(const intact_conv* conv, const intact_conv_args* args, const Run& run) {
  static constexpr intact_conv_args kDefaults = INTACT_CONV_ARGS_INIT;
  if (conv == nullptr) return Refuse([] { return NullArgument("conv"); });
  return WithStruct("args", args, kDefaults, run);
}

}  // namespace

extern "C" {

intact_status intact_conv_create(const intact_conv_desc* desc, const intact_linear_desc* linear,
                                 const void* weights, intact_conv** conv) {
  return Guard("intact_conv_create", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    *conv = nullptr;
    return Create(desc, linear, weights, conv);
  });
}

intact_status intact_conv_prepare(const intact_conv* conv, const intact_conv_args* args,
                                  intact_run_info* info) {
  return Guard("intact_conv_prepare", [&]() -> Error {
    return WithArguments(conv, args, [&](const intact_conv_args& own) -> Error {
      RETURN_IF_ERROR(CheckStructSize("info", info));
      intact_run_info made = INTACT_RUN_INFO_INIT;
      RETURN_IF_ERROR(conv->plan->Prepare(own, &made));
      WriteStruct(made, info);
      return {};
    });
  });
}

intact_status intact_conv_tune(intact_conv* conv, const int64_t* input, double milliseconds,
                               intact_tune_info* info) {
  return Guard("intact_conv_tune", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    RETURN_IF_ERROR(CheckTuning(milliseconds, info));
    ASSIGN_OR_RETURN(const Tuned tuned, conv->plan->Tune(input, BudgetOf(milliseconds)));
    PrintIfVerbose([&] { PrintTuned(*conv->plan, input, tuned); });
    WriteTuned(tuned, info);
    return {};
  });
}

intact_status intact_conv_run(const intact_conv* conv, const intact_conv_args* args) {
  return Guard("intact_conv_run", [&]() -> Error {
    const Stopwatch watch;
    return WithArguments(conv, args, [&](const intact_conv_args& own) -> Error {
      RETURN_IF_ERROR(conv->plan->Run(own));
      PrintIfVerbose([&] {
        Print(*conv->plan, "run batch=" + std::to_string(own.batch),
              " threads=" + std::to_string(own.threads), watch);
      });
      return {};
    });
  });
}

intact_status intact_conv_run_part(const intact_conv* conv, const intact_conv_args* args, int32_t part,
                                   int32_t parts) {
  return Guard("intact_conv_run_part", [&]() -> Error {
    const Stopwatch watch;
    return WithArguments(conv, args, [&](const intact_conv_args& own) -> Error {
      RETURN_IF_ERROR(conv->plan->RunPart(own, part, parts));
      PrintIfVerbose([&] {
        Print(*conv->plan, "run batch=" + std::to_string(own.batch),
              " part=" + std::to_string(part) + "/" + std::to_string(parts), watch);
      });
      return {};
    });
  });
}

intact_status intact_conv_query(const intact_conv* conv, intact_conv_info* info) {
  return Guard("intact_conv_query", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    RETURN_IF_ERROR(CheckStructSize("info", info));
    const Convolution& plan = *conv->plan;
    const ConvGeometry& geometry = plan.geometry();
    intact_conv_info made = INTACT_CONV_INFO_INIT;
    made.spatial_dims = geometry.dims;
    made.a_type = plan.problem().a_type;
    made.b_type = plan.problem().b_type;
    made.c_type = plan.problem().output.c_type;
    made.residual_type = plan.problem().output.residual_type;
    made.isa = static_cast<int32_t>(plan.isa());
    made.mode = plan.problem().mode;
    made.input_channels = geometry.input_channels;
    made.output_channels = geometry.output_channels;
    for (int i = 0; i < INTACT_MAX_SPATIAL; ++i) {
      made.input[i] = i < geometry.dims ? geometry.input[geometry.Place(i)] : 1;
      made.output[i] = i < geometry.dims ? geometry.output[geometry.Place(i)] : 1;
    }
    made.kernel = plan.kernel_name().c_str();
    made.packed_bytes = plan.packed_bytes();
    std::tie(made.accumulator_min, made.accumulator_max) = plan.AccumulatorBounds();
    made.a_quantization = plan.problem().a_quantization;
    made.a_source_type = plan.problem().a_source_type;
    WriteStruct(made, info);
    return {};
  });
}

intact_status intact_conv_certificate(const intact_conv* conv, int32_t pairing,
                                      intact_certificate* certificate) {
  return Guard("intact_conv_certificate", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    RETURN_IF_ERROR(CheckStructSize("certificate", certificate));
    RETURN_IF_ERROR(CheckPairing(pairing));
    ASSIGN_OR_RETURN(const auto made, conv->plan->MakeCertificate(pairing));
    WriteStruct(ToStruct(made, conv->plan->problem().a_type, conv->plan->schedule_statistics(), pairing),
                certificate);
    return {};
  });
}

intact_status intact_conv_failing_pairs(const intact_conv* conv, int32_t pairing, int64_t first,
                                        int64_t count, intact_conv_failing_pair* pairs, int64_t* written) {
  return Guard("intact_conv_failing_pairs", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    RETURN_IF_ERROR(CheckListing(first, count, pairs, written));
    RETURN_IF_ERROR(CheckPairing(pairing));
    ASSIGN_OR_RETURN(const auto listed, conv->plan->ListFailingPairs(pairing, first, count));
    for (const auto& pair : listed) pairs[(*written)++] = ToStruct(pair, *conv->plan, pairing);
    return {};
  });
}

intact_status intact_conv_save(const intact_conv* conv, const char* path) {
  return Guard("intact_conv_save", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    if (path == nullptr) return NullArgument("path");
    const auto image = ImageOf(*conv->plan);
    return image ? WriteWholeFile(path, *image) : image.error();
  });
}

intact_status intact_conv_save_memory(const intact_conv* conv, void* data, size_t* size) {
  return Guard("intact_conv_save_memory", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    if (size == nullptr) return NullArgument("size");
    if (data == nullptr) {
      *size = ImageBytes(*conv->plan);
      return {};
    }
    const auto image = ImageOf(*conv->plan);
    return image ? SaveTo(*image, data, size) : image.error();
  });
}

intact_status intact_conv_load(const char* path, int32_t max_isa, intact_conv** conv) {
  return Guard("intact_conv_load", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    *conv = nullptr;
    if (path == nullptr) return NullArgument("path");
    const Stopwatch watch;
    ASSIGN_OR_RETURN(const auto file, MapFile(path));
    Error error = Adopt(LoadConvolution(file.data.get(), file.size, max_isa, file.data), watch, conv);
    if (error.status != INTACT_OK) error.message = std::string("'") + path + "': " + error.message;
    return error;
  });
}

intact_status intact_conv_load_memory(const void* data, size_t size, int32_t max_isa, intact_conv** conv) {
  return Guard("intact_conv_load_memory", [&]() -> Error {
    if (conv == nullptr) return NullArgument("conv");
    *conv = nullptr;
    if (data == nullptr) return NullArgument("data");
    const Stopwatch watch;
    if (reinterpret_cast<uintptr_t>(data) % 64 == 0) {
      return Adopt(LoadConvolution(data, size, max_isa, nullptr), watch, conv);
    }
    AlignedBuffer<uint8_t> aligned;
    if (!aligned.Resize(size)) return {INTACT_OUT_OF_MEMORY, "no memory for the file"};
    std::memcpy(aligned.data(), data, size);
    return Adopt(LoadConvolution(aligned.data(), size, max_isa, nullptr), watch, conv);
  });
}

void intact_conv_destroy(intact_conv* conv) { delete conv; }

}  // extern "C"

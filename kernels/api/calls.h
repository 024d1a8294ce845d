// The calls that all kinds of plans have: create, prepare, run, run_part, query, save and load.
#ifndef INTACT_KERNELS_API_CALLS_H_
#define INTACT_KERNELS_API_CALLS_H_

#include <intact/intact.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/api/create.h"
#include "kernels/api/guard.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/whole_file.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {

/// What the calls know about a kind of plan. A Handle has a member `plan`.
///
///   kName              "gemm", in the names of the calls and of their first argument
///   kArgs              the INIT value of the struct of a run's arguments
///   kKeepsImage        a plan reads the bytes of load_memory() as long as it lives
///   Load               makes a plan from an image, the cap of the ISA and what keeps the image alive; null: the caller
///   CheckHasWeights    UNSUPPORTED if `what`, for example "save", needs weights that the plan lacks
///   PrintPlan          prints a line for INTACT_VERBOSE
///   PrintRun           the same; `how` is "threads=2" or "part=0/4"
template <class Handle>
struct Kind;

/// Guard() for the call `call` of a kind of plan: "run". `handle`, of a plan or for a plan, must not be NULL.
template <class Handle, class Pointer, class Body>
[[gnu::always_inline]] inline intact_status GuardCall(const char* call, const Pointer* handle,
                                                      const Body& body) noexcept {
  return Guard(Kind<Handle>::kName, call, [&]() -> Error {
    if (handle == nullptr) return Refuse([] { return NullArgument(Kind<Handle>::kName); });
    return body();
  });
}

/// Creates a plan: make() returns a Result of it.
template <class Handle, class Make>
intact_status CreateCall(const char* call, Handle** handle, const Make& make) noexcept {
  return GuardCall<Handle>(call, handle, [&]() -> Error {
    *handle = nullptr;
    const Stopwatch watch;
    auto plan = make();
    if (!plan) return plan.error();
    PrintIfVerbose([&] { Kind<Handle>::PrintPlan(**plan, watch); });
    *handle = new Handle{std::move(*plan)};
    return {};
  });
}

/// Makes a plan from descriptors of any version. `linear` may be null.
template <class Desc>
auto MakePlanOf(const Desc* given_desc, Desc desc, const intact_linear_desc* given_linear,
                const void* weights) -> decltype(MakePlan(desc, {}, weights)) {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  RETURN_IF_ERROR(ReadStruct("desc", given_desc, &desc));
  if (given_linear != nullptr) RETURN_IF_ERROR(ReadStruct("linear", given_linear, &linear));
  return MakePlan(desc, linear, weights);
}

/// Runs `run` on arguments of this version.
template <class Handle, class Args, class Run>
[[gnu::always_inline]] inline intact_status CallWithArguments(const char* call, const Handle* handle,
                                                              const Args* args, const Run& run) noexcept {
  return GuardCall<Handle>(call, handle, [&] { return WithStruct("args", args, Kind<Handle>::kArgs, run); });
}

template <class Handle, class Args>
intact_status PrepareCall(const Handle* handle, const Args* args, intact_run_info* info) noexcept {
  return CallWithArguments("prepare", handle, args, [&](const Args& own) -> Error {
    RETURN_IF_ERROR(CheckStructSize("info", info));
    intact_run_info made = INTACT_RUN_INFO_INIT;
    RETURN_IF_ERROR(handle->plan->Prepare(own, &made));
    WriteStruct(made, info);
    return {};
  });
}

template <class Handle, class Args>
intact_status RunCall(const Handle* handle, const Args* args) noexcept {
  const Stopwatch watch;
  return CallWithArguments("run", handle, args, [&](const Args& own) -> Error {
    RETURN_IF_ERROR(handle->plan->Run(own));
    PrintIfVerbose(
        [&] { Kind<Handle>::PrintRun(*handle->plan, own, "threads=" + std::to_string(own.threads), watch); });
    return {};
  });
}

template <class Handle, class Args>
intact_status RunPartCall(const Handle* handle, const Args* args, int32_t part, int32_t parts) noexcept {
  const Stopwatch watch;
  return CallWithArguments("run_part", handle, args, [&](const Args& own) -> Error {
    RETURN_IF_ERROR(handle->plan->RunPart(own, part, parts));
    PrintIfVerbose([&] {
      const std::string how = "part=" + std::to_string(part) + "/" + std::to_string(parts);
      Kind<Handle>::PrintRun(*handle->plan, own, how, watch);
    });
    return {};
  });
}

/// Fills `out`, a struct of any version: fill(&made) sets fields of `made`, or returns an error.
template <class Handle, class Struct, class Fill>
intact_status FillCall(const char* call, const Handle* handle, const char* name, Struct* out, Struct made,
                       const Fill& fill) noexcept {
  return GuardCall<Handle>(call, handle, [&]() -> Error {
    RETURN_IF_ERROR(CheckStructSize(name, out));
    RETURN_IF_ERROR(fill(&made));
    WriteStruct(made, out);
    return {};
  });
}

/// Writes at most `count` failing pairs from number `first` on. list() returns a Result of the pairs.
/// to_struct(pair) returns the struct of one pair.
template <class Handle, class Pair, class List, class ToStruct>
intact_status FailingPairsCall(const Handle* handle, int64_t first, int64_t count, Pair* pairs,
                               int64_t* written, const List& list, const ToStruct& to_struct) noexcept {
  return GuardCall<Handle>("failing_pairs", handle, [&]() -> Error {
    if (pairs == nullptr) return NullArgument("pairs");
    if (written == nullptr) return NullArgument("written");
    *written = 0;
    if (first < 0 || count < 0) {
      return InvalidArgument("first is " + std::to_string(first) + " and count is " + std::to_string(count) +
                             "; expected 0 or more");
    }
    ASSIGN_OR_RETURN(const auto listed, list());
    for (const auto& pair : listed) pairs[(*written)++] = to_struct(pair);
    return {};
  });
}

/// Checks that elements [first, first + count) are within [0, size). `things`: the elements' name in
/// messages.
inline Error CheckElements(int64_t first, int64_t count, int64_t size, const char* things) {
  if (first >= 0 && count >= 0 && first <= size && count <= size - first) return {};
  return InvalidArgument("first is " + std::to_string(first) + " and count is " + std::to_string(count) +
                         "; there are " + std::to_string(size) + " " + things);
}

template <class Handle>
intact_status SaveCall(const Handle* handle, const char* path) noexcept {
  return GuardCall<Handle>("save", handle, [&]() -> Error {
    if (path == nullptr) return NullArgument("path");
    RETURN_IF_ERROR(Kind<Handle>::CheckHasWeights(*handle->plan, "save"));
    ASSIGN_OR_RETURN(const std::vector<uint8_t> image, ImageOf(*handle->plan));
    return WriteWholeFile(path, image);
  });
}

template <class Handle>
intact_status SaveMemoryCall(const Handle* handle, void* data, size_t* size) noexcept {
  return GuardCall<Handle>("save_memory", handle, [&]() -> Error {
    if (size == nullptr) return NullArgument("size");
    RETURN_IF_ERROR(Kind<Handle>::CheckHasWeights(*handle->plan, "save"));
    if (data == nullptr) {
      ASSIGN_OR_RETURN(*size, ImageBytes(*handle->plan));
      return {};
    }
    ASSIGN_OR_RETURN(const std::vector<uint8_t> image, ImageOf(*handle->plan));
    const size_t room = std::exchange(*size, image.size());
    if (room < image.size()) {
      return InvalidArgument("size is " + std::to_string(room) + "; expected at least " +
                             std::to_string(image.size()) + " bytes");
    }
    std::memcpy(data, image.data(), image.size());
    return {};
  });
}

template <class Handle>
intact_status LoadCall(const char* path, int32_t max_isa, Handle** handle) noexcept {
  using Plan = decltype(Kind<Handle>::Load(nullptr, 0, 0, nullptr));
  return CreateCall("load", handle, [&]() -> Plan {
    if (path == nullptr) return NullArgument("path");
    ASSIGN_OR_RETURN(const MappedFile file, MapFile(path));
    Plan plan = Kind<Handle>::Load(file.data.get(), file.size, max_isa, file.data);
    if (plan) return plan;
    return Error{plan.error().status, std::string("'") + path + "': " + plan.error().message};
  });
}

template <class Handle>
intact_status LoadMemoryCall(const void* data, size_t size, int32_t max_isa, Handle** handle) noexcept {
  using Plan = decltype(Kind<Handle>::Load(nullptr, 0, 0, nullptr));
  return CreateCall("load_memory", handle, [&]() -> Plan {
    if (data == nullptr) return NullArgument("data");
    if (reinterpret_cast<uintptr_t>(data) % 64 == 0) return Kind<Handle>::Load(data, size, max_isa, nullptr);
    if (Kind<Handle>::kKeepsImage) return InvalidArgument("data is not aligned to 64 bytes");
    AlignedBuffer<uint8_t> aligned;
    if (!aligned.Resize(size)) return Error{INTACT_OUT_OF_MEMORY, "no memory for the file"};
    std::memcpy(aligned.data(), data, size);
    return Kind<Handle>::Load(aligned.data(), size, max_isa, nullptr);
  });
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_API_CALLS_H_

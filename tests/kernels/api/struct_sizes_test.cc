// Structs of other versions of the header, shorter or longer than this version's. Programs work with them,
// and the library reads and writes nothing beyond struct_size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/engines.h>
#include <intact/grouped.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <intact/intact.hpp>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/api/guard.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::tests {
namespace {

using testing::Each;
using testing::HasSubstr;

// ----- structs of another size -----------------------------------------------------------------------------

// A struct of `size` bytes, at least 8. The first bytes are from `known`, the others zero. It ends at a guard
// page, so that accesses beyond it are detected.
template <class Struct>
class OfSize {
 public:
  OfSize(const Struct& known, size_t size) : buffer_(Allocate(size)) {
    const auto bytes = buffer_.data();
    std::fill(bytes.begin(), bytes.end(), uint8_t{0});
    std::memcpy(bytes.data(), &known, std::min(size, sizeof(known)));
    std::memcpy(bytes.data(), &size, sizeof(size));
  }
  Struct* get() const { return reinterpret_cast<Struct*>(buffer_.data().data()); }
  std::span<uint8_t> bytes() const { return buffer_.data(); }

 private:
  static verify::GuardedBuffer Allocate(size_t size) {
    Result<verify::GuardedBuffer> made = verify::GuardedBuffer::Allocate(size);
    if (!made) throw std::bad_alloc();
    return std::move(*made);
  }
  verify::GuardedBuffer buffer_;
};

// A GEMM of 2×2 weights and a convolution of one tap, with their descriptors and arguments.
struct Objects {
  Objects() {
    gemm_desc.n = gemm_desc.k = 2;
    conv_desc.spatial_dims = 1;
    conv_desc.input_channels = conv_desc.output_channels = 2;
    conv_desc.input[0] = 2;
    gemm_args.m = conv_args.batch = 1;
    gemm_args.a = conv_args.a = a.data();
    gemm_args.c = conv_args.c = c.data();
    grouped_desc.n = grouped_desc.k = 2;
    grouped_desc.b_scales = b.data();  // two small float16
    grouped_desc.b_type = INTACT_S8;
    grouped_args.m = 1;
    grouped_args.a = numbers.data();
    grouped_args.c = c.data();
    EXPECT_EQ(intact_grouped_create(&grouped_desc, b.data(), &grouped), INTACT_OK);
    EXPECT_EQ(intact_gemm_create(&gemm_desc, nullptr, b.data(), &gemm), INTACT_OK);
    EXPECT_EQ(intact_conv_create(&conv_desc, nullptr, b.data(), &conv), INTACT_OK);
  }
  ~Objects() {
    intact_gemm_destroy(gemm);
    intact_conv_destroy(conv);
    intact_grouped_destroy(grouped);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  std::array<int8_t, 4> b = {1, 2, 3, 4};
  std::array<uint8_t, 4> a = {1, 10, 100, 200};
  std::array<float, 2> numbers = {1, 2};
  std::array<int32_t, 4> c = {};
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  intact_gemm_desc gemm_desc = INTACT_GEMM_DESC_INIT;
  intact_conv_desc conv_desc = INTACT_CONV_DESC_INIT;
  intact_gemm_args gemm_args = INTACT_GEMM_ARGS_INIT;
  intact_conv_args conv_args = INTACT_CONV_ARGS_INIT;
  intact_grouped_desc grouped_desc = INTACT_GROUPED_DESC_INIT;
  intact_grouped_args grouped_args = INTACT_GROUPED_ARGS_INIT;
  intact_gemm* gemm = nullptr;
  intact_conv* conv = nullptr;
  intact_grouped* grouped = nullptr;
};

// Calls `call` on structs like `known`, with sizes of programs of any version, and with other sizes.
template <class Struct>
void ExpectEverySizeIsRead(const char* name, const Struct& known,
                           const std::function<intact_status(const Struct*)>& call) {
  SCOPED_TRACE(name);
  constexpr size_t kKnown = sizeof(Struct);
  const auto expect_refused = [&](const OfSize<Struct>& given, const std::string& words) {
    EXPECT_EQ(call(given.get()), INTACT_INVALID_ARGUMENT) << words;
    EXPECT_THAT(intact_last_error(), HasSubstr(words));
  };
  for (const size_t size : {kernels::kFirstSize<Struct>, kKnown, kKnown + 8, kKnown + 16, size_t{4096}}) {
    const OfSize<Struct> given(known, size);
    EXPECT_EQ(call(given.get()), INTACT_OK) << size << ": " << intact_last_error();
  }
  for (const size_t size : {kKnown + 8, size_t{4096}}) {
    for (const size_t at : {kKnown, kKnown + 1, kKnown + 7, size - 1}) {
      const OfSize<Struct> given(known, size);
      given.bytes()[at] = 0x80;
      expect_refused(given, std::string(name) + " has byte " + std::to_string(at) + " set, beyond the " +
                                std::to_string(kKnown));
    }
  }
  for (const size_t size : {size_t{8}, kernels::kFirstSize<Struct> - 8, kernels::kFirstSize<Struct> - 1}) {
    // Memory is a multiple of eight bytes, but the struct's own size counts.
    const OfSize<Struct> given(known, (size + 7) / 8 * 8);
    given.get()->struct_size = size;
    expect_refused(given, std::string(name) + "->struct_size is " + std::to_string(size) + "; expected " +
                              std::to_string(kKnown));
  }
  for (const size_t size : {size_t{0}, size_t{4097}, ~size_t{0}}) {
    const OfSize<Struct> given(known, kKnown);
    given.get()->struct_size = size;
    expect_refused(given, std::string(name) + "->struct_size is " + std::to_string(size));
  }
}

TEST(StructSizes, OfWhatTheLibraryReads) {
  Objects objects;
  const auto create_gemm = [&](const intact_gemm_desc* desc, const intact_linear_desc* linear) {
    intact_gemm* made = nullptr;
    const intact_status status = intact_gemm_create(desc, linear, objects.b.data(), &made);
    EXPECT_EQ(made != nullptr, status == INTACT_OK);
    intact_gemm_destroy(made);
    return status;
  };
  const auto create_conv = [&](const intact_conv_desc* desc, const intact_linear_desc* linear) {
    intact_conv* made = nullptr;
    const intact_status status = intact_conv_create(desc, linear, objects.b.data(), &made);
    EXPECT_EQ(made != nullptr, status == INTACT_OK);
    intact_conv_destroy(made);
    return status;
  };
  ExpectEverySizeIsRead<intact_gemm_desc>(
      "desc", objects.gemm_desc, [&](const auto* desc) { return create_gemm(desc, &objects.linear); });
  ExpectEverySizeIsRead<intact_linear_desc>(
      "linear", objects.linear, [&](const auto* linear) { return create_gemm(&objects.gemm_desc, linear); });
  ExpectEverySizeIsRead<intact_conv_desc>("desc", objects.conv_desc,
                                          [&](const auto* desc) { return create_conv(desc, nullptr); });
  ExpectEverySizeIsRead<intact_linear_desc>(
      "linear", objects.linear, [&](const auto* linear) { return create_conv(&objects.conv_desc, linear); });
  ExpectEverySizeIsRead<intact_grouped_desc>("desc", objects.grouped_desc, [&](const auto* desc) {
    intact_grouped* made = nullptr;
    const intact_status status = intact_grouped_create(desc, objects.b.data(), &made);
    EXPECT_EQ(made != nullptr, status == INTACT_OK);
    intact_grouped_destroy(made);
    return status;
  });
  intact_run_info info = INTACT_RUN_INFO_INIT;
  ExpectEverySizeIsRead<intact_gemm_args>("args", objects.gemm_args, [&](const auto* args) {
    return intact_gemm_prepare(objects.gemm, args, &info);
  });
  ExpectEverySizeIsRead<intact_conv_args>("args", objects.conv_args, [&](const auto* args) {
    return intact_conv_prepare(objects.conv, args, &info);
  });
  // Runs write nothing unless they accept the arguments.
  const auto counted = [&](intact_status status) {
    EXPECT_EQ(objects.c[0] != 99, status == INTACT_OK);
    objects.c.fill(99);
    return status;
  };
  objects.c.fill(99);
  ExpectEverySizeIsRead<intact_gemm_args>("args", objects.gemm_args, [&](const auto* args) {
    return counted(intact_gemm_run(objects.gemm, args));
  });
  ExpectEverySizeIsRead<intact_gemm_args>("args", objects.gemm_args, [&](const auto* args) {
    return counted(intact_gemm_run_part(objects.gemm, args, 0, 1));
  });
  ExpectEverySizeIsRead<intact_conv_args>("args", objects.conv_args, [&](const auto* args) {
    return counted(intact_conv_run(objects.conv, args));
  });
  ExpectEverySizeIsRead<intact_conv_args>("args", objects.conv_args, [&](const auto* args) {
    return counted(intact_conv_run_part(objects.conv, args, 0, 1));
  });
  ExpectEverySizeIsRead<intact_grouped_args>("args", objects.grouped_args, [&](const auto* args) {
    return intact_grouped_prepare(objects.grouped, args, &info);
  });
  ExpectEverySizeIsRead<intact_grouped_args>("args", objects.grouped_args, [&](const auto* args) {
    return counted(intact_grouped_run(objects.grouped, args));
  });
  ExpectEverySizeIsRead<intact_grouped_args>("args", objects.grouped_args, [&](const auto* args) {
    return counted(intact_grouped_run_part(objects.grouped, args, 0, 1));
  });
}

// `argument`: the function's name for the struct. `expect_same(expected, bytes)` compares fields that all
// calls must report equally.
template <class Struct>
void ExpectEverySizeIsWritten(const char* argument, const Struct& init,
                              const std::function<intact_status(Struct*)>& call,
                              const std::function<void(const Struct&, const uint8_t*)>& expect_same,
                              bool may_be_null = false) {
  constexpr size_t kKnown = sizeof(Struct);
  Struct expected = init;
  ASSERT_EQ(call(&expected), INTACT_OK) << intact_last_error();
  for (const size_t size : {kernels::kFirstSize<Struct>, kKnown, kKnown + 8, kKnown + 64, size_t{4096}}) {
    const OfSize<Struct> given(init, size);
    const auto bytes = given.bytes();
    std::fill(bytes.begin() + sizeof(size), bytes.end(), uint8_t{0xee});
    ASSERT_EQ(call(given.get()), INTACT_OK) << intact_last_error();
    EXPECT_EQ(given.get()->struct_size, size);
    expect_same(expected, bytes.data());
    EXPECT_THAT(bytes.subspan(std::min(size, kKnown)), Each(0)) << size;
  }
  // Memory beyond the struct's size does not belong to the library.
  for (const size_t size : {kernels::kFirstSize<Struct>, kKnown, kKnown + 24}) {
    constexpr size_t kBeyond = 64;
    const OfSize<Struct> given(init, size + kBeyond);
    const auto bytes = given.bytes();
    given.get()->struct_size = size;
    std::fill(bytes.begin() + sizeof(size), bytes.end(), uint8_t{0xee});
    ASSERT_EQ(call(given.get()), INTACT_OK) << intact_last_error();
    EXPECT_THAT(bytes.last(kBeyond), Each(0xee)) << size;
    EXPECT_EQ(given.get()->struct_size, size);
  }
  for (const size_t size :
       {size_t{0}, size_t{8}, kernels::kFirstSize<Struct> - 1, size_t{4097}, ~size_t{0}}) {
    const OfSize<Struct> given(init, kKnown);
    const auto bytes = given.bytes();
    given.get()->struct_size = size;
    std::fill(bytes.begin() + sizeof(size), bytes.end(), uint8_t{0xee});
    EXPECT_EQ(call(given.get()), INTACT_INVALID_ARGUMENT) << size;
    EXPECT_THAT(intact_last_error(),
                HasSubstr(std::string(argument) + "->struct_size is " + std::to_string(size) + "; expected " +
                          std::to_string(kKnown)));
    EXPECT_THAT(bytes.subspan(sizeof(size)), Each(0xee)) << size;
  }
  EXPECT_EQ(call(nullptr), may_be_null ? INTACT_OK : INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr(may_be_null ? "" : std::string(argument) + " is NULL"));
}

// Compares all fields of the first version except struct_size. Padding may hold any bytes.
template <class Struct>
void ExpectSameFields(const Struct& expected, const uint8_t* actual) {
  const auto expect_same = [&](size_t begin, size_t end) {
    const auto* const wanted = reinterpret_cast<const uint8_t*>(&expected);
    EXPECT_EQ(std::memcmp(actual + begin, wanted + begin, end - begin), 0) << begin << " to " << end;
  };
  constexpr size_t kBegin = sizeof(expected.struct_size);
  if constexpr (std::is_same_v<Struct, intact_conv_info>) {
    expect_same(kBegin, offsetof(Struct, mode) + sizeof(expected.mode));
    expect_same(offsetof(Struct, input_channels), kernels::kFirstSize<Struct>);
  } else {
    static_assert(std::has_unique_object_representations_v<Struct>, "it has padding");
    expect_same(kBegin, kernels::kFirstSize<Struct>);
  }
}

template <class Struct>
void ExpectEverySizeIsWritten(const char* argument, const Struct& init,
                              const std::function<intact_status(Struct*)>& call) {
  ExpectEverySizeIsWritten<Struct>(argument, init, call, ExpectSameFields<Struct>);
}

TEST(StructSizes, OfWhatTheLibraryFills) {
  const Objects objects;
  ExpectEverySizeIsWritten<intact_gemm_info>("info", INTACT_GEMM_INFO_INIT, [&](intact_gemm_info* info) {
    return intact_gemm_query(objects.gemm, info);
  });
  ExpectEverySizeIsWritten<intact_conv_info>("info", INTACT_CONV_INFO_INIT, [&](intact_conv_info* info) {
    return intact_conv_query(objects.conv, info);
  });
  ExpectEverySizeIsWritten<intact_grouped_info>(
      "info", INTACT_GROUPED_INFO_INIT,
      [&](intact_grouped_info* info) { return intact_grouped_query(objects.grouped, info); });
  ExpectEverySizeIsWritten<intact_pairs_certificate>(
      "certificate", INTACT_PAIRS_CERTIFICATE_INIT,
      [&](intact_pairs_certificate* made) { return intact_grouped_certificate(objects.grouped, made); });
  ExpectEverySizeIsWritten<intact_run_info>("info", INTACT_RUN_INFO_INIT, [&](intact_run_info* info) {
    return intact_grouped_prepare(objects.grouped, &objects.grouped_args, info);
  });
  ExpectEverySizeIsWritten<intact_run_info>("info", INTACT_RUN_INFO_INIT, [&](intact_run_info* info) {
    return intact_gemm_prepare(objects.gemm, &objects.gemm_args, info);
  });
  ExpectEverySizeIsWritten<intact_run_info>("info", INTACT_RUN_INFO_INIT, [&](intact_run_info* info) {
    return intact_conv_prepare(objects.conv, &objects.conv_args, info);
  });
  ExpectEverySizeIsWritten<intact_certificate>(
      "certificate", INTACT_CERTIFICATE_INIT,
      [&](intact_certificate* made) { return intact_gemm_certificate(objects.gemm, made); });
  ExpectEverySizeIsWritten<intact_certificate>(
      "certificate", INTACT_CERTIFICATE_INIT, [&](intact_certificate* made) {
        return intact_conv_certificate(objects.conv, INTACT_PAIRING_FLATTENED, made);
      });
}

TEST(StructSizes, OfEngines) {
  intact_engine_layer layer = INTACT_ENGINE_LAYER_INIT;
  layer.engine = "onnxruntime";
  layer.depth = 16;
  intact_engine_answer answer = INTACT_ENGINE_ANSWER_INIT;
  ExpectEverySizeIsRead<intact_engine_layer>(
      "layer", layer, [&](const auto* given) { return intact_engine_ask(given, &answer); });
  EXPECT_EQ(answer.pairs, INTACT_ENGINE_PAIRS_DEPTHS);
  ExpectEverySizeIsWritten<intact_engine_answer>(
      "answer", INTACT_ENGINE_ANSWER_INIT,
      [&](intact_engine_answer* made) { return intact_engine_ask(&layer, made); });
  // It ends with padding.
  const auto expect_same = [](const intact_engine_info& expected, const uint8_t* bytes) {
    const auto* const actual = reinterpret_cast<const intact_engine_info*>(bytes);
    EXPECT_STREQ(actual->name, expected.name);
    EXPECT_STREQ(actual->words, expected.words);
    EXPECT_STREQ(actual->versions, expected.versions);
    EXPECT_EQ(actual->skips_padding, expected.skips_padding);
  };
  ExpectEverySizeIsWritten<intact_engine_info>(
      "info", INTACT_ENGINE_INFO_INIT,
      [](intact_engine_info* made) { return intact_engine_describe(0, made); }, expect_same);
}

// Times vary from call to call, and so do the chosen kernels.
TEST(StructSizes, OfWhatTuningFills) {
  const Objects objects;
  EXPECT_EQ(kernels::kFirstSize<intact_tune_info>, 272u);
  EXPECT_GE(sizeof(intact_tune_info), 272u);
  EXPECT_EQ(offsetof(intact_tune_info, microseconds), 8u);
  EXPECT_EQ(offsetof(intact_tune_info, model_microseconds), 16u);
  EXPECT_EQ(offsetof(intact_tune_info, candidates), 24u);
  EXPECT_EQ(offsetof(intact_tune_info, kernel), 32u);
  EXPECT_EQ(offsetof(intact_tune_info, model_kernel), 152u);
  const auto expect_same = [](const intact_tune_info& expected, const uint8_t* bytes) {
    const auto* const actual = reinterpret_cast<const intact_tune_info*>(bytes);
    EXPECT_GT(actual->microseconds, 0);
    EXPECT_GT(actual->model_microseconds, 0);
    EXPECT_EQ(actual->candidates, expected.candidates);
    EXPECT_EQ(actual->reserved, 0);
    EXPECT_STRNE(actual->kernel, "");
    EXPECT_STREQ(actual->model_kernel, expected.model_kernel);
  };
  ExpectEverySizeIsWritten<intact_tune_info>(
      "info", INTACT_TUNE_INFO_INIT,
      [&](intact_tune_info* info) { return intact_gemm_tune(objects.gemm, 1, 0, info); }, expect_same, true);
  ExpectEverySizeIsWritten<intact_tune_info>(
      "info", INTACT_TUNE_INFO_INIT,
      [&](intact_tune_info* info) { return intact_conv_tune(objects.conv, nullptr, 0, info); }, expect_same,
      true);
}

}  // namespace

// ----- a struct that has grown -----------------------------------------------------------------------------

// No struct of the header has grown yet. This one has a second version with two new fields at the end.
struct Grown {
  size_t struct_size;
  int32_t old, old_too;
  int64_t added;
  int32_t added_too, added_as_well;
};

}  // namespace intact::tests

template <>
inline constexpr size_t intact::kernels::kFirstSize<intact::tests::Grown> = 16;

namespace intact::tests {
namespace {

constexpr Grown kDefaults = {sizeof(Grown), 0, -1, 77, 88, 99};

TEST(GrownStructs, HaveDefaultsWhereTheCallersAreShorter) {
  const Grown given = {0, 5, 6, 7, 8, 9};
  const struct {
    size_t size;
    Grown expected;
  } cases[] = {
      {16, {sizeof(Grown), 5, 6, 77, 88, 99}},
      {24, {sizeof(Grown), 5, 6, 7, 88, 99}},
      {32, {sizeof(Grown), 5, 6, 7, 8, 9}},
      {40, {sizeof(Grown), 5, 6, 7, 8, 9}},
  };
  for (const auto& [size, expected] : cases) {
    Grown made = kDefaults;
    const OfSize<Grown> older(given, size);
    const Error error = kernels::ReadStruct("grown", older.get(), &made);
    ASSERT_TRUE(error.ok()) << error.message;
    EXPECT_EQ(std::memcmp(&made, &expected, sizeof(made)), 0) << size;
  }
  Grown made = kDefaults;
  const OfSize<Grown> shorter(given, 8);
  EXPECT_THAT(kernels::ReadStruct("grown", shorter.get(), &made).message,
              HasSubstr("grown->struct_size is 8; expected 32"));
  EXPECT_EQ(std::memcmp(&made, &kDefaults, sizeof(made)), 0) << "a refused struct was read";
  const OfSize<Grown> longer(given, 40);
  longer.bytes()[39] = 1;
  EXPECT_THAT(kernels::ReadStruct("grown", longer.get(), &made).message,
              HasSubstr("grown has byte 39 set, beyond the 32"));
  EXPECT_EQ(std::memcmp(&made, &kDefaults, sizeof(made)), 0) << "a refused struct was read";
}

TEST(GrownStructs, AreFilledAsFarAsTheCallersReach) {
  const Grown made = {sizeof(Grown), 5, 6, 7, 8, 9};
  for (const size_t size : {16, 24, 32, 40}) {
    const OfSize<Grown> out(kDefaults, size);
    std::fill(out.bytes().begin() + sizeof(size), out.bytes().end(), uint8_t{0xee});
    kernels::WriteStruct(made, out.get());
    EXPECT_EQ(out.get()->struct_size, size);
    const size_t known = std::min(size, sizeof(made));
    EXPECT_EQ(std::memcmp(out.bytes().data() + 8, reinterpret_cast<const uint8_t*>(&made) + 8, known - 8), 0);
    EXPECT_THAT(out.bytes().subspan(known), Each(0)) << size;
  }
}

}  // namespace
}  // namespace intact::tests

// Saved convolutions: a plan saved on one ISA computes the same bytes on any other, loaded from a file or
// from memory. Images that are not valid convolution files are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <intact/intact.hpp>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "support/random.h"
#include "tests/support/conv_layers.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/pack_image.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "tests/support/temp_path.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_buffer.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

using testing::Each;
using testing::HasSubstr;
using verify::Problem;
using Bytes = std::vector<uint8_t>;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

// A layer. Its plan is saved with its extents, or with open extents.
struct Layer {
  Layer(const char* line, bool is_open) : problem(Parsed(line)), conv(verify::MaterializeConv(problem)) {
    if (is_open) open = OpenDimensions(conv.geometry.dims).front();
  }

  verify::RunOptions OptionsOn(intact_isa isa) const {
    verify::RunOptions options = verify::RunOptionsOf(problem);
    options.isa = isa;
    return options;
  }

  Result<Conv> Create(intact_isa isa) const {
    return Conv::Create(OpenDescOf(conv, OptionsOn(isa), open), conv.b.data());
  }

  // Runs `plan` on the layer's input, or on another input if extents are open.
  Result<Bytes> Run(const Conv& plan, const reference::Conv& tensors) const {
    const auto run = [&](intact_conv_args args) {
      const Extents extents = InputOf(tensors.geometry);
      if (open != 0) std::copy(extents.begin(), extents.end(), args.input);
      return plan.Run(args);
    };
    return verify::RunGuarded(tensors, OptionsOn(static_cast<intact_isa>(plan.Info().isa)), run);
  }

  reference::Conv Larger() const {
    Extents extents = InputOf(conv.geometry);
    for (int64_t& extent : extents) extent += 3;
    return OnInput(problem, conv, extents, 2, 5);
  }

  // Expects that a loaded plan equals the layer's plan in its outputs and its properties.
  void ExpectIsPlan(const Conv& loaded, intact_isa isa) const {
    const Result<Conv> created = Create(isa);
    ASSERT_TRUE(created) << created.error().message;
    ExpectSameInfo(InfoWithSchedules(loaded), InfoWithSchedules(*created));
    ExpectSameCertificate(loaded, *created);
    const auto expect_right = [&](const reference::Conv& tensors) {
      const Result<Bytes> output = Run(loaded, tensors);
      ASSERT_TRUE(output) << output.error().message;
      EXPECT_TRUE(*output == ExpectedOutput(tensors, OptionsOn(isa)));
    };
    expect_right(conv);
    if (open != 0 && !EmulatedIsas::Has(isa)) expect_right(Larger());
  }

  // A run finds the schedules that it needs. The size of a file depends on all schedules that a file has.
  intact_conv_info InfoWithSchedules(const Conv& plan) const {
    EXPECT_TRUE(Run(plan, conv));
    size_t size = 0;
    EXPECT_EQ(intact_conv_save_memory(plan.handle(), nullptr, &size), INTACT_OK);
    intact_conv_info info = INTACT_CONV_INFO_INIT;
    EXPECT_EQ(intact_conv_query(plan.handle(), &info), INTACT_OK);
    return info;
  }

  static void ExpectSameInfo(const intact_conv_info& actual, const intact_conv_info& expected) {
    EXPECT_EQ(actual.spatial_dims, expected.spatial_dims);
    EXPECT_EQ(actual.a_type, expected.a_type);
    EXPECT_EQ(actual.b_type, expected.b_type);
    EXPECT_EQ(actual.c_type, expected.c_type);
    EXPECT_EQ(actual.residual_type, expected.residual_type);
    EXPECT_EQ(actual.isa, expected.isa);
    EXPECT_EQ(actual.mode, expected.mode);
    EXPECT_EQ(actual.input_channels, expected.input_channels);
    EXPECT_EQ(actual.output_channels, expected.output_channels);
    EXPECT_THAT(actual.input, testing::ElementsAreArray(expected.input));
    EXPECT_THAT(actual.output, testing::ElementsAreArray(expected.output));
    EXPECT_STREQ(actual.kernel, expected.kernel);
    EXPECT_EQ(actual.packed_bytes, expected.packed_bytes);
    EXPECT_EQ(actual.accumulator_min, expected.accumulator_min);
    EXPECT_EQ(actual.accumulator_max, expected.accumulator_max);
  }

  static void ExpectSameCertificate(const Conv& actual, const Conv& expected) {
    const Result<intact_certificate> one = actual.Certificate(INTACT_PAIRING_WITHIN_TAP);
    const Result<intact_certificate> other = expected.Certificate(INTACT_PAIRING_WITHIN_TAP);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(std::memcmp(&*one, &*other, sizeof(*one)), 0);
    constexpr int64_t kMost = 50;
    std::vector<intact_conv_failing_pair> pairs(kMost);
    std::vector<intact_conv_failing_pair> other_pairs(kMost);
    int64_t written = 0;
    int64_t other_written = 0;
    ASSERT_EQ(intact_conv_failing_pairs(actual.handle(), INTACT_PAIRING_WITHIN_TAP, 0, kMost, pairs.data(),
                                        &written),
              INTACT_OK);
    ASSERT_EQ(intact_conv_failing_pairs(expected.handle(), INTACT_PAIRING_WITHIN_TAP, 0, kMost,
                                        other_pairs.data(), &other_written),
              INTACT_OK);
    EXPECT_EQ(written, other_written);
    const auto bytes = static_cast<size_t>(written) * sizeof(pairs[0]);
    EXPECT_EQ(std::memcmp(pairs.data(), other_pairs.data(), bytes), 0);
  }

  Problem problem;
  reference::Conv conv;
  unsigned open = 0;
};

Bytes ImageOf(const Conv& plan) {
  size_t size = 0;
  EXPECT_EQ(intact_conv_save_memory(plan.handle(), nullptr, &size), INTACT_OK) << intact_last_error();
  const Result<Bytes> image = plan.SaveMemory();
  EXPECT_TRUE(image) << image.error().message;
  EXPECT_EQ(image ? image->size() : 0, size);
  return image ? *image : Bytes();
}

// Without schedules, so that it is the same on every machine.
Bytes ImageOf(const char* line, bool is_open = false) {
  const Result<Conv> plan = Layer(line, is_open).Create(INTACT_ISA_ANY);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? WithoutSchedules(ImageOf(*plan)) : Bytes();
}

// With the schedules of a plan for AVX2, if this machine has it.
Bytes ImageWithSchedules(const char* line) {
  const bool has_avx2 = intact_isa_available(INTACT_ISA_AVX2) != 0;
  const Result<Conv> plan = Layer(line, false).Create(has_avx2 ? INTACT_ISA_AVX2 : INTACT_ISA_ANY);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? ImageOf(*plan) : Bytes();
}

Bytes Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// Loads from a copy that begins `shift` bytes after an aligned address, and overwrites the copy at once:
// loading must not need it afterwards.
Result<Conv> LoadShifted(const Bytes& image, size_t shift, intact_isa isa) {
  Result<verify::GuardedBuffer> buffer = verify::GuardedBuffer::Allocate(image.size() + 64 - shift);
  if (!buffer) return buffer.error();
  const auto data = buffer->data().first(image.size());  // its end is aligned to 64, as is the image's size
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 64, shift % 64);
  std::copy(image.begin(), image.end(), data.begin());
  Result<Conv> loaded = Conv::LoadMemory(data.data(), data.size(), isa);
  std::fill(data.begin(), data.end(), uint8_t{0x5a});
  return loaded;
}

// ----- the same plan ---------------------------------------------------------------------------------------

class SavedConv : public testing::TestWithParam<std::tuple<ConvLayer, bool>> {};

TEST_P(SavedConv, ComputesTheSameBytesOnEveryIsa) {
  const Layer layer(std::get<0>(GetParam()).line, std::get<1>(GetParam()));
  const std::string path = TempPath();
  Bytes first_image;
  size_t shift = 1;
  for (const intact_isa saver : core::kIsaLadder) {
    if (intact_isa_available(saver) == 0) continue;
    const Result<Conv> created = layer.Create(saver);
    ASSERT_TRUE(created) << created.error().message;
    const Bytes image = ImageOf(*created);
    ASSERT_FALSE(image.empty());
    if (first_image.empty()) first_image = WithoutSchedules(image);
    EXPECT_TRUE(WithoutSchedules(image) == first_image) << "the image depends on the ISA";
    const Error saved = created->Save(path);
    ASSERT_TRUE(saved.ok()) << saved.message;
    EXPECT_TRUE(Read(path) == image) << "the file is another than the image in memory";
    for (const intact_isa loader : core::kIsaLadder) {
      if (intact_isa_available(loader) == 0) continue;
      SCOPED_TRACE(layer.problem.ToString() + " saved on " + intact_isa_name(saver) + ", loaded on " +
                   intact_isa_name(loader));
      const Result<Conv> of_file = Conv::Load(path, loader);
      ASSERT_TRUE(of_file) << of_file.error().message;
      layer.ExpectIsPlan(*of_file, loader);
      shift = shift * 5 % 64;
      const Result<Conv> of_memory = LoadShifted(image, shift, loader);
      ASSERT_TRUE(of_memory) << of_memory.error().message;
      layer.ExpectIsPlan(*of_memory, loader);
      const Bytes again = ImageOf(*of_memory);
      EXPECT_TRUE(WithoutSchedules(again) == first_image) << "saved again, it is another";
      EXPECT_TRUE(loader != saver || again == image) << "saved again, it has other schedules";
    }
  }
  std::filesystem::remove(path);
  if (first_image.empty()) INTACT_SKIP_ISA("avx2");
}

std::string NameOf(const testing::TestParamInfo<std::tuple<ConvLayer, bool>>& info) {
  const auto& [layer, is_open] = info.param;
  return std::string(layer.name) + (is_open ? "_Open" : "");
}

INSTANTIATE_TEST_SUITE_P(All, SavedConv, testing::Combine(testing::ValuesIn(kConvLayers), testing::Bool()),
                         NameOf);

constexpr const char* kSmall =
    "conv u8s8u8 in=4x5 c=2 o=3 kernel=2x1 za=3 zc=9 bias=f32 scale=channel fill=bait";
constexpr const char* kSmallGemm = "gemm u8s8u8 m=1 n=3 k=4 bias=f32";

// Offsets of the sections of an image with all kinds of sections (kernels/weights/pack_file.h): 3 output
// channels are a panel of four, with 4 depths padded to 64, and a line.
constexpr size_t kZeroPointsAt = kWeightsAt + 64 * 4 + 64;
constexpr size_t kBiasAt = kZeroPointsAt + 64;
constexpr size_t kScalesAt = kBiasAt + 64;
constexpr size_t kEnd = kScalesAt + 64;

TEST(SavedConvMemory, EveryAlignmentLoads) {
  const Layer layer(kSmall, false);
  const Bytes image = ImageOf(kSmall);
  for (size_t shift = 0; shift < 64; ++shift) {
    const Result<Conv> loaded = LoadShifted(image, shift, INTACT_ISA_ANY);
    ASSERT_TRUE(loaded) << loaded.error().message;
    const Result<Bytes> output = layer.Run(*loaded, layer.conv);
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_TRUE(*output == ExpectedOutput(layer.conv, layer.OptionsOn(INTACT_ISA_ANY))) << shift;
  }
}

// The file also has taps that no output reads. It holds the number of weights of an ordinary convolution.
TEST(SavedConvMemory, KeepsTapsThatNoOutputReads) {
  const char* const line =
      "conv u8s8s32 in=1x2 c=2 o=3 kernel=5x5 stride=3x3 pad=2x1:2x3 za=7 fill=bait transposed=yes";
  const Layer layer(line, false);
  const Bytes image = ImageOf(line);
  const Result<Conv> loaded = Conv::LoadMemory(image.data(), image.size());
  ASSERT_TRUE(loaded) << loaded.error().message;
  layer.ExpectIsPlan(*loaded, static_cast<intact_isa>(loaded->Info().isa));
  EXPECT_TRUE(WithoutSchedules(ImageOf(*loaded)) == image);

  ConvDesc desc = verify::DescOf(layer.conv, layer.OptionsOn(INTACT_ISA_ANY));
  desc.transposed = 0;
  desc.input[0] = desc.input[1] = 9;
  const Result<Conv> ordinary = Conv::Create(desc, layer.conv.b.data());
  ASSERT_TRUE(ordinary) << ordinary.error().message;
  const Bytes expected = WithoutSchedules(ImageOf(*ordinary));
  ASSERT_EQ(image.size(), expected.size());
  EXPECT_TRUE(std::equal(image.begin() + kWeightsAt, image.end(), expected.begin() + kWeightsAt));
}

// Open and fixed dimensions. The fixed one has a stride without effect.
TEST(SavedConvMemory, KeepsWhichExtentsAreOpen) {
  const char* const line = "conv u8s8s32 in=3x9 c=4 o=5 kernel=3x3 stride=2x2 za=7";
  for (const unsigned open : {1u, 2u}) {
    Layer layer(line, false);
    layer.open = open;
    const Result<Conv> created = layer.Create(INTACT_ISA_ANY);
    ASSERT_TRUE(created) << created.error().message;
    const Bytes image = ImageOf(*created);
    const Result<Conv> loaded = Conv::LoadMemory(image.data(), image.size());
    ASSERT_TRUE(loaded) << loaded.error().message;
    Layer::ExpectSameInfo(loaded->Info(), created->Info());
    for (const Extents& extents : {Extents{3, 9}, open == 1 ? Extents{11, 9} : Extents{3, 15}}) {
      const reference::Conv tensors = OnInput(layer.problem, layer.conv, extents, 1, 3);
      const Result<Bytes> output = layer.Run(*loaded, tensors);
      ASSERT_TRUE(output) << output.error().message;
      EXPECT_TRUE(*output == ExpectedOutput(tensors, layer.OptionsOn(INTACT_ISA_ANY)));
    }
  }
}

// ----- saving to memory ------------------------------------------------------------------------------------

TEST(SavedConvMemory, ReportsItsSizeAndWritesOnlyWhereThereIsRoom) {
  const Result<Conv> plan = Layer(kSmall, false).Create(INTACT_ISA_ANY);
  ASSERT_TRUE(plan) << plan.error().message;
  size_t size = 123;
  ASSERT_EQ(intact_conv_save_memory(plan->handle(), nullptr, &size), INTACT_OK) << intact_last_error();
  const size_t whole = size;
  EXPECT_EQ(whole, ImageOf(*plan).size());
  for (const size_t room : {size_t{0}, size_t{1}, whole / 2, whole - 1}) {
    Bytes data(whole, 0xa5);
    size = room;
    EXPECT_EQ(intact_conv_save_memory(plan->handle(), data.data(), &size), INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr("size is " + std::to_string(room) + "; expected at least " +
                                               std::to_string(whole) + " bytes"));
    EXPECT_EQ(size, whole);
    EXPECT_THAT(data, Each(0xa5));
  }
  Bytes data(whole + 10, 0xa5);
  size = data.size();
  ASSERT_EQ(intact_conv_save_memory(plan->handle(), data.data(), &size), INTACT_OK);
  EXPECT_EQ(size, whole);
  EXPECT_THAT(std::span(data).subspan(whole), Each(0xa5));
  const auto buffer = verify::GuardedBuffer::Allocate(whole);
  ASSERT_TRUE(buffer);
  ASSERT_EQ(intact_conv_save_memory(plan->handle(), buffer->data().data(), &size), INTACT_OK);
  EXPECT_TRUE(buffer->FrontIntact());
  EXPECT_TRUE(std::equal(buffer->data().begin(), buffer->data().end(), data.begin()));
}

TEST(SavedConvMemory, NullArguments) {
  const Result<Conv> plan = Layer(kSmall, false).Create(INTACT_ISA_ANY);
  ASSERT_TRUE(plan) << plan.error().message;
  const Bytes image = ImageOf(*plan);
  intact_conv* loaded = nullptr;
  size_t size = 0;
  const auto expect_null = [](intact_status status, const char* words) {
    EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(intact_last_error(), HasSubstr(words));
  };
  expect_null(intact_conv_save(nullptr, "/tmp/nothing"), "conv is NULL");
  expect_null(intact_conv_save(plan->handle(), nullptr), "path is NULL");
  expect_null(intact_conv_save_memory(nullptr, nullptr, &size), "conv is NULL");
  expect_null(intact_conv_save_memory(plan->handle(), nullptr, nullptr), "size is NULL");
  expect_null(intact_conv_load(nullptr, INTACT_ISA_ANY, &loaded), "path is NULL");
  expect_null(intact_conv_load("/tmp/nothing", INTACT_ISA_ANY, nullptr), "conv is NULL");
  expect_null(intact_conv_load_memory(nullptr, 100, INTACT_ISA_ANY, &loaded), "data is NULL");
  expect_null(intact_conv_load_memory(image.data(), image.size(), INTACT_ISA_ANY, nullptr), "conv is NULL");
  expect_null(intact_conv_load_memory(image.data(), image.size(), 9, &loaded), "max_isa is 9");
  EXPECT_EQ(loaded, nullptr);
}

// ----- refusals --------------------------------------------------------------------------------------------

// The image is in memory that ends where the image ends.
void ExpectRefused(const Bytes& image, const std::string& words) {
  const auto buffer = verify::GuardedBuffer::Allocate(image.size());
  ASSERT_TRUE(buffer);
  std::copy(image.begin(), image.end(), buffer->data().begin());
  const Result<Conv> loaded = Conv::LoadMemory(buffer->data().data(), image.size());
  ASSERT_FALSE(loaded) << words;
  EXPECT_EQ(loaded.error().status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(loaded.error().message, HasSubstr(words));
}

TEST(ConvRefusals, OfOtherFiles) {
  const std::string path = TempPath();
  const auto expect_refused = [&](const Bytes& bytes, const char* words) {
    Write(path, bytes);
    const Result<Conv> loaded = Conv::Load(path);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(loaded.error().message, HasSubstr(words));
    EXPECT_THAT(loaded.error().message, HasSubstr(path));
  };
  EXPECT_THAT(Conv::Load(path).error().message, HasSubstr("No such file"));
  EXPECT_THAT(Conv::Load(testing::TempDir()).error().message, HasSubstr("not a file"));
  expect_refused({}, "empty");
  expect_refused(Bytes(5000, 'x'), "not a pack file");

  const reference::Gemm gemm = verify::MaterializeGemm(Parsed(kSmallGemm));
  const Result<Plan> plan = CreatePlan(Parsed(kSmallGemm), gemm);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(intact_gemm_save(plan->get(), path.c_str()), INTACT_OK) << intact_last_error();
  expect_refused(Read(path), "it holds a GEMM; expected a convolution (use intact_gemm_load)");

  Write(path, ImageOf(kSmall));
  const Result<Plan> not_a_gemm = LoadPlan(path, INTACT_ISA_ANY);
  ASSERT_FALSE(not_a_gemm);
  EXPECT_EQ(not_a_gemm.error().status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(not_a_gemm.error().message,
              HasSubstr("it holds a convolution; expected a GEMM (use intact_conv_load)"));
  EXPECT_TRUE(Conv::Load(path));
  std::filesystem::remove(path);
}

TEST(ConvRefusals, OfTruncations) {
  const Bytes image = ImageOf(kSmall);
  ASSERT_EQ(image.size(), kEnd);
  for (size_t size = 0; size < image.size(); ++size) {
    ExpectRefused(Bytes(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size)), "truncated");
    if (HasFailure()) return;
  }
  for (const size_t boundary : {kHeaderBytes, kWeightsAt, kZeroPointsAt, kBiasAt, kScalesAt}) {
    const std::string path = TempPath();
    Write(path, Bytes(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(boundary)));
    EXPECT_THAT(Conv::Load(path).error().message, HasSubstr("truncated: " + std::to_string(boundary) +
                                                            " bytes; expected " + std::to_string(kEnd)));
    std::filesystem::remove(path);
  }
  for (const size_t more : {1, 8, 64}) {
    Bytes longer = image;
    longer.resize(image.size() + more);
    ExpectRefused(longer, "too long");
  }
}

TEST(ConvRefusals, OfEveryFlippedByte) {
  const Bytes image = ImageOf(kSmall);
  for (size_t at = 0; at < image.size(); ++at) {
    for (const uint8_t flip : Bytes{0x01, 0x80, 0xff}) {
      Bytes flipped = image;
      flipped[at] = static_cast<uint8_t>(flipped[at] ^ flip);
      intact_conv* loaded = nullptr;
      ASSERT_EQ(intact_conv_load_memory(flipped.data(), flipped.size(), INTACT_ISA_ANY, &loaded),
                INTACT_INVALID_ARGUMENT)
          << "byte " << at;
      ASSERT_EQ(loaded, nullptr);
      EXPECT_THAT(intact_last_error(), HasSubstr(at < kChecksumAt ? "" : "checksum")) << at;
    }
  }
}

// ----- forgeries: headers that their checksum covers -------------------------------------------------------

template <class T>
void Set(Bytes* image, size_t at, T value) {
  std::memcpy(image->data() + at, &value, sizeof(value));
}

TEST(ConvForgeries, TheLayoutIsAsTheyTakeItToBe) {
  Bytes image = ImageOf(kSmall);
  const Bytes before = image;
  Seal(image);
  EXPECT_TRUE(image == before) << "another checksum than the documented one";
  EXPECT_EQ(Field<uint32_t>(image, kHeaderBytesAt), kHeaderBytes);
  EXPECT_EQ(Field<uint64_t>(WithoutSchedules(image), kFileBytesAt), kEnd);
  EXPECT_EQ(Field<int64_t>(image, kNAt), 3);
  EXPECT_EQ(Field<int64_t>(image, kKAt), 4);
  EXPECT_EQ(Field<int32_t>(image, kATypeAt), INTACT_U8);
  EXPECT_EQ(Field<int32_t>(image, kCTypeAt), INTACT_U8);
  EXPECT_EQ(Field<int32_t>(image, kAZeroPointAt), 3);
  EXPECT_EQ(Field<int32_t>(image, kCZeroPointAt), 9);
  EXPECT_EQ(Field<uint32_t>(image, kVectorsAt), 0xdu);
  EXPECT_EQ(Field<int32_t>(image, kSpatialDimsAt), 2);
  EXPECT_EQ(Field<int64_t>(image, kInputChannelsAt), 2);
  EXPECT_EQ(Field<int64_t>(image, kOutputChannelsAt), 3);
  EXPECT_EQ(Field<int64_t>(image, kGroupsAt), 1);
  EXPECT_EQ(Field<int64_t>(image, kInputAt + 8), 5);
  EXPECT_EQ(Field<int64_t>(image, kKernelAt), 2);
}

template <class T>
void ExpectForgeriesRefused(const std::vector<std::tuple<size_t, T, const char*>>& forgeries) {
  const Bytes image = ImageOf(kSmall);
  for (const auto& [at, value, words] : forgeries) {
    SCOPED_TRACE(std::to_string(at) + " := " + std::to_string(value));
    Bytes forged = image;
    Set(&forged, at, value);
    Seal(forged);
    ExpectRefused(forged, words);
  }
}

TEST(ConvForgeries, OfGeometry) {
  ExpectForgeriesRefused<int64_t>({
      {kNAt, 0, "n or k"},
      {kNAt, -3, "n or k"},
      {kNAt, int64_t{1} << 31, "n or k"},
      {kKAt, 0, "n or k"},
      {kKAt, int64_t{1} << 62, "n or k"},
      {kNAt, 4, "the geometry does not match n and k"},
      {kNAt, 17, "size"},
      {kKAt, 5, "the geometry does not match n and k"},
      {kKAt, 65, "size"},
      {kInputChannelsAt, 0, "input_channels is 0"},
      {kInputChannelsAt, -2, "input_channels is -2"},
      {kInputChannelsAt, 3, "the geometry does not match n and k"},
      {kInputChannelsAt, int64_t{1} << 31, "input_channels is"},
      {kOutputChannelsAt, 0, "output_channels is 0"},
      {kOutputChannelsAt, 2, "the geometry does not match n and k"},
      {kOutputChannelsAt, 16, "the geometry does not match n and k"},
      {kGroupsAt, 2, "groups is 2; expected a divisor"},
      {kGroupsAt, -1, "groups is -1"},
      {kInputAt, 0, "input[0] is 0"},
      {kInputAt, -2, "input[0] is -2"},
      {kInputAt, 1, "kernel[0] is 2 and spans 2"},
      {kInputAt, int64_t{1} << 31, "input[0] is 2147483648"},
      {kKernelAt, 1, "the geometry does not match n and k"},
      {kKernelAt, 3, "the geometry does not match n and k"},
      {kKernelAt + 8, 2, "the geometry does not match n and k"},
      {kKernelAt, -1, "kernel[0] is -1"},
      {kStrideAt, -1, "stride[0] is -1"},
      {kDilationAt + 8, -1, "dilation[1] is -1"},
      {kDilationAt, 9, "kernel[0] is 2 and spans 10"},
      {kPadBeginAt, -1, "pad_begin[0] is -1"},
      {kPadEndAt + 8, int64_t{1} << 40, "pad_end[1] is"},
      {kOutputPadAt, 1, "output_pad[0] is 1; expected 0"},
  });
  ExpectForgeriesRefused<int32_t>({
      {kSpatialDimsAt, 0, "a GEMM has a convolution's geometry"},
      {kSpatialDimsAt, 4, "spatial_dims is 4"},
      {kSpatialDimsAt, -1, "spatial_dims is -1"},
      {kTransposedAt, 2, "transposed is 2"},
      {kTransposedAt, -1, "transposed is -1"},
      {kChoicesAt, 1, "size"},
      {kChoicesAt, -1, "size"},
  });
}

TEST(ConvForgeries, OfArithmetic) {
  ExpectForgeriesRefused<int32_t>({
      {kVersionAt, 9, "format version 9"},
      {kVersionAt, 11, "format version 11"},
      {kHeaderBytesAt, 360, "format version"},
      {kATypeAt, 0, "a_type is 0"},
      {kATypeAt, INTACT_S32, "a_type is 3"},
      {kBTypeAt, INTACT_F32, "b_type is 4"},
      {kCTypeAt, 9, "c_type is 9"},
      {kCTypeAt, INTACT_S32, "scales are given for s32 output"},
      {kModeAt, 2, "mode is 2"},
      {kAZeroPointAt, 256, "a_zero_point is 256"},
      {kAZeroPointAt, -1, "a_zero_point is -1"},
      {kCZeroPointAt, 256, "c_zero_point is 256"},
      {kActivationAt, 3, "activation is 3"},
      {kRangeCheckAt, 2, "range_check is 2"},
      {kOverflowAt, 2, "overflow is 2"},
      {kAMinAt, 7, "a_min is 7"},
      {kAMinAt + 4, 256, "a_max is 256"},
      {kResidualTypeAt, INTACT_S32, "residual_type is 3"},
      {kResidualTypeAt, INTACT_U8, "residual_scale is"},
      {kResidualScaleAt, 0x3f800000, "residual_scale is 1"},
      {kVectorsAt, 0x9, "size"},
      {kVectorsAt, 0xf, "size"},
      {kVectorsAt, -1, "flag"},
      {kScalesAt, static_cast<int32_t>(0x80000001), "scales[0] is -1e-45"},
      {kScalesAt + 8, 0x7fc00000, "scales[2] is nan"},
      {kBiasAt + 4, 0x7f800000, "bias_f32[1] is inf"},
      {kZeroPointsAt + 8, 128, "b_zero_points[2] is 128"},
      {kZeroPointsAt, -129, "b_zero_points[0] is -129"},
  });
}

// Schedules of rows, of a planar band with zero points, and of phases.
TEST(ConvForgeries, OfSchedules) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  int refused = 0;
  for (const char* line :
       {"conv u8s8s32 in=12x12 c=16 o=24 kernel=3x3 pad=1x1 fill=laplace",
        "conv u8u8s32 in=12x12 c=16 o=16 groups=2 kernel=3x3 zb=130 fill=laplace",
        "conv u8s8s32 in=8x8 c=32 o=24 kernel=2x2 stride=2x2 fill=laplace transposed=yes"}) {
    SCOPED_TRACE(line);
    const Bytes image = ImageWithSchedules(line);
    const Layer layer(line, false);
    int orders = 0;
    for (const size_t at : SchedulesIn(image)) {
      const auto bytes = Field<int64_t>(image, at + kOrderBytesAt);
      orders += bytes == 0 ? 0 : 1;
      for (int64_t i = 0; i < std::min<int64_t>(bytes, 300); i += 3) {
        Bytes forged = image;
        ++forged[at + kOrderAt + static_cast<size_t>(i)];
        Seal(forged);
        const Result<Conv> loaded = Conv::LoadMemory(forged.data(), forged.size(), INTACT_ISA_AVX2);
        if (loaded) {  // another order, as good: two counts or items changed nothing that matters
          layer.ExpectIsPlan(*loaded, INTACT_ISA_AVX2);
        } else {
          EXPECT_THAT(loaded.error().message, HasSubstr("corrupted: the schedule of columns"));
          ++refused;
        }
        EXPECT_TRUE(Conv::LoadMemory(forged.data(), forged.size(), INTACT_ISA_PORTABLE));
      }
    }
    EXPECT_GT(orders, 0);
  }
  EXPECT_GT(refused, 100);
}

// A file without schedules, or with those of other caches, loads too.
TEST(ConvForgeries, OfKeysOfSchedules) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  constexpr const char* kLine = "conv u8s8s32 in=12x12 c=16 o=24 kernel=3x3 pad=1x1 fill=laplace";
  const Layer layer(kLine, false);
  const Bytes image = ImageWithSchedules(kLine);
  const std::vector<size_t> schedules = SchedulesIn(image);
  ASSERT_FALSE(schedules.empty());
  Bytes other = image;
  for (const size_t at : schedules) Set(&other, at + kKeyAt, int32_t{77});
  Seal(other);
  for (const Bytes& forged : {WithoutSchedules(image), other}) {
    const Result<Conv> loaded = Conv::LoadMemory(forged.data(), forged.size(), INTACT_ISA_AVX2);
    ASSERT_TRUE(loaded) << loaded.error().message;
    layer.ExpectIsPlan(*loaded, INTACT_ISA_AVX2);
    EXPECT_TRUE(ImageOf(*loaded) == image) << "the schedules are found again";
  }
  for (const auto& [field, value] : {std::pair<size_t, int64_t>{0, -1},
                                     {kUnitAt, -1},
                                     {kEstimateAt, -1},
                                     {kEstimateAt + 8, int64_t{1} << 51},
                                     {kEstimateAt + 16, int64_t{1} << 50},
                                     {kOrderBytesAt, -1},
                                     {kOrderBytesAt, std::ssize(image)},
                                     {kLayoutAt + 40, -1}}) {
    Bytes forged = image;
    Set(&forged, schedules.front() + field, value);
    Seal(forged);
    ExpectRefused(forged, "corrupted: the description of a schedule makes no sense");
  }
}

TEST(ConvForgeries, OfThePadding) {
  const Bytes image = ImageOf(kSmall);
  // A panel's weights are ordered by quad of depths, then by column: 16 quads of 16 columns.
  for (const size_t at : {kWeightsAt + 3 * 4, kWeightsAt + 15 * 4 + 3, kWeightsAt + 64, kZeroPointsAt - 1}) {
    Bytes forged = image;
    ASSERT_EQ(forged[at], 0) << at;
    forged[at] = 1;
    Seal(forged);
    ExpectRefused(forged, "the padding of the weights is not zero");
  }
}

// Headers with any values and a valid checksum: the image is refused, or its plan runs within its buffers
// and, in INTACT_EXACT mode, computes the bytes of the portable plan.
TEST(ConvForgeries, OfAnything) {
  constexpr int kForgeriesEach = 1500;
  constexpr uint8_t kTelling[] = {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 63, 64, 127, 128, 254, 255};
  int accepted = 0;
  int refused = 0;
  for (const char* line :
       {kSmall, "conv s8s8s32 in=6 c=8 o=8 groups=4 kernel=3 pad=1 za=-3 bias=s32 arange=127",
        "conv u8u8s32 in=3x4 c=4 o=8 groups=4 kernel=2x2 zb=9 pad=1x0",
        "conv u8s8s32 in=3x3x3 c=4 o=4 groups=2 kernel=2x1x2 stride=2x1x1 mode=saturating fill=bait",
        "conv u8s8u8 in=3x4 c=2 o=3 kernel=2x2 stride=3x2 za=7 res=s8 transposed=yes"}) {
    const Bytes image = ImageWithSchedules(line);
    support::Random random(11, 0, image.size());
    for (int i = 0; i < kForgeriesEach; ++i) {
      Bytes forged = image;
      for (int64_t changes = random.Integer(1, 3); changes > 0; --changes) {
        const bool is_header = random.Integer(0, 7) != 0;
        const int64_t end = is_header ? int64_t{kHeaderBytes} : std::ssize(image);
        const auto at = static_cast<size_t>(random.Integer(int64_t{kCoveredFrom}, end - 1));
        // The low bytes of fields matter most.
        forged[is_header ? at / 4 * 4 : at] = kTelling[random.Integer(0, std::ssize(kTelling) - 1)];
      }
      Seal(forged);
      const intact_isa isa = core::kIsaLadder[static_cast<size_t>(i) % core::kIsaLadder.size()];
      const Result<Conv> loaded = LoadShifted(forged, 1, isa);
      if (!loaded) {
        ++refused;
        ASSERT_NE(loaded.error().message, "");
        continue;
      }
      ++accepted;
      const intact_conv_info& info = loaded->Info();
      intact_conv_args args = INTACT_CONV_ARGS_INIT;
      args.batch = 1;
      args.threads = 1;
      int64_t pixels = 1;
      for (int d = 0; d < info.spatial_dims; ++d) {
        args.input[d] = info.input[d] == INTACT_ANY_EXTENT ? 300 : info.input[d];
        pixels *= args.input[d];
      }
      intact_run_info run = INTACT_RUN_INFO_INIT;
      if (intact_conv_prepare(loaded->handle(), &args, &run) != INTACT_OK) continue;
      const int64_t outputs = run.output[0] * run.output[1] * run.output[2];
      constexpr int64_t kMost = int64_t{1} << 24;
      if (pixels * info.input_channels > kMost || outputs * info.output_channels > kMost) continue;
      const auto allocate = [](int64_t elements, int32_t type) {
        return verify::GuardedBuffer::Allocate(
            static_cast<size_t>(elements * core::BytesOf(static_cast<intact_type>(type))));
      };
      const auto a = allocate(pixels * info.input_channels, info.a_type);
      const auto c = allocate(outputs * info.output_channels, info.c_type);
      const auto residual = allocate(outputs * info.output_channels,
                                     info.residual_type == INTACT_TYPE_NONE ? INTACT_U8 : info.residual_type);
      ASSERT_TRUE(a && c && residual);
      FillActivations(forged, a->data());
      args.a = a->data().data();
      args.c = c->data().data();
      if (info.residual_type != INTACT_TYPE_NONE) args.residual = residual->data().data();
      const Error ran = loaded->Run(args);
      ASSERT_TRUE(ran.ok()) << ran.message;
      EXPECT_TRUE(c->FrontIntact());
      if (info.mode == INTACT_EXACT) {
        const Result<Conv> portable = LoadShifted(forged, 1, INTACT_ISA_PORTABLE);
        ASSERT_TRUE(portable) << portable.error().message;
        Bytes expected(c->data().size());
        args.c = expected.data();
        const Error ran_portably = portable->Run(args);
        ASSERT_TRUE(ran_portably.ok()) << ran_portably.message;
        EXPECT_TRUE(std::ranges::equal(c->data(), expected));
      }
      ASSERT_TRUE(loaded->Certificate(INTACT_PAIRING_WITHIN_TAP));
    }
  }
  std::cout << accepted << " forgeries accepted and run, " << refused << " refused\n";
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace intact::tests

// No entry point depends on the caller's floating-point environment (MXCSR), and none changes it. Each entry
// point runs in every combination of rounding, flushing and masks. Bytes of outputs, files and structs, and
// what each part of a run writes, must equal what they are in the default environment.
#include <gtest/gtest.h>
#include <intact/grouped.h>
#include <intact/intact.h>
#include <xmmintrin.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/long.h"
#include "tests/support/temp_path.h"

namespace intact::tests {
namespace {

constexpr unsigned kDefault = 0x1f80;

// Calls functions in an environment, and records what they produce.
class Recorder {
 public:
  /// Files take milliseconds each, so only some recorders write them.
  Recorder(unsigned environment, bool has_files) : environment_(environment), has_files_(has_files) {}
  bool has_files() const { return has_files_; }

  // Calls `call` in the environment. `what` names the call in failures.
  template <class Function>
  intact_status Call(const std::string& what, const Function& call) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(environment_);
    const intact_status status = call();
    const unsigned left = _mm_getcsr();
    _mm_setcsr(saved);
    if (left != environment_) changed_ = what;
    Add(what, &status, sizeof(status));
    return status;
  }
  void Add(const std::string& what, const void* data, size_t size) {
    const auto* const bytes = static_cast<const uint8_t*>(data);
    records_.emplace_back(what, std::vector<uint8_t>(bytes, bytes + size));
  }
  // The call that left the environment changed; "" if none did.
  const std::string& changed() const { return changed_; }
  // The first record that differs from that of `other`; "" if none does.
  std::string DifferenceFrom(const Recorder& other) const {
    if (records_.size() != other.records_.size()) return "the number of records";
    for (size_t i = 0; i < records_.size(); ++i) {
      if (records_[i] != other.records_[i]) return records_[i].first;
    }
    return "";
  }

 private:
  unsigned environment_;
  bool has_files_;
  std::string changed_;
  std::vector<std::pair<std::string, std::vector<uint8_t>>> records_;
};

// Small integers that repeat with a period prime to all sizes.
template <class Value>
std::vector<Value> Values(size_t count, int period, int least) {
  std::vector<Value> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<Value>(static_cast<int>(i) * 7 % period + least);
  }
  return values;
}

// Scales that are flushed, rounded, or exact.
std::vector<float> Scales(size_t count) {
  constexpr std::array<float, 4> kScales = {1e-40f, 0.0371f, 3e-39f, 0.5f};
  std::vector<float> scales(count);
  for (size_t i = 0; i < count; ++i) scales[i] = kScales[i % kScales.size()];
  return scales;
}

// The functions of a kind of plan.
struct GemmApi {
  using Plan = intact_gemm;
  using Args = intact_gemm_args;
  using Info = intact_gemm_info;
  static constexpr auto kRun = intact_gemm_run;
  static constexpr auto kRunPart = intact_gemm_run_part;
  static constexpr auto kPrepare = intact_gemm_prepare;
  static constexpr auto kQuery = intact_gemm_query;
  static constexpr auto kSave = intact_gemm_save;
  static constexpr auto kSaveMemory = intact_gemm_save_memory;
  static constexpr auto kLoad = intact_gemm_load;
  static constexpr auto kLoadMemory = intact_gemm_load_memory;
  static constexpr auto kDestroy = intact_gemm_destroy;
  static constexpr Info kInfo = INTACT_GEMM_INFO_INIT;
};
struct ConvApi {
  using Plan = intact_conv;
  using Args = intact_conv_args;
  using Info = intact_conv_info;
  static constexpr auto kRun = intact_conv_run;
  static constexpr auto kRunPart = intact_conv_run_part;
  static constexpr auto kPrepare = intact_conv_prepare;
  static constexpr auto kQuery = intact_conv_query;
  static constexpr auto kSave = intact_conv_save;
  static constexpr auto kSaveMemory = intact_conv_save_memory;
  static constexpr auto kLoad = intact_conv_load;
  static constexpr auto kLoadMemory = intact_conv_load_memory;
  static constexpr auto kDestroy = intact_conv_destroy;
  static constexpr Info kInfo = INTACT_CONV_INFO_INIT;
};
struct GroupedApi {
  using Plan = intact_grouped;
  using Args = intact_grouped_args;
  using Info = intact_grouped_info;
  static constexpr auto kRun = intact_grouped_run;
  static constexpr auto kRunPart = intact_grouped_run_part;
  static constexpr auto kPrepare = intact_grouped_prepare;
  static constexpr auto kQuery = intact_grouped_query;
  static constexpr auto kSave = intact_grouped_save;
  static constexpr auto kSaveMemory = intact_grouped_save_memory;
  static constexpr auto kLoad = intact_grouped_load;
  static constexpr auto kLoadMemory = intact_grouped_load_memory;
  static constexpr auto kDestroy = intact_grouped_destroy;
  static constexpr Info kInfo = INTACT_GROUPED_INFO_INIT;
};

template <class Api>
using PlanOf = std::unique_ptr<typename Api::Plan, decltype(Api::kDestroy)>;

// Creates a plan: create(&handle).
template <class Api, class Create>
PlanOf<Api> Make(Recorder* recorder, const std::string& what, const Create& create) {
  typename Api::Plan* handle = nullptr;
  recorder->Call(what, [&] { return create(&handle); });
  return PlanOf<Api>(handle, Api::kDestroy);
}

// Runs `plan` with `args` and a C of its own, `c_bytes` bytes.
template <class Api>
void Run(Recorder* recorder, const std::string& name, const typename Api::Plan* plan, typename Api::Args args,
         size_t c_bytes) {
  intact_run_info info = INTACT_RUN_INFO_INIT;
  recorder->Call(name + " prepare", [&] { return Api::kPrepare(plan, &args, &info); });
  recorder->Add(name + " prepare", &info, sizeof(info));
  for (const int32_t threads : {1, 3}) {
    std::vector<uint8_t> c(c_bytes, 0xa5);
    args.c = c.data();
    args.threads = threads;
    recorder->Call(name + " run", [&] { return Api::kRun(plan, &args); });
    recorder->Add(name + " run", c.data(), c.size());
  }
  constexpr int32_t kParts = 23;
  for (int32_t part = 0; part < kParts; ++part) {
    std::vector<uint8_t> c(c_bytes, 0xa5);
    args.c = c.data();
    recorder->Call(name + " run_part", [&] { return Api::kRunPart(plan, &args, part, kParts); });
    recorder->Add(name + " run_part", c.data(), c.size());
  }
}

// Fields without the struct's padding and pointers.
void AddInfo(Recorder* recorder, const std::string& what, const intact_gemm_info& info) {
  recorder->Add(what, &info.packed_bytes, sizeof(info.packed_bytes));
  recorder->Add(what, &info.accumulator_min, sizeof(info.accumulator_min));
  recorder->Add(what, info.kernel, std::string(info.kernel).size());
}
void AddInfo(Recorder* recorder, const std::string& what, const intact_conv_info& info) {
  recorder->Add(what, &info.packed_bytes, sizeof(info.packed_bytes));
  recorder->Add(what, &info.accumulator_min, sizeof(info.accumulator_min));
  recorder->Add(what, info.kernel, std::string(info.kernel).size());
}
void AddInfo(Recorder* recorder, const std::string& what, const intact_grouped_info& info) {
  recorder->Add(what, &info.packed_bytes, sizeof(info.packed_bytes));
  recorder->Add(what, info.kernel, std::string(info.kernel).size());
}

struct alignas(64) Line {
  std::array<uint8_t, 64> bytes;
};

// Queries, saves, loads and runs `plan`. The loaded plans must compute the same bytes.
template <class Api>
void UsePlan(Recorder* recorder, const std::string& name, const typename Api::Plan* plan, int32_t isa,
             const typename Api::Args& args, size_t c_bytes) {
  typename Api::Info info = Api::kInfo;
  recorder->Call(name + " query", [&] { return Api::kQuery(plan, &info); });
  AddInfo(recorder, name + " query", info);
  Run<Api>(recorder, name, plan, args, c_bytes);
  size_t size = 0;
  recorder->Call(name + " size", [&] { return Api::kSaveMemory(plan, nullptr, &size); });
  std::vector<Line> image(size / sizeof(Line) + 1);
  recorder->Call(name + " save_memory", [&] { return Api::kSaveMemory(plan, image.data(), &size); });
  recorder->Add(name + " save_memory", image.data(), size);
  const auto from_memory = Make<Api>(recorder, name + " load_memory", [&](auto** handle) {
    return Api::kLoadMemory(image.data(), size, isa, handle);
  });
  if (from_memory != nullptr) Run<Api>(recorder, name + " loaded", from_memory.get(), args, c_bytes);
  if (!recorder->has_files()) return;
  const std::string path = TempPath();
  recorder->Call(name + " save", [&] { return Api::kSave(plan, path.c_str()); });
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  recorder->Add(name + " save", bytes.data(), bytes.size());
  const auto loaded = Make<Api>(recorder, name + " load",
                                [&](auto** handle) { return Api::kLoad(path.c_str(), isa, handle); });
  if (loaded != nullptr) Run<Api>(recorder, name + " from a file", loaded.get(), args, c_bytes);
  (void)std::remove(path.c_str());
}

void CertifyGemm(Recorder* recorder, const std::string& name, const intact_gemm* plan) {
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  recorder->Call(name, [&] { return intact_gemm_certificate(plan, &certificate); });
  recorder->Add(name, &certificate, sizeof(certificate));
  std::array<intact_panel_certificate, 1> panels = {};
  recorder->Call(name + " panels", [&] { return intact_gemm_panel_certificates(plan, 0, 1, panels.data()); });
  recorder->Add(name + " panels", panels.data(), sizeof(panels));
  std::array<intact_failing_pair, 4> pairs = {};
  int64_t written = 0;
  recorder->Call(name + " pairs",
                 [&] { return intact_gemm_failing_pairs(plan, 0, 4, pairs.data(), &written); });
  recorder->Add(name + " pairs", pairs.data(), sizeof(pairs));
}

void UseGemms(Recorder* recorder, int32_t isa) {
  constexpr int64_t kM = 4, kN = 19, kK = 40, kItems = 8;
  const auto b = Values<int8_t>(kN * kK, 255, -127);
  const auto a = Values<uint8_t>(kItems * kM * kK, 251, 0);
  std::vector<float> x(kItems * kM * kK);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(a[i]) * (i % 3 == 0 ? 1e-41f : 0.37f);
  const auto scales = Scales(kN), bias = Scales(kN), row_scales = Scales(kItems * kM);
  std::vector<const void*> items;
  for (int64_t i = 0; i < kItems; ++i) items.push_back(&a[static_cast<size_t>(i * kM * kK)]);
  struct Kind {
    const char* name;
    int32_t c_type, quantization;
  };
  for (const Kind& kind :
       {Kind{"gemm s32", INTACT_S32, INTACT_QUANTIZATION_STATIC},
        Kind{"gemm u8", INTACT_U8, INTACT_QUANTIZATION_STATIC},
        Kind{"gemm f32 rows", INTACT_F32, INTACT_QUANTIZATION_ROWS},
        Kind{"gemm f16 dynamic rows", INTACT_F16, INTACT_QUANTIZATION_DYNAMIC_ROWS},
        Kind{"gemm bf16 dynamic tensor", INTACT_BF16, INTACT_QUANTIZATION_DYNAMIC_TENSOR}}) {
    const std::string name = kind.name;
    intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
    desc.n = kN;
    desc.k = kK;
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.c_type = kind.c_type;
    linear.max_isa = isa;
    linear.a_quantization = kind.quantization;
    const bool is_dynamic = kind.quantization >= INTACT_QUANTIZATION_DYNAMIC_ROWS;
    if (is_dynamic) linear.a_source_type = INTACT_F32;
    if (kind.c_type != INTACT_S32) {
      linear.scales = scales.data();
      linear.scale_count = kN;
      linear.bias_f32 = bias.data();
      linear.activation = INTACT_ACTIVATION_CLAMP;
      linear.clamp_min = -1e-40f;
      linear.clamp_max = 900.0f;
    }
    const auto plan = Make<GemmApi>(recorder, name + " create", [&](intact_gemm** handle) {
      return intact_gemm_create(&desc, &linear, b.data(), handle);
    });
    if (plan == nullptr) continue;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = kM;
    args.batch = kItems;
    args.a = is_dynamic ? static_cast<const void*>(x.data()) : a.data();
    if (kind.quantization == INTACT_QUANTIZATION_ROWS) args.a_scales = row_scales.data();
    constexpr size_t kBytes = kItems * kM * kN * sizeof(float);
    UsePlan<GemmApi>(recorder, name, plan.get(), isa, args, kBytes);
    CertifyGemm(recorder, name + " certificate", plan.get());
    if (is_dynamic) continue;
    args.a = nullptr;
    args.a_items = items.data();
    Run<GemmApi>(recorder, name + " of items", plan.get(), args, kBytes);
  }
}

void UseConvs(Recorder* recorder, int32_t isa) {
  constexpr int64_t kExtent = 7, kImages = 2;
  struct Kind {
    const char* name;
    int64_t channels, groups;
    int32_t transposed, quantization;
  };
  for (const Kind& kind : {Kind{"conv", 8, 1, 0, INTACT_QUANTIZATION_STATIC},
                           Kind{"depthwise conv", 16, 16, 0, INTACT_QUANTIZATION_TENSOR},
                           Kind{"transposed conv", 6, 2, 1, INTACT_QUANTIZATION_STATIC},
                           Kind{"dynamic conv", 8, 1, 0, INTACT_QUANTIZATION_DYNAMIC_TENSOR}}) {
    const std::string name = kind.name;
    const int64_t pixels = kImages * kExtent * kExtent;
    const auto weights = Values<int8_t>(static_cast<size_t>(9 * kind.channels * kind.channels), 255, -127);
    const auto a = Values<uint8_t>(static_cast<size_t>(pixels * kind.channels), 251, 0);
    std::vector<float> x(a.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(a[i]) * (i % 3 == 0 ? 1e-41f : 0.37f);
    const auto scales = Scales(static_cast<size_t>(kind.channels));
    const float tensor_scale = 2e-40f;
    intact_conv_desc desc = INTACT_CONV_DESC_INIT;
    desc.transposed = kind.transposed;
    desc.input_channels = desc.output_channels = kind.channels;
    desc.groups = kind.groups;
    for (size_t i = 0; i < 2; ++i) {
      desc.input[i] = kExtent;
      desc.kernel[i] = 3;
      desc.pad_begin[i] = desc.pad_end[i] = 1;
    }
    intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
    linear.c_type = INTACT_F32;
    linear.max_isa = isa;
    linear.scales = scales.data();
    linear.scale_count = kind.channels;
    linear.bias_f32 = scales.data();
    linear.a_quantization = kind.quantization;
    const bool is_dynamic = kind.quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
    if (is_dynamic) linear.a_source_type = INTACT_F32;
    const auto plan = Make<ConvApi>(recorder, name + " create", [&](intact_conv** handle) {
      return intact_conv_create(&desc, &linear, weights.data(), handle);
    });
    if (plan == nullptr) continue;
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = kImages;
    args.a = is_dynamic ? static_cast<const void*>(x.data()) : a.data();
    if (kind.quantization == INTACT_QUANTIZATION_TENSOR) args.a_scales = &tensor_scale;
    UsePlan<ConvApi>(recorder, name, plan.get(), isa, args,
                     static_cast<size_t>(pixels * kind.channels) * sizeof(float));
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    recorder->Call(name + " certificate", [&] {
      return intact_conv_certificate(plan.get(), INTACT_PAIRING_WITHIN_TAP, &certificate);
    });
    recorder->Add(name + " certificate", &certificate, sizeof(certificate));
    std::array<intact_conv_failing_pair, 4> pairs = {};
    int64_t written = 0;
    recorder->Call(name + " pairs", [&] {
      return intact_conv_failing_pairs(plan.get(), INTACT_PAIRING_WITHIN_TAP, 0, 4, pairs.data(), &written);
    });
    recorder->Add(name + " pairs", pairs.data(), sizeof(pairs));
  }
}

void CertifyGrouped(Recorder* recorder, const std::string& name, const intact_grouped* plan) {
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  recorder->Call(name, [&] { return intact_grouped_certificate(plan, &certificate); });
  recorder->Add(name, &certificate, sizeof(certificate));
  std::array<intact_group_certificate, 8> groups = {};
  recorder->Call(name + " groups",
                 [&] { return intact_grouped_group_certificates(plan, 0, 1, groups.data()); });
  recorder->Add(name + " groups", groups.data(), sizeof(groups));
  std::array<intact_failing_pair, 4> pairs = {};
  int64_t written = 0;
  recorder->Call(name + " pairs",
                 [&] { return intact_grouped_failing_pairs(plan, 0, 4, pairs.data(), &written); });
  recorder->Add(name + " pairs", pairs.data(), sizeof(pairs));
}

void UseGrouped(Recorder* recorder, int32_t isa) {
  constexpr int64_t kM = 9, kN = 17, kK = 40, kGroup = 16, kGroups = 3, kExperts = 3;
  constexpr size_t kScales = kExperts * kN * kGroups;
  const auto b = Values<int8_t>(kExperts * kN * kK, 255, -127);
  const auto a = Values<int8_t>(kM * kK, 251, -125);
  std::vector<float> x(kM * kK);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(a[i]) * (i % 3 == 0 ? 1e-41f : 0.37f);
  const auto f32_scales = Scales(kScales), row_scales = Scales(kM);
  std::vector<uint16_t> short_scales(kScales);
  for (size_t i = 0; i < kScales; ++i)
    short_scales[i] = static_cast<uint16_t>(i % 2 == 0 ? 0x10 + i : 0x3c11);
  const std::array<int64_t, kExperts> rows = {4, 0, 5};
  struct Kind {
    const char* name;
    int32_t scale_type, source;
    int64_t experts;
  };
  for (const Kind& kind : {Kind{"grouped bf16", INTACT_BF16, INTACT_TYPE_NONE, 1},
                           Kind{"grouped f16", INTACT_F16, INTACT_F32, 1},
                           Kind{"grouped f32 experts", INTACT_F32, INTACT_F32, kExperts}}) {
    const std::string name = kind.name;
    intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
    desc.n = kN;
    desc.k = kK;
    desc.group = kGroup;
    desc.b_type = INTACT_S8;
    desc.a_source_type = kind.source;
    desc.scale_type = kind.scale_type;
    desc.b_scales =
        kind.scale_type == INTACT_F32 ? static_cast<const void*>(f32_scales.data()) : short_scales.data();
    desc.experts = kind.experts;
    desc.max_isa = isa;
    const auto plan = Make<GroupedApi>(recorder, name + " create", [&](intact_grouped** handle) {
      return intact_grouped_create(&desc, b.data(), handle);
    });
    if (plan == nullptr) continue;
    intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
    args.m = kM;
    args.a = kind.source == INTACT_TYPE_NONE ? static_cast<const void*>(a.data()) : x.data();
    if (kind.source == INTACT_TYPE_NONE) args.a_scales = row_scales.data();
    if (kind.experts > 1) args.expert_rows = rows.data();
    UsePlan<GroupedApi>(recorder, name, plan.get(), isa, args, kM * kN * sizeof(float));
    CertifyGrouped(recorder, name + " certificate", plan.get());
  }
}

// The times that tuning measures differ from call to call, so only its effect on the environment is recorded,
// and that runs compute the same bytes afterwards.
void Tune(Recorder* recorder, int32_t isa) {
  const auto b = Values<int8_t>(16 * 16 * 9, 255, -127);
  const auto a = Values<uint8_t>(16 * 16, 251, 0);
  const float scale = 3e-39f;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.c_type = INTACT_F32;
  linear.scales = &scale;
  linear.scale_count = 1;
  linear.max_isa = isa;
  intact_gemm_desc gemm = INTACT_GEMM_DESC_INIT;
  gemm.n = gemm.k = 16;
  const auto plan = Make<GemmApi>(recorder, "tuned gemm", [&](intact_gemm** handle) {
    return intact_gemm_create(&gemm, &linear, b.data(), handle);
  });
  recorder->Call("gemm tune", [&] { return intact_gemm_tune(plan.get(), 16, 0, nullptr); });
  std::vector<float> c(16 * 16);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 16;
  args.a = a.data();
  args.c = c.data();
  recorder->Call("tuned gemm run", [&] { return intact_gemm_run(plan.get(), &args); });
  recorder->Add("tuned gemm run", c.data(), c.size() * sizeof(float));
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.input_channels = desc.output_channels = 16;
  desc.input[0] = desc.input[1] = 4;
  const auto conv = Make<ConvApi>(recorder, "tuned conv", [&](intact_conv** handle) {
    return intact_conv_create(&desc, &linear, b.data(), handle);
  });
  recorder->Call("conv tune", [&] { return intact_conv_tune(conv.get(), nullptr, 0, nullptr); });
  intact_conv_args conv_args = INTACT_CONV_ARGS_INIT;
  conv_args.a = a.data();
  conv_args.c = c.data();
  recorder->Call("tuned conv run", [&] { return intact_conv_run(conv.get(), &conv_args); });
  recorder->Add("tuned conv run", c.data(), c.size() * sizeof(float));
}

// The bits of MXCSR.
constexpr unsigned kMasks = 0x1f80, kFlags = 0x3f, kRounding = 0x6000, kFlushing = 0x8040;

// Every combination of rounding and flushing, with each of `masks`. Half of them have exceptions that have
// occurred before.
std::vector<unsigned> Environments(const std::vector<unsigned>& masks) {
  std::vector<unsigned> all;
  for (unsigned rounding = 0; rounding <= kRounding; rounding += 0x2000) {
    for (const unsigned flushing : {0x0000u, 0x0040u, 0x8000u, kFlushing}) {
      for (const unsigned mask : masks) {
        const bool has_flags = (all.size() + all.size() / masks.size()) % 2 != 0;
        all.push_back(rounding | flushing | mask | (has_flags ? kFlags : 0));
      }
    }
  }
  return all;
}

class FloatEnvironment : public ::testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    const bool is_there = GetParam() == INTACT_ISA_ANY || intact_isa_available(GetParam()) != 0;
    if (!is_there) GTEST_SKIP() << "this CPU lacks it";
  }
  template <class Use>
  void ExpectTheSame(const std::vector<unsigned>& environments, const Use& use) {
    for (const bool has_files : {false, true}) {
      if (has_files && GetParam() != INTACT_ISA_PORTABLE) continue;
      Recorder expected(kDefault, has_files);
      use(&expected, GetParam());
      for (const unsigned environment : environments) {
        if (has_files && (environment & (kMasks | kFlags)) != kMasks) continue;
        Recorder recorder(environment, has_files);
        use(&recorder, GetParam());
        EXPECT_EQ(recorder.DifferenceFrom(expected), "") << "differs with MXCSR " << std::hex << environment;
        EXPECT_EQ(recorder.changed(), "") << "changes MXCSR " << std::hex << environment;
      }
    }
  }
};

TEST_P(FloatEnvironment, DoesNotMatter) {
  std::vector<unsigned> masks = {kMasks, 0};
  for (unsigned mask = 0x80; IsLong() && mask < kMasks; mask += 0x80) masks.push_back(mask);
  const std::vector<unsigned> environments = Environments(masks);
  ExpectTheSame(environments, UseGemms);
  ExpectTheSame(environments, UseConvs);
  ExpectTheSame(environments, UseGrouped);
  ExpectTheSame(environments, Tune);
}

constexpr std::array<intact_isa, 3> kIsas = {INTACT_ISA_PORTABLE, INTACT_ISA_AVX2, INTACT_ISA_ANY};
std::string NameOf(const testing::TestParamInfo<intact_isa>& isa) { return intact_isa_name(isa.param); }
INSTANTIATE_TEST_SUITE_P(Isas, FloatEnvironment, ::testing::ValuesIn(kIsas), NameOf);
INSTANTIATE_TEST_SUITE_P(Long, FloatEnvironment, ::testing::ValuesIn(kIsas), NameOf);

// Parts that threads with different rounding compute leave no hole: every thread cuts a batch in the same
// way.
TEST(FloatEnvironments, OfThreadsMayDiffer) {
  const std::array<int8_t, 1> b = {1};
  std::array<uint8_t, 32> a;
  std::array<int32_t, 32> c;
  a.fill(1);
  c.fill(-1);
  std::array<const void*, 8> items;
  for (size_t i = 0; i < items.size(); ++i) items[i] = &a[4 * i];
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = desc.k = 1;
  intact_gemm* plan = nullptr;
  ASSERT_EQ(intact_gemm_create(&desc, nullptr, b.data(), &plan), INTACT_OK);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 4;
  args.batch = 8;
  args.a_items = items.data();
  args.c = c.data();
  for (int32_t part = 0; part < 23; ++part) {
    _mm_setcsr(part % 2 == 0 ? kDefault : kDefault | _MM_ROUND_DOWN);
    (void)intact_gemm_run_part(plan, &args, part, 23);
    _mm_setcsr(kDefault);
  }
  intact_gemm_destroy(plan);
  for (const int32_t value : c) EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace intact::tests

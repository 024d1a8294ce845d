#include "fuzz/features.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/types.h"
#include "fuzz/linear.h"
#include "reference/contract/quantize.h"
#include "verify/problem/problem.h"

namespace intact::fuzz {
namespace {

constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int32_t kHighestInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kLowestInt = std::numeric_limits<int32_t>::min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr std::array<int32_t, 4> kScaledTypes = {INTACT_F32, INTACT_U8, INTACT_BF16, INTACT_S8};
constexpr auto kHalfFloats = [] {  // source types except the first, f32
  std::array<int32_t, core::kSourceTypes.size() - 1> types = {};
  std::copy(core::kSourceTypes.begin() + 1, core::kSourceTypes.end(), types.begin());
  return types;
}();

bool IsDynamic(int32_t quantization) {
  return quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS ||
         quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
}

// A value that is not a zero point of `type`.
int32_t WrongZeroPoint(Input* input, intact_type type) {
  return input->Pick({core::LowestOf(type) - 1, core::LowestOf(type) + 256, kLowestInt, kHighestInt});
}

float WrongScale(Input* input) { return input->Pick({-0x1p-149f, -1.0f, kNan, kInfinity, -kInfinity}); }

// One of the values.
template <class T>
T& AnyOf(Input* input, std::vector<T>* values) {
  return (*values)[static_cast<size_t>(input->Integer(0, std::ssize(*values) - 1))];
}

// Numbers of one of the verifier's kinds, in rows of `row` numbers. A few numbers get random bits.
std::vector<uint8_t> ReadNumbers(Input* input, const reference::Linear& linear, int64_t row, int64_t count) {
  verify::Problem problem;
  problem.a_type = linear.a_type;
  problem.c_type = INTACT_F32;
  problem.scale = verify::ScaleKind::kTensor;
  problem.quantization = linear.a_quantization;
  problem.source = linear.a_source_type;
  problem.m = (count + row - 1) / row;
  problem.k = row;
  problem.numbers = verify::AllNumbers()[input->Byte() % verify::AllNumbers().size()];
  problem.seed = input->Byte();
  std::vector<uint8_t> numbers = verify::MaterializeGemm(problem).a_source;
  const auto element = static_cast<size_t>(core::BytesOf(linear.a_source_type));
  numbers.resize(static_cast<size_t>(count) * element);
  for (int64_t left = input->Integer(0, 3); left > 0; --left) {
    const auto at = static_cast<size_t>(input->Integer(0, std::min<int64_t>(count, 1 << 16) - 1));
    for (size_t byte = 0; byte < element; ++byte) numbers[at * element + byte] = input->Byte();
  }
  return numbers;
}

// The zero point, within the activation range or missing, and the scale that a run gives for all of A, each
// repeated `values` times.
void ReadTensorValues(Input* input, const intact_linear_desc& desc, int64_t values,
                      reference::Linear* linear) {
  const bool has_range = desc.a_min != 0 || desc.a_max != 0;
  const int32_t low = has_range ? desc.a_min : core::LowestOf(linear->a_type);
  const int32_t high = has_range ? desc.a_max : core::HighestOf(linear->a_type);
  const bool may_be_none = low <= 0 && high >= 0;
  const auto count = static_cast<size_t>(values);
  if (!may_be_none || !input->OneIn(3)) {
    linear->a_zero_points.assign(count, low + static_cast<int32_t>(input->Integer(0, high - low)));
  }
  if (linear->c_type != INTACT_S32) linear->a_scales.assign(count, ReadScale(input));
}

}  // namespace

Features::Features(uint8_t byte)
    : quantization((byte & 32) != 0 ? INTACT_QUANTIZATION_TENSOR
                                    : static_cast<intact_quantization>(byte & 3)),
      has_batch((byte & 4) != 0),
      has_runtime_b((byte & 8) != 0),
      is_half((byte & 16) != 0),
      is_transposed((byte & 64) != 0) {}

Features Features::OfConv() const {
  Features features = *this;
  features.has_batch = features.has_runtime_b = features.is_transposed = false;
  const bool is_by_rows =
      quantization == INTACT_QUANTIZATION_ROWS || quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
  if (is_by_rows) features.quantization = INTACT_QUANTIZATION_TENSOR;
  return features;
}

bool Features::Any() const {
  return quantization != INTACT_QUANTIZATION_STATIC || has_batch || has_runtime_b || is_half || is_transposed;
}

std::span<const int32_t> Features::OutputTypes() const {
  if (is_half) return kHalfFloats;
  return IsDynamic(quantization) ? std::span<const int32_t>(kScaledTypes) : kOutputTypes;
}

void ReadFeatures(Input* input, const Features& features, intact_gemm_desc* desc,
                  intact_linear_desc* linear) {
  desc->runtime_b = features.has_runtime_b ? 1 : 0;
  input->Spoil(&desc->runtime_b, {2, -1, kLowestInt});
  input->Spoil(&desc->reserved, {1, -1, kLowestInt});
  ReadFeatures(input, features, linear);
}

void ReadFeatures(Input* input, const Features& features, intact_linear_desc* linear) {
  if (features.quantization != INTACT_QUANTIZATION_STATIC) linear->a_zero_point = 0;
  if (IsDynamic(features.quantization)) {
    linear->a_source_type = core::kSourceTypes[input->Byte() % core::kSourceTypes.size()];
    linear->a_min = 0;
    linear->a_max = 0;
  }
  input->Spoil(&linear->a_quantization, {0, 1, 2, 3, 4, 5, -1, kLowestInt});
  input->Spoil(&linear->a_source_type, {INTACT_TYPE_NONE, INTACT_F32, INTACT_BF16, INTACT_S32, -1});
  input->Spoil(&linear->a_zero_point, {1, -1, kLowestInt});
  input->Spoil(&linear->a_max, {127, 255});
}

std::string FeatureRun::Read(const Features& features) {
  gemm_.has_runtime_b = features.has_runtime_b;
  is_transposed_ = features.is_transposed;
  if (features.has_batch) gemm_.batch = input_.Integer(1, 5);
  gemm_.m = input_.OneIn(8) ? input_.Integer(1, 300) : input_.Integer(1, 40);
  if (features.has_batch && input_.OneIn(3)) gemm_.m = 1;
  std::string wrong = ReadA(features.has_batch);
  if (wrong.empty() && features.has_runtime_b) wrong = ReadB();
  if (gemm_.a_quantization == INTACT_QUANTIZATION_ROWS) ReadRowValues();
  if (gemm_.a_quantization == INTACT_QUANTIZATION_TENSOR) {
    ReadTensorValues(&input_, linear_, gemm_.rows(), &gemm_);
  }
  if (gemm_.IsDynamic()) reference::QuantizeActivations(&gemm_);
  if (features.has_runtime_b) ReadItemValues();
  return wrong;
}

std::string FeatureRun::ReadA(bool has_batch) {
  const int64_t element = gemm_.IsDynamic() ? core::BytesOf(gemm_.a_source_type) : 1;
  std::vector<uint8_t>& dense = gemm_.IsDynamic() ? gemm_.a_source : gemm_.a;
  if (!has_batch || !input_.OneIn(3)) {
    dense = ReadActivations(gemm_.rows() * gemm_.k);
    return "";
  }
  a_stride_ = (is_transposed_ ? gemm_.m : gemm_.k) + input_.Pick<int64_t>({0, 1, 16});
  const bool has_pointers = input_.OneIn(2);
  const int64_t step = ReadStep(&input_, (is_transposed_ ? gemm_.k : gemm_.m) * a_stride_, has_pointers);
  const int64_t row_step = is_transposed_ ? 1 : a_stride_, column_step = is_transposed_ ? a_stride_ : 1;
  const Layout layout = {gemm_.m, row_step, gemm_.k, column_step, gemm_.batch, step};
  const std::vector<uint8_t> memory = ReadActivations(layout.Extent());
  dense = Dense(memory, layout, element);
  Result<Items> items = Items::Make(memory, layout, element, has_pointers);
  if (!items) return items.error().message;
  a_items_ = std::move(*items);
  return "";
}

std::string FeatureRun::ReadB() {
  const bool has_pointers = input_.OneIn(2);
  b_.items = gemm_.batch;
  b_.step = ReadStep(&input_, gemm_.n * gemm_.k, has_pointers);
  const std::vector<uint8_t> memory = ReadTensor(&input_, b_.Extent());
  const std::vector<uint8_t> dense = Dense(memory, b_, 1);
  gemm_.b.assign(dense.begin(), dense.end());
  Result<Items> items = Items::Make(memory, b_, 1, has_pointers);
  if (!items) return items.error().message;
  b_items_ = std::move(*items);
  return "";
}

// `count` elements, in the type that runs take.
std::vector<uint8_t> FeatureRun::ReadActivations(int64_t count) {
  if (gemm_.IsDynamic()) return ReadNumbers(&input_, gemm_, gemm_.k, count);
  std::vector<uint8_t> a = ReadTensor(&input_, count);
  if (linear_.range_check == INTACT_RANGE_UNCHECKED) ClampToActivationRange(linear_, &a);
  return a;
}

// The zero points and scales of rows, as the verifier draws them. One scale may have any size.
void FeatureRun::ReadRowValues() {
  verify::Problem problem;
  problem.a_type = gemm_.a_type;
  problem.c_type = gemm_.c_type;
  problem.scale = gemm_.c_type == INTACT_S32 ? verify::ScaleKind::kNone : verify::ScaleKind::kTensor;
  problem.quantization = INTACT_QUANTIZATION_ROWS;
  problem.row_zero_points = input_.OneIn(2);
  problem.m = gemm_.rows();
  problem.seed = input_.Byte();
  reference::Gemm rows = verify::MaterializeGemm(problem);
  gemm_.a_zero_points = std::move(rows.a_zero_points);
  gemm_.a_scales = std::move(rows.a_scales);
  if (!gemm_.a_scales.empty() && input_.OneIn(4)) AnyOf(&input_, &gemm_.a_scales) = ReadScale(&input_);
}

void FeatureRun::ReadItemValues() {
  const bool has_scales = input_.OneIn(2) && !gemm_.scales.empty();
  const bool has_zero_points = input_.OneIn(2) && linear_.b_zero_points != nullptr;
  for (int64_t left = has_scales ? ReadCount() : 0; left > 0; --left) {
    gemm_.item_scales.push_back(ReadScale(&input_));
  }
  for (int64_t left = has_zero_points ? ReadCount() : 0; left > 0; --left) {
    gemm_.item_zero_points.push_back(core::LowestOf(gemm_.b_type) + input_.Byte());
  }
}

// The number of values of all items: one for each item, or n.
int64_t FeatureRun::ReadCount() { return gemm_.batch * (input_.OneIn(3) ? gemm_.n : 1); }

void FeatureRun::ReadOptions(const Features& features, verify::RunOptions* options) {
  options->a_by_columns = features.is_transposed;
  if (!features.has_batch) return;
  options->item_pointers = input_.OneIn(3);
  if (!options->item_pointers) options->item_pad = input_.Pick<int64_t>({0, 0, 1, 7, 64});
}

void FeatureRun::Amend(intact_gemm_args* args) {
  if (a_items_) {
    args->a_stride = a_stride_;
    a_items_->Give(&args->a, &args->a_items, &args->a_batch_stride);
  }
  if (b_items_) b_items_->Give(&args->b, &args->b_items, &args->b_batch_stride);
  // If there are pointers, strides are not read.
  const auto any = [this] { return input_.Pick<int64_t>({0, 0, 1, -1, kLowest, kHighest}); };
  if (args->a_items != nullptr) args->a_batch_stride = any();
  if (args->c_items != nullptr) args->c_batch_stride = any();
  if (args->residual_items != nullptr) args->residual_batch_stride = any();
  if (args->b_items != nullptr) args->b_batch_stride = any();
}

bool FeatureRun::Spoil(intact_gemm_args* args) {
  switch (input_.Byte() % 9) {
    case 1:
      args->batch = input_.Pick({int64_t{-1}, kLowest, kHighest, int64_t{1} << 31});
      return true;
    case 2:
      return SpoilStride(args);
    case 3:
      return SpoilItems(args);
    case 4:
      return SpoilResidual(args);
    case 5:
      return SpoilRows(args);
    case 6:
    case 7:
      return SpoilB(args);
    case 8:
      (input_.OneIn(2) ? args->a_transposed : args->reserved) = input_.Pick({2, -1, kLowestInt, kHighestInt});
      return true;
    default:
      return false;
  }
}

bool FeatureRun::SpoilStride(intact_gemm_args* args) {
  const int64_t stride = input_.Pick({int64_t{-1}, kLowest, kHighest, (int64_t{1} << 40) + 1});
  const auto spoil = [stride](const auto* items, int64_t* of) {
    if (items == nullptr) *of = stride;
    return items == nullptr;
  };
  switch (input_.Byte() % 4) {
    case 0:
      return spoil(args->a_items, &args->a_batch_stride);
    case 1:
      return spoil(args->c_items, &args->c_batch_stride);
    case 2:
      return spoil(args->residual_items, &args->residual_batch_stride);
    default:
      return spoil(args->b_items, &args->b_batch_stride);
  }
}

// Gives pointers in addition to the base pointer, or makes one of the pointers NULL.
bool FeatureRun::SpoilItems(intact_gemm_args* args) {
  const uint8_t tensor = input_.Byte() % 4;
  const auto spoil = [this](const void* base, const void* const* items) {
    pointers_.assign(static_cast<size_t>(gemm_.batch), base);
    if (items == nullptr) return;
    std::copy_n(items, gemm_.batch, pointers_.begin());
    AnyOf(&input_, &pointers_) = nullptr;
  };
  if (tensor == 0) {
    spoil(args->a, args->a_items);
    args->a_items = pointers_.data();
  } else if (tensor == 1) {
    spoil(args->residual, args->residual_items);
    args->residual_items = pointers_.data();
  } else if (tensor == 2) {
    spoil(args->b, args->b_items);
    args->b_items = pointers_.data();
  } else {
    spoil(args->c, args->c_items);
    args->c_items = const_cast<void* const*>(pointers_.data());
  }
  return true;
}

bool FeatureRun::SpoilResidual(intact_gemm_args* args) {
  const bool is_c = (args->residual != nullptr && args->residual == args->c) ||
                    (args->residual_items != nullptr && args->residual_items == args->c_items);
  switch (input_.Byte() % 3) {
    case 0:
      args->residual_stride =
          input_.Pick({int64_t{-1}, kLowest, kHighest, gemm_.n == 1 ? -1 : gemm_.n - 1, int64_t{1} << 41});
      return true;
    case 1:
      if (!is_c) return false;
      ++args->residual_stride;
      return true;
    default:
      if (!is_c || args->c_items != nullptr || gemm_.batch == 1) return false;
      args->residual_batch_stride =
          1 + (args->c_batch_stride != 0 ? args->c_batch_stride : gemm_.m * args->c_stride);
      return true;
  }
}

bool FeatureRun::SpoilRows(intact_gemm_args* args) {
  const bool has_one = gemm_.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const auto rows = static_cast<size_t>(has_one ? 1 : gemm_.rows());
  const bool takes_rows = has_one || gemm_.a_quantization == INTACT_QUANTIZATION_ROWS;
  if (input_.OneIn(2)) {
    zero_points_.assign(rows, 0);
    if (takes_rows) AnyOf(&input_, &zero_points_) = WrongZeroPoint(&input_, gemm_.a_type);
    args->a_zero_points = zero_points_.data();
    return true;
  }
  const bool takes_scales = takes_rows && gemm_.c_type != INTACT_S32;
  scales_.assign(rows, 1.0f);
  if (takes_scales) AnyOf(&input_, &scales_) = WrongScale(&input_);
  args->a_scales = takes_scales && input_.OneIn(4) ? nullptr : scales_.data();
  return true;
}

// A B for a plan with weights, no B for a plan with runtime B, or wrong values of items.
bool FeatureRun::SpoilB(intact_gemm_args* args) {
  const auto items = static_cast<size_t>(gemm_.batch);
  switch (input_.Byte() % 4) {
    case 0:
      args->b = gemm_.has_runtime_b ? nullptr : args;
      args->b_items = nullptr;
      return true;
    case 1:
      scales_.assign(items, 1.0f);
      if (gemm_.has_runtime_b) AnyOf(&input_, &scales_) = WrongScale(&input_);
      args->b_scales = scales_.data();
      args->b_scale_count = 0;
      return true;
    case 2:
      (input_.OneIn(2) ? args->b_scale_count : args->b_zero_point_count) =
          input_.Pick({int64_t{-1}, gemm_.n + 1, kLowest, kHighest});
      return true;
    default:
      zero_points_.assign(items, 0);
      if (gemm_.has_runtime_b) AnyOf(&input_, &zero_points_) = WrongZeroPoint(&input_, gemm_.b_type);
      args->b_zero_points = zero_points_.data();
      args->b_zero_point_count = 0;
      return true;
  }
}

void ReadInput(Input* input, const intact_linear_desc& linear, reference::Conv* conv) {
  const int64_t channels = conv->geometry.input_channels;
  const int64_t count = conv->geometry.InputPixels() * channels;
  if (conv->IsDynamic()) {
    conv->a_source = ReadNumbers(input, *conv, channels, count);
    return reference::QuantizeActivations(conv);
  }
  conv->a = ReadTensor(input, count);
  if (linear.range_check == INTACT_RANGE_UNCHECKED) ClampToActivationRange(linear, &conv->a);
  if (conv->a_quantization == INTACT_QUANTIZATION_TENSOR) ReadTensorValues(input, linear, 1, conv);
}

void WrongTensorValue::Give(Input* input, const reference::Conv& conv, intact_conv_args* args) {
  const bool takes_values = conv.a_quantization == INTACT_QUANTIZATION_TENSOR;
  if (input->OneIn(2)) {
    if (takes_values) zero_point = WrongZeroPoint(input, conv.a_type);
    args->a_zero_points = &zero_point;
    return;
  }
  const bool takes_scale = takes_values && conv.c_type != INTACT_S32;
  if (takes_scale) scale = WrongScale(input);
  args->a_scales = takes_scale && input->OneIn(4) ? nullptr : &scale;
}

}  // namespace intact::fuzz

#include <span>
#include <utility>

#include "fuzz/call.h"
#include "fuzz/features.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::fuzz {
namespace {

constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
// Larger convolutions are not run.
constexpr int64_t kMostPixels = int64_t{1} << 12;
constexpr int64_t kMostProducts = int64_t{1} << 19;

void ReadChannels(Input* input, intact_conv_desc* desc) {
  if (input->OneIn(3)) {  // depthwise
    desc->groups = input->Integer(1, 48);
    desc->input_channels = desc->groups;
    desc->output_channels = desc->groups * input->Pick<int64_t>({1, 1, 2, 3});
    return;
  }
  const int64_t groups = input->Pick<int64_t>({1, 1, 1, 2, 3, 8});
  desc->groups = groups == 1 ? 0 : groups;
  desc->input_channels = groups * input->Integer(1, 40);
  desc->output_channels = groups * input->Integer(1, 40);
}

intact_conv_desc ReadDesc(Input* input) {
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.spatial_dims = input->Pick({2, 1, 3, 2});
  desc.transposed = input->OneIn(4) ? 1 : 0;
  ReadChannels(input, &desc);
  for (int i = 0; i < desc.spatial_dims; ++i) {
    desc.input[i] = input->Integer(1, desc.spatial_dims == 1 ? 60 : 9);
    desc.kernel[i] = input->Pick<int64_t>({1, 3, 2, 3, 5, 0, 4, 7});
    desc.stride[i] = input->Pick<int64_t>({0, 1, 2, 3});
    desc.dilation[i] = input->Pick<int64_t>({0, 0, 1, 2, 3});
    desc.pad_begin[i] = input->Pick<int64_t>({0, 1, 1, 2, 3, 5});
    desc.pad_end[i] = input->OneIn(4) ? input->Integer(0, 5) : desc.pad_begin[i];
    if (desc.transposed != 0) desc.output_pad[i] = input->Pick<int64_t>({0, 0, 1, 2});
  }
  return desc;
}

// Fields that determine the number of weights get values that are refused. Other extents may be huge and
// valid.
void Spoil(Input* input, intact_conv_desc* desc) {
  constexpr int64_t kLargest = (int64_t{1} << 31) - 1;
  input->Spoil(&desc->spatial_dims, {0, 4, -1, std::numeric_limits<int32_t>::min()});
  input->Spoil(&desc->transposed, {2, -1});
  input->Spoil(&desc->input_channels, {0, -1, kLowest, kHighest, kLargest + 1});
  input->Spoil(&desc->output_channels, {0, -1, kLowest, kHighest, kLargest + 1});
  input->Spoil(&desc->groups, {-1, kLowest, kHighest, 97});
  for (int i = 0; i < INTACT_MAX_SPATIAL; ++i) {
    input->Spoil(&desc->kernel[i], {-1, kLowest, kHighest, kLargest + 1});
    input->Spoil(&desc->input[i], {0, -2, kLowest, kHighest, kLargest + 1, kLargest, 100000});
    input->Spoil(&desc->stride[i], {-1, kLowest, kHighest, kLargest + 1, kLargest});
    input->Spoil(&desc->dilation[i], {-1, kLowest, kHighest, kLargest + 1, kLargest, 100});
    input->Spoil(&desc->pad_begin[i], {-1, kLowest, kHighest, kLargest + 1, kLargest, 1000});
    input->Spoil(&desc->pad_end[i], {-1, kLowest, kHighest, kLargest + 1, kLargest, 1000});
    input->Spoil(&desc->output_pad[i], {-1, kLowest, kHighest, kLargest, 3});
  }
}

int64_t OneIfZero(int64_t value) { return value == 0 ? 1 : value; }

int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kHighest;
  }
  return product;
}

// The geometry of the descriptor, if it is valid.
reference::ConvGeometry GeometryOf(const intact_conv_desc& desc) {
  reference::ConvGeometry geometry;
  geometry.dims = desc.spatial_dims;
  geometry.input_channels = desc.input_channels;
  geometry.output_channels = desc.output_channels;
  geometry.groups = OneIfZero(desc.groups);
  for (reference::Axis& axis : geometry.axes) axis.transposed = desc.transposed != 0;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; i < axes.size(); ++i) {
    axes[i] = {
        desc.input[i],     OneIfZero(desc.kernel[i]), OneIfZero(desc.stride[i]), OneIfZero(desc.dilation[i]),
        desc.pad_begin[i], desc.pad_end[i],           desc.transposed != 0,      desc.output_pad[i]};
  }
  return geometry;
}

bool HasOutput(const reference::ConvGeometry& geometry) {
  return std::ranges::all_of(geometry.axes, [](const reference::Axis& axis) {
    if (axis.input > std::numeric_limits<int32_t>::max()) return false;  // the library must refuse it
    const bool is_padding_right = axis.output_pad < std::max(axis.stride, axis.dilation);
    return axis.Output() > 0 && is_padding_right;
  });
}

bool CanBeRun(const reference::ConvGeometry& g) {
  const auto& [d, h, w] = g.axes;
  const int64_t inputs = Product({g.batch, d.input, h.input, w.input});
  const int64_t outputs = Product({g.batch, d.Output(), h.Output(), w.Output()});
  return inputs <= kMostPixels && outputs <= kMostPixels &&
         Product({outputs, g.Taps(), g.GroupInputs(), g.output_channels}) <= kMostProducts;
}

}  // namespace

std::string CheckConv(std::span<const uint8_t> bytes, const Tamper& tamper) {
  Input input(bytes);
  const Features features = Features(input.Byte()).OfConv();
  intact_conv_desc desc = ReadDesc(&input);
  reference::Conv operation;
  operation.geometry = GeometryOf(desc);
  const bool has_output = HasOutput(operation.geometry);
  const int64_t columns = desc.output_channels;
  const int64_t depth = operation.geometry.Taps() * operation.geometry.GroupInputs();
  if (columns * depth > int64_t{1} << 16) return "";
  Linear linear;
  ReadLinear(&input, columns, features.OutputTypes(), features.quantization, &linear);
  Spoil(&input, &desc);
  if (features.Any()) ReadFeatures(&input, features, &linear.desc);
  const std::vector<uint8_t> weights = ReadTensor(&input, columns * depth);
  verify::RunOptions options;
  options.open_extents = input.OneIn(3);
  intact_conv_desc created_desc = desc;
  for (int i = 0; i < desc.spatial_dims && i < INTACT_MAX_SPATIAL && options.open_extents; ++i) {
    if (desc.input[i] > 0) created_desc.input[i] = INTACT_ANY_EXTENT;
  }
  const Versioned<intact_conv_desc> given(created_desc, &input);
  const Versioned<intact_linear_desc> given_linear(linear.desc, &input);
  auto b = verify::GuardedBuffer::Allocate(weights.size());
  if (!b) return b.error().message;
  std::copy(weights.begin(), weights.end(), b->data().begin());
  b->MakeReadOnly();
  intact_conv* created = nullptr;
  const intact_status status =
      intact_conv_create(given.get(), given_linear.get(), b->data().data(), &created);
  PlanOwner<ConvApi> plan(created);
  const bool is_spoilt = input.is_spoilt() || given.is_spoilt() || given_linear.is_spoilt();
  if (status != INTACT_OK) {
    if (created != nullptr) return "a creation fails and makes a plan";
    return WrongCreation("intact_conv_create", status, linear.desc, is_spoilt || !has_output);
  }
  if (given.is_spoilt() || given_linear.is_spoilt()) return "a struct of a wrong size is accepted";

  operation.geometry = GeometryOf(desc);
  operation.geometry.batch = input.Pick<int64_t>({1, 1, 2, 3});
  const bool is_possible = HasOutput(operation.geometry);
  if (!is_possible && !options.open_extents) return "a convolution without an output is accepted";
  if (!is_possible) {
    const auto args = verify::ArgsOf(operation, options, {});
    intact_run_info info = INTACT_RUN_INFO_INIT;
    if (intact_conv_prepare(plan.get(), &args, &info) == INTACT_OK)
      return "extents without an output are accepted";
    return WrongRefusal("intact_conv_prepare", INTACT_INVALID_ARGUMENT, true);
  }
  if (!CanBeRun(operation.geometry)) return "";
  Describe(linear.desc, columns, &operation);
  operation.b.assign(weights.begin(), weights.end());
  ReadInput(&input, linear.desc, &operation);
  const bool is_open = options.open_extents;
  options = ReadOptions(&input, operation.geometry.OutputPixels() * columns, &operation);
  options.open_extents = is_open;
  if (input.OneIn(8)) {
    intact_certificate certificate = INTACT_CERTIFICATE_INIT;
    if (intact_conv_certificate(plan.get(), INTACT_PAIRING_FLATTENED, &certificate) != INTACT_OK)
      return intact_last_error();
  }
  if (input.OneIn(64)) {
    const auto args = verify::ArgsOf(operation, options, {});
    if (intact_conv_tune(plan.get(), is_open ? args.input : nullptr, 0, nullptr) != INTACT_OK) {
      return intact_last_error();
    }
  }
  WrongTensorValue wrong;
  Others<intact_conv_args> others;
  others.spoil = [&](intact_conv_args* args) {
    if (!features.Any() || !input.OneIn(4)) return false;
    wrong.Give(&input, operation, args);
    return true;
  };
  return Call<ConvApi>(&input, "intact_conv_run", operation, options, std::move(others))
      .Check(std::move(plan), tamper);
}

}  // namespace intact::fuzz

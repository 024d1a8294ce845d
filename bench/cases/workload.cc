#include "bench/cases/workload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "reference/contract/quantize.h"
#include "verify/problem/fill.h"

namespace intact::bench {
namespace {

constexpr std::array kExactOnly = {reference::Model::kExact};
constexpr std::array kMaddubsOnly = {reference::Model::kMaddubs};
constexpr std::array kEither = {reference::Model::kExact, reference::Model::kMaddubs};

constexpr int kFullRange = 255;
constexpr uint8_t kUnwritten = 0xa5;
// The sum of 9216 products of 255/8 and weights of any distribution stays below 2²⁴.
constexpr int kFloatDivisor = 8;

Bytes Allocate(int64_t size) {
  Bytes bytes;
  if (!bytes.Resize(static_cast<size_t>(size))) throw std::bad_alloc();
  return bytes;
}

reference::Gemm MakeGemm(const Case& c, int64_t m, int64_t n, int64_t k) {
  verify::Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.fill = c.weights.fill;
  problem.amax = kFullRange;
  problem.c_type = INTACT_U8;
  problem.scale = verify::ScaleKind::kChannel;
  problem.activation = INTACT_ACTIVATION_RELU;
  if (!c.shape.batch) return verify::MaterializeGemm(problem);
  problem.batch = c.shape.batch->items;
  problem.runtime_b = true;
  problem.b_type = c.shape.batch->b_type;
  problem.scale = verify::ScaleKind::kTensor;
  return verify::MaterializeGemm(problem);
}

/// If `c` has trained weights, sets the weights of `gemm`, which MakeGemm() returned, and the scales that fit
/// them.
void SetTrainedWeights(const Case& c, reference::Gemm* gemm) {
  if (!c.weights.trained) return;
  const Geometry g = c.shape.AsConvolution();
  const std::vector<int8_t> columns = DrawLike(*c.weights.trained, g.c_out, g.Taps(), g.Channels());
  gemm->b = reference::FromColumns(columns, gemm->n, gemm->k);
  gemm->scales.clear();
  verify::Problem problem;
  problem.n = gemm->n;
  problem.scale = verify::ScaleKind::kChannel;
  verify::FillScales({problem, gemm, {reference::Operands(*gemm)}});
}

/// The dimension of an image that `of` selects: height or width.
reference::Axis AxisOf(const Geometry& g, int64_t Extents::*of) {
  reference::Axis axis;
  axis.input = Extents(g.height, g.width).*of;
  axis.kernel = g.kernel.*of;
  axis.stride = g.stride.*of;
  axis.dilation = g.dilation;
  axis.pad_begin = g.PadBegin().*of;
  axis.pad_end = g.PadEnd().*of;
  axis.transposed = g.transposed;
  return axis;
}

/// The convolution, with the weights of the GEMM of its shape.
reference::Conv MakeConv(const Case& c) {
  const Geometry& g = *c.shape.conv;
  reference::Gemm weights = MakeGemm(c, 1, c.shape.n, c.shape.k);
  SetTrainedWeights(c, &weights);
  reference::Conv conv;
  static_cast<reference::Linear&>(conv) = static_cast<const reference::Linear&>(weights);
  conv.geometry.axes[1] = AxisOf(g, &Extents::height);
  conv.geometry.axes[2] = AxisOf(g, &Extents::width);
  conv.geometry.batch = g.batch;
  conv.geometry.input_channels = g.c_in;
  conv.geometry.output_channels = g.c_out;
  conv.geometry.groups = g.groups;
  conv.a = MakeGemm(c, g.batch * g.height * g.width, 1, g.c_in).a;
  for (int64_t n = 0, i = 0; n < weights.n; ++n) {
    for (int64_t k = 0; k < weights.k; ++k, ++i) {
      conv.b[static_cast<size_t>(i)] = weights.b[static_cast<size_t>(k * weights.n + n)];
    }
  }
  return conv;
}

/// An input as contenders take it, and as the reference takes it.
struct Source {
  Bytes bytes;
  Activations x;
};
struct Sources {
  Source ordinary, maximum;
};

Sources MakeIntegers(std::vector<uint8_t> ordinary, int largest) {
  std::vector<uint8_t> maximum(ordinary.size(), static_cast<uint8_t>(largest));
  const auto source = [](std::vector<uint8_t> a) -> Source {
    Bytes bytes = ToBytes(a);
    return {std::move(bytes), {std::move(a), {}, {}}};
  };
  return {source(std::move(ordinary)), source(std::move(maximum))};
}

Sources MakeFloats(std::vector<uint8_t> a, int largest) {
  for (uint8_t& value : a) value /= kFloatDivisor;
  Sources sources = MakeIntegers(std::move(a), largest / kFloatDivisor);
  for (Source* source : {&sources.ordinary, &sources.maximum}) {
    source->bytes = ToBytes(std::vector<float>(source->x.a.begin(), source->x.a.end()));
  }
  return sources;
}

/// Numbers that runs quantize, and the reference's quantization of them.
Sources MakeNumbers(const Shape& shape, Quantization quantization) {
  verify::Problem problem;  // of one column: its weights do not matter
  problem.m = shape.m;
  problem.k = shape.k;
  problem.quantization = quantization == Quantization::kRow ? INTACT_QUANTIZATION_DYNAMIC_ROWS
                                                            : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  problem.numbers = verify::Numbers::kNormal;
  reference::Gemm gemm = verify::MaterializeGemm(problem);
  const auto source = [&]() -> Source {
    return {ToBytes(gemm.a_source), {gemm.a, gemm.a_zero_points, gemm.a_scales}};
  };
  Sources sources = {source(), {}};
  const std::vector<float> ones(static_cast<size_t>(shape.m * shape.k), 1.0f);
  std::memcpy(gemm.a_source.data(), ones.data(), gemm.a_source.size());
  reference::QuantizeActivations(&gemm);
  sources.maximum = source();
  return sources;
}

/// Rows of the maximum are equal if these are: the item, and which taps lie inside the input.
using Likeness = std::pair<int64_t, std::vector<bool>>;
Likeness LikenessOf(const reference::Gemm& gemm, int64_t row) {
  return {gemm.has_runtime_b ? row / gemm.m : 0, {}};
}
Likeness LikenessOf(const reference::Conv& conv, int64_t row) {
  const reference::ConvGeometry& g = conv.geometry;
  const reference::Pixel pixel = reference::PixelOf(g, row);
  Likeness likeness = {};
  for (int64_t tap = 0; tap < g.Taps(); ++tap) {
    likeness.second.push_back(reference::InputRow(g, pixel, reference::TapOf(g, tap)) >= 0);
  }
  return likeness;
}

/// Compares numbers, not bytes: a peer's ReLU may return −0 for negative numbers.
bool AreEqualFloats(const uint8_t* a, const uint8_t* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i, a += sizeof(float), b += sizeof(float)) {
    float of_a = 0, of_b = 0;
    std::memcpy(&of_a, a, sizeof of_a);
    std::memcpy(&of_b, b, sizeof of_b);
    if (of_a != of_b) return false;
  }
  return true;
}

/// Rows of C: the pixels at the first, middle and last image row and column of outputs, from the first to the
/// last image. All rows of a batch.
std::vector<int64_t> SampledRows(const Shape& shape) {
  if (shape.batch) {
    std::vector<int64_t> all(static_cast<size_t>(shape.Rows()));
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }
  const Geometry g = shape.AsConvolution();
  const int64_t height = g.OutHeight(), width = g.OutWidth();
  constexpr int64_t kSamples = 9;
  std::vector<int64_t> rows;
  for (const int64_t y : {int64_t{0}, height / 2, height - 1}) {
    for (const int64_t x : {int64_t{0}, width / 2, width - 1}) {
      const int64_t image = std::ssize(rows) * g.batch / kSamples;
      rows.push_back((image * height + y) * width + x);
    }
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

/// Each item's B transposed from K×N to N×K.
std::vector<int8_t> ByColumns(const reference::Gemm& gemm) {
  std::vector<int8_t> columns(gemm.b.size());
  auto to = columns.begin();
  for (auto from = gemm.b.begin(); from != gemm.b.end(); from += gemm.k * gemm.n) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      for (int64_t k = 0; k < gemm.k; ++k) *to++ = from[k * gemm.n + n];
    }
  }
  return columns;
}

}  // namespace

Workload::Workload(const Case& c) : shape_(c.shape), ordinary_probes_(SampledRows(c.shape)) {
  if (shape_.blocks) {
    blocks_.emplace(shape_);
    return;
  }
  if (shape_.conv) {
    operation_ = MakeConv(c);
  } else {
    reference::Gemm gemm = MakeGemm(c, shape_.m, shape_.n, shape_.k);
    SetTrainedWeights(c, &gemm);
    operation_ = std::move(gemm);
  }
  if (shape_.batch) runtime_b_ = ToBytes(shape_.batch->b_by_columns ? ByColumns(gemm()) : gemm().b);
  FindProbes();
  Probes probes(operation_);
  Case whose = c;
  for (const char* peer : {"", "any"}) {
    whose.peer = peer;
    for (const Format& format : FormatsOf(whose)) {
      if (InputFor(format).ordinary.size() == 0) AddInput(format.quantization, &probes);
    }
  }
  sums_ = probes.Accumulate();
}

/// Rows of the maximum with equal Likeness share a probe.
void Workload::FindProbes() {
  std::map<Likeness, size_t> probes;
  for (int64_t row = 0; row < shape_.Rows(); ++row) {
    const auto likeness = [&](const auto& operation) { return LikenessOf(operation, row); };
    const auto [found, is_new] = probes.emplace(reference::VisitLinear(likeness, operation_), probes.size());
    if (is_new) maximum_probes_.push_back(row);
    like_.push_back(found->second);
  }
}

/// Adds the two inputs for `quantization`, and their probes.
void Workload::AddInput(Quantization quantization, Probes* probes) {
  std::vector<uint8_t> a = operation().a;
  Sources sources = IsDynamic(quantization)               ? MakeNumbers(shape_, quantization)
                    : quantization == Quantization::kNone ? MakeFloats(std::move(a), kFullRange)
                                                          : MakeIntegers(std::move(a), kFullRange);
  Input& input = inputs_.at(static_cast<size_t>(quantization));
  input.ordinary = std::move(sources.ordinary.bytes);
  input.maximum = std::move(sources.maximum.bytes);
  input.first_probe = probes->count();
  const auto add = [&](const Activations& x, const std::vector<int64_t>& rows) {
    probes->Add(operation_, x, rows);
    if (x.scales.empty()) return;
    for (const int64_t row : rows) input.a_scales.push_back(x.scales[static_cast<size_t>(row)]);
  };
  add(sources.ordinary.x, ordinary_probes_);
  add(sources.maximum.x, maximum_probes_);
}

core::PostOps Workload::PostOpsOf(const Format& format) const {
  const bool is_float_conv = format.quantization == Quantization::kNone && shape_.conv;
  return format.c_type == INTACT_U8 || is_float_conv ? operation().post_ops : core::PostOps();
}

/// The epilogue for the probes of the format's input.
reference::Linear Workload::EpilogueOf(const Format& format) const {
  reference::Linear epilogue;
  epilogue.c_type = format.c_type;
  epilogue.post_ops = PostOpsOf(format);
  epilogue.scales = operation().scales;
  if (format.quantization == Quantization::kNone) epilogue.scales = {1.0f};
  epilogue.a_scales = InputFor(format).a_scales;
  return epilogue;
}

std::span<const int8_t> Workload::b() const {
  if (blocks_) return {reinterpret_cast<const int8_t*>(blocks_->b().data()), blocks_->b().size()};
  if (runtime_b_.size() == 0) return operation().b;
  return {reinterpret_cast<const int8_t*>(runtime_b_.data()), runtime_b_.size()};
}

Bytes Workload::NewC(intact_type c_type) const {
  Bytes c = Allocate(shape_.Rows() * shape_.n * core::BytesOf(c_type));
  std::fill_n(c.data(), c.size(), kUnwritten);  // an earlier C's memory may hold the right result
  return c;
}

std::optional<reference::Model> Workload::Recognise(Contender* contender, const Format& format,
                                                    std::span<const reference::Model> models) const {
  const Input& input = InputFor(format);
  Bytes c = NewC(format.c_type);
  Bytes c_of_maximum = NewC(format.c_type);
  if (!contender->Run(input.ordinary.data(), c.data()) ||
      !contender->Run(input.maximum.data(), c_of_maximum.data())) {
    return std::nullopt;
  }
  const auto found = std::ranges::find_if(
      models, [&](reference::Model model) { return Equals(c.data(), c_of_maximum.data(), format, model); });
  return found == models.end() ? std::nullopt : std::optional(*found);
}

bool Workload::Equals(const uint8_t* c, const uint8_t* c_of_maximum, const Format& format,
                      reference::Model model) const {
  const Input& input = InputFor(format);
  const std::vector<int32_t>& all = model == reference::Model::kExact ? sums_.exact : sums_.maddubs;
  const auto begin = all.begin() + static_cast<int64_t>(input.first_probe) * shape_.n;
  const auto probes = static_cast<int64_t>(ordinary_probes_.size() + maximum_probes_.size());
  const std::vector<uint8_t> expected =
      reference::Outputs(EpilogueOf(format), shape_.n, {begin, begin + probes * shape_.n});
  const int64_t row_bytes = shape_.n * core::BytesOf(format.c_type);
  const auto is_row = [&](const uint8_t* actual, int64_t row, size_t probe) {
    const uint8_t* const found = actual + row * row_bytes;
    const uint8_t* const wanted = expected.data() + static_cast<int64_t>(probe) * row_bytes;
    return format.quantization == Quantization::kNone ? AreEqualFloats(found, wanted, shape_.n)
                                                      : std::equal(found, found + row_bytes, wanted);
  };
  for (size_t i = 0; i < ordinary_probes_.size(); ++i) {
    if (!is_row(c, ordinary_probes_[i], i)) return false;
  }
  for (int64_t row = 0; row < shape_.Rows(); ++row) {
    const size_t probe = ordinary_probes_.size() + like_[static_cast<size_t>(row)];
    if (!is_row(c_of_maximum, row, probe)) return false;
  }
  return true;
}

std::span<const reference::Model> AdmissibleModels(const Case& c) {
  if (c.format.quantization == Quantization::kNone) return kExactOnly;
  if (!c.peer.empty()) return kEither;
  return kernels::PairsSaturate(c.isa, c.mode) ? std::span(kMaddubsOnly) : kExactOnly;
}

}  // namespace intact::bench

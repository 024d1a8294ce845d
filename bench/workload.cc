#include "bench/workload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "kernels/codegen/dispatch.h"
#include "verify/fill.h"

namespace intact::bench {
namespace {

constexpr std::array kExactOnly = {reference::Model::kExact};
constexpr std::array kTripleOnly = {reference::Model::kTriple};
constexpr std::array kEither = {reference::Model::kExact, reference::Model::kTriple};

constexpr int kFullRange = 255;
constexpr uint8_t kUnwritten = 0xa5;
// Σ of 9216 products of 255/8 and weights of any of the distributions stays below 2²⁴.
constexpr int kFloatDivisor = 8;

Bytes Allocate(int64_t size) {
  Bytes bytes;
  if (!bytes.Resize(static_cast<size_t>(size))) throw std::bad_alloc();
  return bytes;
}

/// `values` as they are, or as floats.
Bytes ToBytes(const std::vector<uint8_t>& values, bool is_float) {
  if (!is_float) {
    Bytes bytes = Allocate(std::ssize(values));
    std::ranges::copy(values, bytes.data());
    return bytes;
  }
  Bytes bytes = Allocate(std::ssize(values) * static_cast<int64_t>(sizeof(float)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

int LargestActivation(const Case& c) { return c.amax != 0 ? c.amax : kFullRange; }

reference::Gemm MakeGemm(const Case& c, int64_t m, int64_t n, int64_t k) {
  verify::Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.fill = c.weights.fill;
  problem.amax = LargestActivation(c);
  problem.c_type = INTACT_U8;
  problem.scale = verify::ScaleKind::kChannel;
  problem.activation = INTACT_ACTIVATION_RELU;
  return verify::Materialize(problem);
}

/// Gives `gemm`, a problem of MakeGemm(), the weights of a trained layer, if `c` has them; and the scales
/// that fit them.
void SetTrainedWeights(const Case& c, reference::Gemm* gemm) {
  if (!c.weights.trained) return;
  const Geometry g = c.shape.AsConvolution();
  const std::vector<int8_t> columns = DrawLike(*c.weights.trained, g.c_out, g.Taps(), g.Channels());
  gemm->b = reference::FromColumns(columns, gemm->n, gemm->k);
  gemm->scales.clear();
  verify::Problem problem;
  problem.n = gemm->n;
  problem.scale = verify::ScaleKind::kChannel;
  verify::FillEpilogue(problem, {gemm, 1}, gemm);
}

/// What a GEMM and a convolution have alike.
const reference::Operation& Common(const reference::Operation& operation) { return operation; }

/// The dimension of an image whose extents `of` tells.
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

/// With the weights that the GEMM of the same shape has, and as many activations as it takes.
reference::Conv MakeConv(const Case& c) {
  const Geometry& g = *c.shape.conv;
  reference::Gemm weights = MakeGemm(c, 1, c.shape.n, c.shape.k);
  SetTrainedWeights(c, &weights);
  reference::Conv conv;
  static_cast<reference::Operation&>(conv) = Common(weights);
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

/// Some rows of the GEMMs that are computed, next to each other, on activations `a`.
std::vector<reference::Gemm> Lower(reference::Gemm gemm, const std::vector<uint8_t>& a,
                                   const std::vector<int64_t>& rows) {
  gemm.m = std::ssize(rows);
  gemm.a.clear();
  for (const int64_t row : rows) {
    const auto begin = a.begin() + row * gemm.k;
    gemm.a.insert(gemm.a.end(), begin, begin + gemm.k);
  }
  return {std::move(gemm)};
}
std::vector<reference::Gemm> Lower(reference::Conv conv, std::vector<uint8_t> a,
                                   const std::vector<int64_t>& rows) {
  conv.a = std::move(a);
  return reference::Lower(conv, rows);
}

/// The taps of a row of the output that are inside the input.
std::vector<bool> TapsInside(const reference::Gemm& /*gemm*/, int64_t /*row*/) { return {true}; }
std::vector<bool> TapsInside(const reference::Conv& conv, int64_t row) {
  const reference::ConvGeometry& g = conv.geometry;
  const reference::Pixel pixel = reference::PixelOf(g, row);
  std::vector<bool> inside;
  for (int64_t tap = 0; tap < g.Taps(); ++tap) {
    inside.push_back(reference::InputRow(g, pixel, reference::TapOf(g, tap)) >= 0);
  }
  return inside;
}

/// As numbers: a peer's ReLU may make −0 of what is negative.
bool AreEqualFloats(const uint8_t* a, const uint8_t* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i, a += sizeof(float), b += sizeof(float)) {
    float of_a = 0, of_b = 0;
    std::memcpy(&of_a, a, sizeof of_a);
    std::memcpy(&of_b, b, sizeof of_b);
    if (of_a != of_b) return false;
  }
  return true;
}

/// First, middle and last image row and column of outputs, from the first to the last image, as rows of C.
std::vector<int64_t> SampledRows(const Shape& shape) {
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

}  // namespace

Workload::Workload(const Case& c) : shape_(c.shape), ordinary_probes_(SampledRows(c.shape)) {
  if (shape_.conv) {
    operation_ = MakeConv(c);
  } else {
    reference::Gemm gemm = MakeGemm(c, shape_.m, shape_.n, shape_.k);
    SetTrainedWeights(c, &gemm);
    operation_ = std::move(gemm);
  }
  FindProbes();
  const int largest = LargestActivation(c);
  std::vector<uint8_t> a = std::visit([](const auto& operation) { return operation.a; }, operation_);
  int8_ = MakeInput(a, static_cast<uint8_t>(largest), false);
  if (!shape_.conv && !c.weights.trained) return;  // see TypesOf()
  for (uint8_t& value : a) value /= kFloatDivisor;
  float_ = MakeInput(std::move(a), static_cast<uint8_t>(largest / kFloatDivisor), true);
}

/// Rows of the maximum that have the same taps inside the input are equal.
void Workload::FindProbes() {
  std::map<std::vector<bool>, size_t> probes;
  for (int64_t row = 0; row < shape_.m; ++row) {
    const auto inside = [&](const auto& operation) { return TapsInside(operation, row); };
    const auto [found, is_new] = probes.emplace(std::visit(inside, operation_), probes.size());
    if (is_new) maximum_probes_.push_back(row);
    like_.push_back(found->second);
  }
}

Workload::Input Workload::MakeInput(std::vector<uint8_t> ordinary, uint8_t largest, bool is_float) {
  std::vector<uint8_t> maximum(ordinary.size(), largest);
  Input input;
  input.ordinary = ToBytes(ordinary, is_float);
  input.maximum = ToBytes(maximum, is_float);
  const auto lower = [&](std::vector<uint8_t> a, const std::vector<int64_t>& rows) {
    return std::visit([&](const auto& operation) { return Lower(operation, std::move(a), rows); },
                      operation_);
  };
  std::vector<reference::Gemm> groups = lower(std::move(ordinary), ordinary_probes_);
  const std::vector<reference::Gemm> of_maximum = lower(std::move(maximum), maximum_probes_);
  const size_t count = ordinary_probes_.size() + maximum_probes_.size();
  input.exact.resize(count * static_cast<size_t>(shape_.n));
  input.triple.resize(input.exact.size());
  int64_t first_column = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    reference::Gemm& probe = groups[i];
    probe.a.insert(probe.a.end(), of_maximum[i].a.begin(), of_maximum[i].a.end());
    probe.m = static_cast<int64_t>(count);
    const reference::Operands operands(probe);
    const auto fill_in = [&](reference::Model model, std::vector<int32_t>* all) {
      const std::vector<int32_t> of_group = reference::Accumulators(operands, model);
      for (int64_t row = 0; row < probe.m; ++row) {
        std::copy_n(of_group.begin() + row * probe.n, probe.n, all->begin() + row * shape_.n + first_column);
      }
    };
    fill_in(reference::Model::kExact, &input.exact);
    fill_in(reference::Model::kTriple, &input.triple);
    first_column += probe.n;
  }
  return input;
}

Bytes Workload::NewC(intact_type c_type) const {
  Bytes c = Allocate(shape_.m * shape_.n * reference::ElementSize(c_type));
  std::fill_n(c.data(), c.size(), kUnwritten);  // an earlier C's memory may hold the right result
  return c;
}

std::optional<reference::Model> Workload::Recognise(Contender* contender, intact_type c_type,
                                                    std::span<const reference::Model> models) const {
  const Input& input = InputFor(c_type);
  Bytes c = NewC(c_type);
  Bytes c_of_maximum = NewC(c_type);
  if (!contender->Run(input.ordinary.data(), c.data()) ||
      !contender->Run(input.maximum.data(), c_of_maximum.data())) {
    return std::nullopt;
  }
  const auto found = std::ranges::find_if(
      models, [&](reference::Model model) { return Equals(c.data(), c_of_maximum.data(), c_type, model); });
  return found == models.end() ? std::nullopt : std::optional(*found);
}

bool Workload::Equals(const uint8_t* c, const uint8_t* c_of_maximum, intact_type c_type,
                      reference::Model model) const {
  reference::Operation epilogue =
      std::visit([](const auto& operation) { return Common(operation); }, operation_);
  epilogue.c_type = c_type;
  if (c_type == INTACT_F32) epilogue.scales = {1.0f};
  const Input& input = InputFor(c_type);
  const std::vector<uint8_t> expected =
      reference::Outputs(epilogue, shape_.n, model == reference::Model::kTriple ? input.triple : input.exact);
  const int64_t row_bytes = shape_.n * reference::ElementSize(c_type);
  const auto is_row = [&](const uint8_t* actual, int64_t row, size_t probe) {
    const uint8_t* const begin = actual + row * row_bytes;
    const uint8_t* const wanted = expected.data() + static_cast<int64_t>(probe) * row_bytes;
    return c_type == INTACT_F32 ? AreEqualFloats(begin, wanted, shape_.n)
                                : std::equal(begin, begin + row_bytes, wanted);
  };
  for (size_t i = 0; i < ordinary_probes_.size(); ++i) {
    if (!is_row(c, ordinary_probes_[i], i)) return false;
  }
  for (int64_t row = 0; row < shape_.m; ++row) {
    const size_t probe = ordinary_probes_.size() + like_[static_cast<size_t>(row)];
    if (!is_row(c_of_maximum, row, probe)) return false;
  }
  return true;
}

std::span<const reference::Model> AdmissibleModels(const Case& c) {
  if (c.c_type == INTACT_F32) return kExactOnly;
  if (!c.peer.empty()) return kEither;
  if (kernels::PairsSaturate(c.isa, c.mode)) return kTripleOnly;
  return kExactOnly;
}

}  // namespace intact::bench

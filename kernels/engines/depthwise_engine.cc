#include "kernels/engines/depthwise_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/portable_engine.h"

namespace intact::kernels {
namespace {

constexpr int64_t kVectors = 4;        // vectors of int32 in a vector of channels
constexpr int64_t kAdjacent = 4;       // channels that stay adjacent in quartered vectors
constexpr int64_t kMostChannels = 64;  // of a vector

// The kernel's epilogue needs no zero points of weights: they are subtracted from the weights.
EpilogueSpec KernelEpilogue(const KernelData& data) {
  EpilogueSpec epilogue = data.epilogue;
  epilogue.has_b_zero_points = epilogue.has_one_b_zero_point = false;
  return epilogue;
}

// Cycles for one pixel's vector of channels. Unpacks and packs of zmm have one port, and a quarter of all
// other instructions compete for it: measured on Golden Cove.
double VectorCost(const DepthwiseKernelSpec& spec, const DepthwiseInterleaving& interleaving) {
  constexpr double kPacks = 3, kEpilogue = 14;
  const DepthwiseInterleaving::Cost& cost = interleaving.cost();
  const double shuffles = cost.unpacks + kPacks, others = cost.dots + kEpilogue;
  if (jit::VectorBytes(spec.isa) < 64) return (shuffles + others) / 3;
  return std::max((shuffles + others) / 2, shuffles + 0.25 * others);
}

jit::DotKind KernelDot(const KernelData& data, core::Isa isa) {
  // A weight minus its zero point is int16.
  if (data.epilogue.has_b_zero_points) return jit::DotKind::kWide;
  // A tap has one channel, so no pairs lie within a tap.
  const bool pairs_taps = data.problem.pairing == INTACT_PAIRING_FLATTENED;
  return DotOf(isa, pairs_taps ? data.problem.mode : INTACT_EXACT);
}

}  // namespace

DepthwiseEngine::DepthwiseEngine(const KernelData& data, const TapGrid& taps, core::Isa isa,
                                 int64_t row_pixels)
    : data_(data),
      taps_(taps),
      row_pixels_(row_pixels),
      spec_{VectorIsa(isa), KernelDot(data, isa), {}, false, KernelEpilogue(data)},
      v_(jit::VectorBytes(spec_.isa)),
      line_pixels_(kLineElements / taps.pixel_stride_bytes),
      least_line_pixels_(CeilDivide(v_, taps.pixel_stride_bytes)) {
  // A block of 3 pixels would share less than a tail of a block of 4.
  const int most = DepthwisePixels(spec_.isa);
  spec_ = SpecFor(taps, row_pixels == 1 || row_pixels == 2 ? static_cast<int>(row_pixels) : most);
}

Result<std::unique_ptr<DepthwiseEngine>> DepthwiseEngine::Create(const KernelData& data, const TapGrid& taps,
                                                                 core::Isa isa, int64_t row_pixels) {
  std::unique_ptr<DepthwiseEngine> engine(new DepthwiseEngine(data, taps, isa, row_pixels));
  if (core::IsCompiled(isa)) {
    engine->MakePortable();
    return engine;
  }
  const bool is_flat = engine->IsFlatBetter();
  if (!is_flat || !engine->RunsAllFlat()) {
    RETURN_IF_ERROR(engine->Make(engine->spec_, taps, &engine->by_channels_));
  }
  if (is_flat) {
    engine->flat_.step_pixels = engine->step_pixels();
    RETURN_IF_ERROR(engine->Make(engine->FlatSpec(), engine->FlatTaps(), &engine->flat_));
  }
  return engine;
}

int64_t DepthwiseEngine::step_pixels() const { return std::lcm(data_.n, v_) / data_.n; }

TapGrid DepthwiseEngine::FlatTaps() const {
  TapGrid flat = taps_;
  flat.pixel_stride_bytes = data_.n * step_pixels();
  return flat;
}

DepthwiseKernelSpec DepthwiseEngine::SpecFor(const TapGrid& taps, int pixels) const {
  DepthwiseKernelSpec spec = spec_;
  spec.loops = Loops();
  TapGrid grid = taps;
  if (spec.loops) {
    grid.rows = {1, 1};
    grid.columns = {0};
  }
  spec.taps = grid.Shape(pixels);
  return spec;
}

DepthwiseKernelSpec DepthwiseEngine::FlatSpec() const {
  return SpecFor(FlatTaps(), DepthwisePixels(spec_.isa));
}

bool DepthwiseEngine::Loops() const { return taps_.taps() > Costs().layout.most_unrolled_taps; }

// Taps in their order, for a kernel that loops.
DepthwiseEngine::GroupWeights DepthwiseEngine::WeightsInOrder() const {
  const auto size = static_cast<size_t>(TapsPerGroup(spec_.dot));
  GroupWeights weights;
  for (int64_t tap = 0; tap < taps_.taps(); ++tap) {
    if (weights.empty() || weights.back().size() == size) weights.emplace_back();
    weights.back().push_back(static_cast<int>(tap));
  }
  weights.back().resize(size, -1);
  return weights;
}

const DepthwiseInterleaving& DepthwiseEngine::InterleavingOf(const DepthwiseKernelSpec& spec) {
  return *interleavings_.emplace_back(spec.Interleaving());
}

bool DepthwiseEngine::IsFlatBetter() {
  constexpr int64_t kMostPixels = 8;  // with more, a row has too few steps
  constexpr double kUnaligned = 1.1;  // cost factor of pixels that are not whole vectors
  if (taps_.pixel_stride_bytes % data_.n != 0 || data_.n % v_ == 0) return false;
  if (spec_.epilogue.has_residual()) return false;  // too rare to support
  if (RunsAllFlat()) return true;
  if (taps_.pixel_stride_bytes != data_.n || step_pixels() > kMostPixels) return false;
  const auto vectors = static_cast<double>(data_.n) / static_cast<double>(v_);
  if (spec_.loops) return vectors < kUnaligned * std::ceil(vectors);  // neighbours share nothing either way
  const DepthwiseKernelSpec flat = FlatSpec();
  return VectorCost(flat, InterleavingOf(flat)) * vectors <
         VectorCost(spec_, InterleavingOf(spec_)) * kUnaligned * std::ceil(vectors);
}

std::string DepthwiseEngine::KernelName() const {
  if (IsPortable()) return "u8s8" + KernelEpilogue(data_).Name() + "_depthwise_portable";
  return flat_.kernel ? FlatSpec().Name() : spec_.Name();
}

void DepthwiseEngine::MakePortable() {
  const int64_t taps = taps_.taps();
  for (int64_t tap = 0; tap < taps; ++tap) {
    portable_.offsets.push_back(taps_.Offset(tap));
    for (int64_t n = 0; n < data_.n; ++n) portable_.weights.push_back(static_cast<int16_t>(Weight(tap, n)));
  }
}

Error DepthwiseEngine::Make(const DepthwiseKernelSpec& spec, const TapGrid& taps, Cover* cover) {
  if (spec.loops) {
    for (int64_t tap = 0; tap < taps.taps(); ++tap) cover->taps.push_back(taps.Offset(tap));
    cover->taps.resize(static_cast<size_t>(RoundUp(taps.taps(), TapsPerGroup(spec.dot))), cover->taps.back());
    for (int pixel = 0; pixel < spec.pixels(); ++pixel) {
      cover->places.push_back(pixel * taps.pixel_stride_bytes);
    }
  } else {
    cover->places = taps.PlaceOffsets(spec.pixels());
  }
  cover->block_pixels = spec.pixels();
  cover->pixel_stride_bytes = taps.pixel_stride_bytes;
  cover->block_stride_bytes = spec.pixels() * taps.pixel_stride_bytes;
  const int64_t line = cover->step_pixels * data_.n;
  for (int64_t start = 0; start < line; start += v_) cover->starts.push_back(start);
  if (cover->step_pixels > 1) {
    // The last vector of any row ends with a pixel.
    cover->starts.push_back(RoundUp(v_, data_.n) - v_);
  } else {
    cover->starts.back() = std::max<int64_t>(data_.n - v_, 0);
  }
  // The kernels share the interleaving, so it is made first.
  const GroupWeights& weights = spec.loops ? WeightsInOrder() : InterleavingOf(spec).weights();
  ASSIGN_OR_RETURN(cover->kernel, GetDepthwiseKernel(spec));
  RETURN_IF_ERROR(MakeTails(spec, cover));
  return Fill(weights, cover);
}

Error DepthwiseEngine::MakeTails(const DepthwiseKernelSpec& spec, Cover* cover) const {
  const std::vector<int64_t> usual = UsualPixels(*cover);
  for (int tail = 2; tail < spec.pixels(); ++tail) {
    const auto has_tail = [&](int64_t pixels) { return pixels % spec.pixels() == tail; };
    if (!usual.empty() && std::ranges::none_of(usual, has_tail)) continue;
    ASSIGN_OR_RETURN(cover->tails.at(static_cast<size_t>(tail)), GetDepthwiseTail(spec, tail));
  }
  return {};
}

std::vector<int64_t> DepthwiseEngine::UsualPixels(const Cover& cover) const {
  if (row_pixels_ == 0) return {};
  if (cover.step_pixels == 1) return {row_pixels_};
  // Lines with gaps have other pixels, and parts.
  const int64_t elements = row_pixels_ * data_.n;
  if (taps_.pixel_stride_bytes != data_.n || elements < v_) return {};
  std::vector<int64_t> pixels = {1};
  for (const int64_t start : cover.starts) {
    if (start + v_ <= elements) pixels.push_back(FlatPixels(start, elements));
  }
  return pixels;
}

Error DepthwiseEngine::Fill(const GroupWeights& weights, Cover* cover) const {
  Error out_of_memory{INTACT_OUT_OF_MEMORY, "no memory for depthwise weights"};
  const size_t vectors = cover->starts.size();
  cover->record_bytes = kVectors * v_ * (1 + std::ssize(weights));
  if (!cover->records.Resize(vectors * static_cast<size_t>(cover->record_bytes))) return out_of_memory;
  std::vector<int8_t> columns(static_cast<size_t>(data_.n * data_.k));
  CopyColumns(data_.weights, columns.data());
  for (size_t i = 0; i < vectors; ++i) {
    FillRecord(weights, columns.data(), cover->starts[i],
               cover->records.data() + static_cast<int64_t>(i) * cover->record_bytes);
  }
  const auto arrange = [&](const void* from, AlignedBuffer<uint32_t>* to) {
    if (from == nullptr) return true;
    if (!to->Resize(vectors * static_cast<size_t>(v_))) return false;
    Arrange(from, *cover, reinterpret_cast<uint8_t*>(to->data()));
    return true;
  };
  if (!arrange(data_.problem.Factors(), &cover->factors) ||
      !arrange(data_.problem.Addends(), &cover->addends)) {
    return out_of_memory;
  }
  return {};
}

// Copies the 4-byte values of the channels of a vector, which begins at `start` in the line of channels.
void DepthwiseEngine::CopyVector(const void* from, int64_t start, bool is_quartered,
                                 uint8_t* to) const noexcept {
  int64_t channel = ChannelAt(start, 0);
  for (int64_t i = 0; i < v_;) {
    // Adjacent channels that stay adjacent.
    const int64_t count =
        std::min({v_ - i, data_.n - channel, is_quartered ? kAdjacent - i % kAdjacent : v_});
    CopyRow(static_cast<const uint8_t*>(ColumnAt(from, channel)), 4 * count,
            to + 4 * (is_quartered ? QuarteredIndex(i, v_ / kVectors) : i));
    i += count;
    channel = channel + count == data_.n ? 0 : channel + count;
  }
}

void DepthwiseEngine::Arrange(const void* from, const Cover& cover, uint8_t* to) const noexcept {
  for (const int64_t start : cover.starts) {
    CopyVector(from, start, spec_.is_quartered(), to);
    to += 4 * v_;
  }
}

DepthwiseColumns DepthwiseEngine::MakePerRunColumnConstants(const PerRunColumnConstants& columns,
                                                            uint8_t* to) const noexcept {
  DepthwiseColumns made{columns, to};
  for (const Cover* const cover : {&by_channels_, &flat_}) {
    std::copy_n(cover->records.data(), cover->records.bytes(), to);
    for (size_t i = 0; i < cover->starts.size(); ++i) {
      CopyVector(columns.compensation, cover->starts[i], true,
                 to + static_cast<int64_t>(i) * cover->record_bytes);
    }
    if (cover->factors.size() != 0) Arrange(columns.factors, *cover, to + RecordBytes(*cover));
    to += RunBytes(*cover);
  }
  return made;
}

int32_t DepthwiseEngine::Weight(int64_t tap, int64_t channel) const {
  return data_.weights.At(tap, channel) - data_.problem.WeightZeroPoint(channel);
}

void DepthwiseEngine::FillRecord(const GroupWeights& weights, const int8_t* columns, int64_t start,
                                 uint8_t* record) const {
  constexpr size_t kSlots = 4;  // of a group
  struct Channel {
    const int8_t* column;
    int32_t zero_point;
    int64_t place;  // in bytes
  };
  struct Slot {
    int tap = 0, shift = 0;
    uint32_t mask = 0;  // of a weight; 0 without a tap
  };
  const int bits = spec_.dot == jit::DotKind::kWide ? 16 : 8;
  CopyVector(data_.compensation.data(), start, true, record);
  std::array<Channel, kMostChannels> channels;
  for (int64_t i = 0; i < v_; ++i) {
    const int64_t channel = ChannelAt(start, i);
    channels[static_cast<size_t>(i)] = {columns + channel * data_.k, data_.problem.WeightZeroPoint(channel),
                                        QuarteredIndex(i, v_ / kVectors) * 4};
  }
  for (const std::vector<int>& taps : weights) {
    record += kVectors * v_;
    std::array<Slot, kSlots> slots;
    for (size_t i = 0; i < taps.size(); ++i) {
      if (taps[i] >= 0) slots[i] = {taps[i], bits * static_cast<int>(i), (1U << bits) - 1};
    }
    for (const Channel& channel : std::span(channels).first(static_cast<size_t>(v_))) {
      uint32_t dword = 0;
      for (const Slot& slot : slots) {
        dword |= (static_cast<uint32_t>(channel.column[slot.tap] - channel.zero_point) & slot.mask)
                 << slot.shift;
      }
      std::memcpy(record + channel.place, &dword, sizeof(dword));
    }
  }
}

int64_t DepthwiseEngine::packed_bytes() const {
  int64_t bytes = 0;
  for (const Cover* cover : {&by_channels_, &flat_}) {
    bytes += static_cast<int64_t>(cover->records.bytes() + cover->factors.bytes() + cover->addends.bytes() +
                                  cover->taps.size() * sizeof(int64_t));
  }
  return bytes + static_cast<int64_t>(portable_.offsets.size() * sizeof(int64_t) +
                                      portable_.weights.size() * sizeof(int16_t));
}

void DepthwiseEngine::RunRow(const DepthwiseRow& row, int64_t channel_begin,
                             int64_t channel_end) const noexcept {
  const bool has_all = channel_begin == 0 && channel_end == data_.n;
  if (IsPortable()) {
    RunPortably(row, channel_begin, channel_end);
  } else if (has_all && RunsFlat(row)) {
    RunFlat(row);
  } else {
    RunByChannels(row, channel_begin, channel_end);
  }
  const LinearProblem& problem = data_.problem;
  if (problem.lookup_table.empty()) return;
  LookUp(problem.lookup_table.data(), core::LowestOf(problem.c_type), row.output, 0, row.pixels,
         channel_begin, channel_end - channel_begin);
}

void DepthwiseEngine::RunPortably(const DepthwiseRow& row, int64_t channel_begin,
                                  int64_t channel_end) const noexcept {
  constexpr int64_t kChannels = 64;
  std::array<uint32_t, kChannels> sums;
  RunBuffers buffers;
  buffers.output = row.output;
  buffers.columns = row.columns;
  for (int64_t pixel = 0; pixel < row.pixels; ++pixel) {
    for (int64_t first = channel_begin; first < channel_end; first += kChannels) {
      const int64_t channels = std::min(kChannels, channel_end - first);
      std::copy_n(data_.CompensationOf(buffers) + first, channels, sums.begin());
      for (size_t tap = 0; tap < portable_.offsets.size(); ++tap) {
        const uint8_t* const a =
            row.pixel0 + pixel * taps_.pixel_stride_bytes + portable_.offsets[tap] + first;
        const int16_t* const weights = portable_.weights.data() + static_cast<int64_t>(tap) * data_.n + first;
        for (int64_t i = 0; i < channels; ++i) {
          sums[static_cast<size_t>(i)] += static_cast<uint32_t>(int32_t{a[i]} * int32_t{weights[i]});
        }
      }
      StoreOutputs(data_, {sums.data(), static_cast<size_t>(channels)},
                   data_.EpilogueAt(buffers, pixel, first), row.output.C(pixel, first));
    }
  }
}

DepthwiseRow DepthwiseEngine::From(const DepthwiseRow& row, int64_t pixel, int64_t channel) const {
  return {row.pixel0 + pixel * taps_.pixel_stride_bytes + channel, row.pixels - pixel,
          row.output.EveryRow(1, pixel).FromColumn(channel), row.columns};
}

void DepthwiseEngine::RunVector(const Cover& cover, size_t vector, const DepthwiseRow& row) const noexcept {
  DepthwiseKernelArgs args;
  args.input = row.pixel0;
  args.places = cover.places.data();
  args.taps = cover.taps.data();
  args.groups = std::ssize(cover.taps) / TapsPerGroup(spec_.dot);
  args.pixel_stride_bytes = cover.pixel_stride_bytes;
  args.block_stride_bytes = cover.block_stride_bytes;
  args.pixels = row.pixels;
  args.tail = cover.tails[static_cast<size_t>(row.pixels & (cover.block_pixels - 1))].get();
  const uint8_t* records = cover.records.data();
  const void* factors = cover.factors.size() != 0 ? cover.factors.data() : nullptr;
  if (row.columns != nullptr) {
    records = row.columns->covers + (&cover == &flat_ ? RunBytes(by_channels_) : 0);
    if (factors != nullptr) factors = records + RecordBytes(cover);
  }
  args.record = records + static_cast<int64_t>(vector) * cover.record_bytes;
  args.c = row.output.c;
  args.c_stride_bytes = row.output.c_stride_bytes;
  args.epilogue.constants = &data_.constants;
  args.epilogue.residual = row.output.residual;
  args.epilogue.residual_stride_bytes = row.output.residual_stride_bytes;
  const int64_t column = static_cast<int64_t>(vector) * v_;
  args.epilogue.factors = ColumnAt(factors, column);
  if (cover.addends.size() != 0) args.epilogue.addends = cover.addends.data() + column;
  cover.kernel(&args);
}

void DepthwiseEngine::RunByChannels(const DepthwiseRow& row, int64_t channel_begin,
                                    int64_t channel_end) const noexcept {
  for (int64_t done = channel_begin; done < channel_end; done += v_) {
    const auto i = static_cast<size_t>(done / v_);
    const int64_t start = by_channels_.starts[i];
    // Not in place: channels before the first belong to another thread, and if C is the residual, channels
    // that are computed again would read it overwritten.
    if (data_.n < v_ || start < channel_begin || (row.output.residual != nullptr && start < done)) {
      RunThroughScratch(i, done, row);
    } else {
      RunVector(by_channels_, i, From(row, 0, start));
    }
  }
}

bool DepthwiseEngine::RunsFlat(const DepthwiseRow& row) const {
  if (!flat_.kernel) return false;
  return RunsAllFlat() || row.output.c_stride_bytes == data_.n * data_.element_bytes();
}

void DepthwiseEngine::RunFlat(const DepthwiseRow& row) const noexcept {
  const int64_t element = data_.element_bytes();
  const int64_t pixel_bytes = data_.n * element;
  const int64_t step = taps_.pixel_stride_bytes;  // elements from a pixel to the next
  const bool is_dense = step == data_.n && row.output.c_stride_bytes == pixel_bytes;
  if (is_dense && row.pixels * data_.n >= v_) return RunLine(row, row.pixels * data_.n);
  alignas(64) std::array<uint8_t, kLineElements * 4> line;  // 4-byte elements
  for (int64_t pixel = 0; pixel < row.pixels; pixel += line_pixels_) {
    // The last pixels fill a vector too, if the row does, so that nothing beyond the row is read.
    const DepthwiseRow remaining =
        From(row, std::max<int64_t>(std::min(pixel, row.pixels - least_line_pixels_), 0), 0);
    const int64_t pixels = std::min(line_pixels_, remaining.pixels);
    DepthwiseRow staged = remaining;
    staged.output.c = line.data();
    RunLine(staged, std::max(v_, (pixels - 1) * step + data_.n));
    if (is_dense) {
      CopyRow(line.data(), pixels * pixel_bytes, remaining.output.c);
      continue;
    }
    for (int64_t i = 0; i < pixels; ++i) {
      CopyRow(line.data() + i * step * element, pixel_bytes, remaining.output.C(i, 0));
    }
  }
}

// Computes the first `elements` ≥ v_ elements of `row` and of the pixels between, and stores them densely.
void DepthwiseEngine::RunLine(const DepthwiseRow& row, int64_t elements) const noexcept {
  const int64_t element = data_.element_bytes();
  const int64_t step = flat_.step_pixels * data_.n;
  const size_t last = flat_.starts.size() - 1;
  const auto run = [&](size_t vector, int64_t start, int64_t count) {
    DepthwiseRow part{row.pixel0 + start, count, row.output, row.columns};
    part.output.c += start * element;
    part.output.c_stride_bytes = step * element;
    RunVector(flat_, vector, part);
  };
  for (size_t i = 0; i < last; ++i) {
    const int64_t start = flat_.starts[i];
    if (start + v_ > elements) break;
    run(i, start, FlatPixels(start, elements));
  }
  if ((elements & (v_ - 1)) != 0) run(last, elements - v_, 1);
}

void DepthwiseEngine::RunThroughScratch(size_t vector, int64_t done, const DepthwiseRow& row) const noexcept {
  constexpr int64_t kPixels = 8;
  alignas(64) std::array<uint8_t, kPixels * kMostChannels * 4 * 2>
      scratch;  // 4-byte elements, and a residual
  const int64_t start = by_channels_.starts[vector];
  const int64_t channels = std::min(data_.n - start, v_);
  for (int64_t pixel = 0; pixel < row.pixels; pixel += kPixels) {
    const DepthwiseRow remaining = From(row, pixel, start);
    const int64_t pixels = std::min(kPixels, remaining.pixels);
    const ScratchTile tile(remaining.output, pixels, v_, scratch.data());
    tile.Load(0, 0, channels);
    RunVector(by_channels_, vector, {remaining.pixel0, pixels, tile.map(), row.columns});
    tile.Store(0, 0, done - start, channels);
  }
}

}  // namespace intact::kernels

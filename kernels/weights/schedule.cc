#include "kernels/weights/schedule.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "kernels/runtime/blocking.h"
#include "kernels/weights/strip_scheduler.h"

namespace intact::kernels {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;  // of the stream
constexpr int64_t kUnitColumns = 4;
// An estimate schedules about these numbers of columns and quads; of few columns, an eighth or a number of
// quads. Several estimates are made before one schedule is found.
constexpr int64_t kMostSampledColumns = 64, kLeastSampledColumns = 16, kSampledQuads = 8192;
constexpr int64_t kSampledShare = 8, kLeastSampledQuads = 128;
constexpr int64_t kSampledDepth = 256;  // about: quads of a column, in whole windows

// Calls function(strip_columns) with a compile-time constant.
template <class Function>
auto WithColumns(int strip_columns, Function function) {
  if (strip_columns == 1) return function(std::integral_constant<int, 1>());
  if (strip_columns == 2) return function(std::integral_constant<int, 2>());
  if (strip_columns == 4) return function(std::integral_constant<int, 4>());
  if (strip_columns == 8) return function(std::integral_constant<int, 8>());
  return function(std::integral_constant<int, 16>());
}

// Writes the groups of `scheduler`, largest first, and returns their end. A quad's offset, a uint16_t or
// uint32_t, is its number times `quad_offset`.
template <class Offset, int kColumns>
uint8_t* WriteGroups(const StripScheduler<kColumns>& scheduler, uint32_t quad_offset, uint8_t* stream) {
  std::memcpy(stream, scheduler.counts().data(), sizeof(scheduler.counts()));
  stream += sizeof(scheduler.counts());
  for (int64_t place = 0; place < scheduler.item_count(); ++place) {
    const auto& item = scheduler.item(place);
    const auto offset = static_cast<Offset>(item.quad * quad_offset);
    std::memcpy(stream, &offset, sizeof(offset));
    std::memcpy(stream + sizeof(offset), item.weights.data(), sizeof(item.weights));
    stream += sizeof(offset) + sizeof(item.weights);
  }
  return stream;
}

// Calls visit(column, window) for the strips that an estimate looks at.
template <class Visit>
void ForEachSample(const PackedWeights& weights, const ScheduleSpec& spec, const Visit& visit) {
  // Narrow strips: units of kUnitColumns; the statistics also count the empty columns of panels. Strips that
  // are vectors: units of a strip.
  const int64_t unit_columns = std::max<int64_t>(kUnitColumns, spec.strip_columns);
  const int64_t columns = RoundUp(weights.n, unit_columns);
  const int64_t units = columns / unit_columns;
  const int64_t sampled =
      std::min(std::clamp(kSampledQuads / weights.quads(), kLeastSampledColumns, kMostSampledColumns),
               std::max(columns / kSampledShare, kLeastSampledQuads / weights.quads()));
  const int64_t step = std::max<int64_t>(units / std::max<int64_t>(sampled / unit_columns, 1), 1);
  const int64_t windows = Windows(weights, spec);
  const int64_t window_step = std::clamp<int64_t>(weights.quads() / kSampledDepth, 1, windows);
  for (int64_t window = 0; window < windows; window += window_step) {
    for (int64_t unit = 0; unit < units; unit += step) {
      for (int64_t i = 0; i < unit_columns; i += spec.strip_columns) visit(unit * unit_columns + i, window);
    }
  }
}

// The statistics of all columns from those of ForEachSample().
ScheduleStatistics Scaled(ScheduleStatistics statistics, const PackedWeights& weights,
                          const ScheduleSpec& spec) {
  if (spec.strip_columns > kUnitColumns) return statistics;
  statistics.quads = statistics.quads * weights.panels() * kPanelColumns / RoundUp(weights.n, kUnitColumns);
  return statistics;
}

// The quads of a strip that have weights.
template <int kColumns>
int64_t CountWeighed(const PackedWeights& weights, int64_t column, int64_t begin, int64_t end) {
  const int64_t step = weights.quad_bytes();
  const int64_t offset = column % kPanelColumns * kQuad;
  const auto held = static_cast<size_t>(std::clamp<int64_t>(step - offset, 0, kColumns * kQuad));
  const int8_t* from = weights.Panel(column / kPanelColumns) + begin * step + offset;
  int64_t count = 0;
  for (int64_t quad = begin; quad < end; ++quad, from += step) {
    std::array<uint32_t, kColumns> quads = {};
    held == sizeof(quads) ? std::memcpy(quads.data(), from, sizeof(quads))
                          : std::memcpy(quads.data(), from, held);
    uint32_t any = 0;
    for (const uint32_t each : quads) any |= each;
    count += any != 0 ? 1 : 0;
  }
  return count;
}

}  // namespace

template <int kColumns>
Error ScheduledWeights::BuildStrips(const PackedWeights& weights, Pieces* pieces,
                                    std::span<const uint8_t> order, Part* part) {
  const bool has_order = !order.empty();
  const int64_t window_quads = std::min(weights.quads(), spec_.window_quads);
  StripScheduler<kColumns> scheduler(spec_, window_quads);
  const int64_t most_bytes =
      kPanelColumns / kColumns * (kStripHeaderBytes + scheduler.MostItems() * spec_.ItemBytes());
  uint8_t* stream = nullptr;
  uint8_t* block_end = nullptr;
  for (int64_t piece = pieces->Take(); piece < pieces->count(); piece = pieces->Take()) {
    const int64_t window = piece / panels_, panel = piece % panels_;
    if (block_end - stream < most_bytes) {
      const int64_t bytes =
          std::max(most_bytes, std::min(most_bytes * (pieces->count() - piece), kBlockBytes));
      AlignedBuffer<uint8_t>& block = part->blocks.emplace_back().data;
      if (!block.Resize(static_cast<size_t>(bytes))) return NoMemoryForSchedule();
      stream = block.data();
      block_end = stream + bytes;
    }
    uint8_t* const strips = stream;
    strips_[static_cast<size_t>(piece)] = strips;
    for (int64_t column = panel * kPanelColumns; column < (panel + 1) * kPanelColumns; column += kColumns) {
      if (has_order) {
        RETURN_IF_ERROR(scheduler.Restore(weights, column, window, &order, &part->statistics));
      } else {
        scheduler.Schedule(weights, column, window, &part->statistics);
      }
      stream = spec_.group_columns == 0
                   ? WriteGroups<uint16_t>(scheduler, static_cast<uint32_t>(spec_.rows), stream)
                   : WriteGroups<uint32_t>(scheduler, 1, stream);
    }
    part->bytes += stream - strips;
    part->blocks.back().used = static_cast<size_t>(stream - part->blocks.back().data.data());
  }
  return CheckOrderEnd(order);
}

void ScheduledWeights::Begin(const PackedWeights& weights, const ScheduleSpec& spec) {
  spec_ = spec;
  panels_ = weights.panels();
  windows_ = Windows(weights, spec);
  quads_ = weights.quads();
  strips_.resize(static_cast<size_t>(PieceCount()));
}

Error ScheduledWeights::BuildPieces(const PackedWeights& weights, Pieces* pieces,
                                    std::span<const uint8_t> order, Part* part) {
  return WithColumns(spec_.strip_columns,
                     [&](auto columns) { return BuildStrips<columns>(weights, pieces, order, part); });
}

void ScheduledWeights::Add(Part part) {
  for (Block& block : part.blocks) blocks_.push_back(std::move(block));
  statistics_ += part.statistics;
  bytes_ += part.bytes;
}

bool ScheduledWeights::CopyFrom(const ScheduledWeights& other) noexcept {
  try {
    spec_ = other.spec_;
    statistics_ = other.statistics_;
    windows_ = other.windows_;
    panels_ = other.panels_;
    quads_ = other.quads_;
    bytes_ = other.bytes_;
    strips_ = other.strips_;
    for (const Block& from : other.blocks_) {
      Block& block = blocks_.emplace_back();
      block.used = from.used;
      if (!block.data.Resize(block.used)) return false;
      const uint8_t* const begin = from.data.data();
      std::memcpy(block.data.data(), begin, block.used);
      for (size_t i = 0; i < strips_.size(); ++i) {
        const uint8_t* const strip = other.strips_[i];
        if (strip >= begin && strip < begin + from.used) strips_[i] = block.data.data() + (strip - begin);
      }
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

template <class Visit>
void ScheduledWeights::ForEachItem(const Visit& visit) const noexcept {
  const int64_t item_bytes = spec_.ItemBytes();
  for (int64_t i = 0; i < std::ssize(strips_); ++i) {
    const uint8_t* item = strips_[static_cast<size_t>(i)];
    for (int column = 0; column < kPanelColumns; column += spec_.strip_columns) {
      std::array<uint16_t, kMaxGroup> counts;
      std::memcpy(counts.data(), item, sizeof(counts));
      item += kStripHeaderBytes;
      for (int64_t items = CountItems(counts); items > 0; --items, item += item_bytes) {
        visit(i / panels_, i % panels_, column, item);
      }
    }
  }
}

void ScheduledWeights::Relocate(const PlanarAccess& planar) noexcept {
  ForEachItem([&](int64_t /*window*/, int64_t /*panel*/, int /*column*/, const uint8_t* item) {
    uint32_t number = 0;
    std::memcpy(&number, item, sizeof(number));
    const uint32_t offset = planar.quad_offsets[static_cast<size_t>(number % quads_)] +
                            static_cast<uint32_t>(number / quads_ * planar.group_bytes);
    std::memcpy(const_cast<uint8_t*>(item), &offset, sizeof(offset));  // in blocks_
  });
}

void ScheduledWeights::AddTo(PackedWeights* packed) const noexcept {
  ForEachItem([&](int64_t window, int64_t panel, int column, const uint8_t* item) {
    uint16_t offset = 0;
    std::memcpy(&offset, item, sizeof(offset));
    const int64_t quad = window * spec_.window_quads + offset / spec_.rows;
    int8_t* const to = packed->owned.data() + panel * packed->panel_stride_bytes() + column * kQuad;
    AddWeights(item + sizeof(offset), spec_.strip_columns * kQuad, to + quad * packed->quad_bytes());
  });
}

std::optional<ScheduleStatistics> EstimateSchedule(const PackedWeights& weights,
                                                   const ScheduleSpec& spec) noexcept {
  try {
    return WithColumns(spec.strip_columns, [&](auto width) {
      StripScheduler<width> scheduler(spec, std::min(weights.quads(), spec.window_quads));
      ScheduleStatistics statistics;
      ForEachSample(weights, spec, [&](int64_t column, int64_t window) {
        scheduler.Schedule(weights, column, window, &statistics);
      });
      return Scaled(statistics, weights, spec);
    });
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

ScheduleStatistics LeastSchedule(const PackedWeights& weights, const ScheduleSpec& spec) noexcept {
  ScheduleStatistics statistics;
  if (spec.zero_points != nullptr) return statistics;
  WithColumns(spec.strip_columns, [&](auto width) {
    ForEachSample(weights, spec, [&](int64_t column, int64_t window) {
      const int64_t begin = window * spec.window_quads;
      const int64_t end = std::min(weights.quads(), begin + spec.window_quads);
      const int64_t items = CountWeighed<width>(weights, column, begin, end);
      statistics.quads += (end - begin) * width;
      statistics.items += items * width;
      statistics.groups += CeilDivide(items, spec.largest_group) * width;
    });
  });
  return Scaled(statistics, weights, spec);
}

std::optional<std::vector<uint8_t>> OrderOf(const PackedWeights& weights, const ScheduleSpec& spec) noexcept {
  try {
    return WithColumns(spec.strip_columns, [&](auto width) {
      StripScheduler<width> scheduler(spec, std::min(weights.quads(), spec.window_quads));
      ScheduleStatistics statistics;
      std::vector<uint8_t> order;
      const auto append = [&](int64_t column, int64_t window) {
        scheduler.Schedule(weights, column, window, &statistics);
        scheduler.AppendOrder(&order);
      };
      const int64_t windows = Windows(weights, spec);
      if (spec.strip_columns > kUnitColumns) {  // ScheduledVectors
        for (int64_t column = 0; column < weights.n; column += width) {
          for (int64_t window = 0; window < windows; ++window) append(column, window);
        }
      } else {
        for (int64_t window = 0; window < windows; ++window) {
          for (int64_t column = 0; column < weights.panels() * kPanelColumns; column += width) {
            append(column, window);
          }
        }
      }
      return std::optional(std::move(order));
    });
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

Error CheckOrderEnd(std::span<const uint8_t> order) {
  if (order.empty()) return {};
  return {INTACT_INVALID_ARGUMENT,
          "corrupted: a schedule has " + std::to_string(order.size()) + " bytes too many"};
}

Error NoMemoryForSchedule() { return {INTACT_OUT_OF_MEMORY, "no memory for scheduled weights"}; }

}  // namespace intact::kernels

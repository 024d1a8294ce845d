#include "kernels/weights/scheduled_vectors.h"

#include <algorithm>
#include <cstring>

#include "kernels/runtime/blocking.h"
#include "kernels/weights/strip_scheduler.h"

namespace intact::kernels {
namespace {

// Quads of a window: with few rows they stay in half of L1, and loop ends are rare.
constexpr int64_t kMostWindowQuads = 512;

// Appends the window of `scheduler`, which begins with quad `first_quad`, with the first `item_bytes` of each
// item's weights.
template <int kColumns>
void AppendWindow(const StripScheduler<kColumns>& scheduler, int64_t first_quad, size_t item_bytes,
                  std::vector<uint8_t>* stream) {
  const auto items = static_cast<size_t>(scheduler.item_count());
  VectorWindowHeader header;
  header.counts = scheduler.counts();
  header.weights_begin = static_cast<uint32_t>(
      RoundUp(sizeof(header) + items * sizeof(uint16_t), static_cast<int64_t>(item_bytes)));
  const size_t begin = stream->size();
  stream->resize(begin + header.weights_begin + items * item_bytes);
  uint8_t* const window = stream->data() + begin;
  std::memcpy(window, &header, sizeof(header));
  uint8_t* quads = window + sizeof(header);
  uint8_t* weights = window + header.weights_begin;
  for (int64_t place = 0; place < scheduler.item_count(); ++place) {
    const auto& item = scheduler.item(place);
    const auto quad = static_cast<uint16_t>(first_quad + item.quad);
    std::memcpy(quads, &quad, sizeof(quad));
    std::memcpy(weights, item.weights.data(), item_bytes);
    quads += sizeof(quad);
    weights += item_bytes;
  }
}

}  // namespace

ScheduleSpec ScheduledVectors::SpecFor(const PackedWeights& weights, int lanes, int amax) {
  const int64_t windows = CeilDivide(weights.quads(), kMostWindowQuads);
  ScheduleSpec spec;
  spec.strip_columns = lanes;
  spec.window_quads = CeilDivide(weights.quads(), windows);
  spec.amax = amax;
  return spec;
}

template <int kColumns>
Error ScheduledVectors::BuildStrips(const PackedWeights& weights, Pieces* pieces,
                                    std::span<const uint8_t> order, Part* part) {
  const bool has_order = !order.empty();
  StripScheduler<kColumns> scheduler(spec_, spec_.window_quads);
  std::vector<uint8_t> strip;
  for (int64_t piece = pieces->Take(); piece < pieces->count(); piece = pieces->Take()) {
    strip.clear();
    for (int64_t window = 0; window < windows_; ++window) {
      if (has_order) {
        RETURN_IF_ERROR(scheduler.Restore(weights, piece * kColumns, window, &order, &part->statistics));
      } else {
        scheduler.Schedule(weights, piece * kColumns, window, &part->statistics);
      }
      AppendWindow(scheduler, window * spec_.window_quads, static_cast<size_t>(item_bytes()), &strip);
    }
    if (item_columns_ < kColumns) strip.resize(strip.size() + kColumns * kQuad);
    AlignedBuffer<uint8_t>& kept = strips_[static_cast<size_t>(piece)];
    if (!kept.Resize(strip.size())) return NoMemoryForSchedule();
    std::memcpy(kept.data(), strip.data(), strip.size());
    part->bytes += std::ssize(strip);
  }
  return CheckOrderEnd(order);
}

void ScheduledVectors::Begin(const PackedWeights& weights, const ScheduleSpec& spec) {
  spec_ = spec;
  lanes_ = spec.strip_columns;
  item_columns_ = std::min(lanes_, weights.width);
  windows_ = Windows(weights, spec);
  strips_.resize(static_cast<size_t>(CeilDivide(weights.n, lanes_)));
}

Error ScheduledVectors::BuildPieces(const PackedWeights& weights, Pieces* pieces,
                                    std::span<const uint8_t> order, Part* part) {
  return lanes_ == 8 ? BuildStrips<8>(weights, pieces, order, part)
                     : BuildStrips<16>(weights, pieces, order, part);
}

void ScheduledVectors::Add(const Part& part) {
  statistics_ += part.statistics;
  bytes_ += part.bytes;
}

void ScheduledVectors::AddTo(PackedWeights* packed) const noexcept {
  for (size_t strip = 0; strip < strips_.size(); ++strip) {
    const int64_t column = static_cast<int64_t>(strip) * lanes_;
    int8_t* const to = packed->owned.data() + column / kPanelColumns * packed->panel_stride_bytes() +
                       column % kPanelColumns * kQuad;
    const uint8_t* window = strips_[strip].data();
    for (int64_t i = 0; i < windows_; ++i) {
      VectorWindowHeader header;
      std::memcpy(&header, window, sizeof(header));
      const int64_t items = CountItems(header.counts);
      for (int64_t item = 0; item < items; ++item) {
        uint16_t quad = 0;
        std::memcpy(&quad, window + sizeof(header) + item * static_cast<int64_t>(sizeof(quad)), sizeof(quad));
        AddWeights(window + header.weights_begin + item * item_bytes(), item_bytes(),
                   to + int64_t{quad} * packed->quad_bytes());
      }
      window += header.weights_begin + items * item_bytes();
    }
  }
}

}  // namespace intact::kernels

// Which kernels a PanelEngine has, and their generation.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/panel_engine.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

// The pattern of a tile of `rows` rows.
PlacedPattern PatternOf(const SharedPixels& shared, int rows) {
  std::vector<int64_t> taps;
  for (int64_t tap = 0; tap < shared.taps; ++tap) taps.push_back(tap * shared.tap_step);
  return PlacePattern(taps, shared.row_step, rows);
}

}  // namespace

MicrokernelSpec PanelEngine::SpecFor(int rows) const {
  MicrokernelSpec spec;
  spec.isa = block_.isa;
  spec.dot = block_.dot;
  spec.signs.a_signed = is_signed_;
  spec.mr = rows;
  spec.vectors = block_.vectors;
  spec.width = data_.weights.width;
  spec.epilogue = data_.epilogue;
  return spec;
}

std::string PanelEngine::KernelName() const {
  MicrokernelSpec spec = data_.n >= nr_ ? SpecFor(block_.mr) : EdgeSpecFor(block_.mr);
  spec.loop = LoopFor(spec, {}, false);
  return spec.Name();
}

std::string PanelEngine::KernelNameFor(int64_t m) const {
  if (m != 1 || !has_row_kernel_) return KernelName();
  return RowSpec(data_.n >= nr_ ? SpecFor(1) : EdgeSpecFor(1)).Name();
}

MicrokernelSpec PanelEngine::EdgeSpecFor(int rows) const {
  MicrokernelSpec spec = SpecFor(rows);
  spec.vectors = EdgeVectors();
  if (!masks_edge_) return spec;
  spec.epilogue.variant.masked_vectors = EdgeVectors();
  spec.epilogue.variant.last_columns = static_cast<int>(data_.n % lanes_);
  spec.pairs_rows = pairs_rows_ && rows >= BlockCost::kLeastPairedRows;
  return spec;
}

// On Zen 5, 1.03 to 1.27 times as fast as microkernels, with weights of 80 KiB to 16 MiB.
bool PanelEngine::HasRowKernel() const {
  const Taps& taps = data_.taps();
  return Costs().layout.row_ahead != 0 && block_.dot == jit::DotKind::kVnni && lanes_ == kPanelColumns &&
         data_.weights.width == kPanelColumns && taps.vector_step == 0 && !taps.shared && !has_lines_ &&
         cost_.run_rows() == 0;
}

RowKernelSpec PanelEngine::RowSpec(const MicrokernelSpec& microkernel) const {
  RowKernelSpec spec;
  spec.isa = microkernel.isa;
  spec.signs = microkernel.signs;
  spec.vectors = microkernel.vectors;
  spec.shifts = data_.a_shift() != 0 && !is_signed_ && !StagesRow();
  if (data_.weights.bytes() > Caches().L2Weights()) spec.ahead = static_cast<int>(Costs().layout.row_ahead);
  spec.epilogue = microkernel.epilogue;
  return spec;
}

Error PanelEngine::GenerateRowKernel() const {
  Height& height = HeightOf(kRowKernel);
  Kernels& kernels = height.at_line.front();
  if (data_.n >= nr_) {
    ASSIGN_OR_RETURN(kernels.whole.front(), GetRowKernel(RowSpec(SpecFor(1))));
  }
  if (EdgeVectors() != 0) {
    ASSIGN_OR_RETURN(kernels.edge.front(), GetRowKernel(RowSpec(EdgeSpecFor(1))));
  }
  height.state.store(Height::State::kMade, std::memory_order_release);
  return {};
}

// The kernels for tiles of `rows` rows.
Error PanelEngine::GenerateHeight(int rows) const {
  const MicrokernelSpec whole = SpecFor(rows), edge = EdgeSpecFor(rows);
  Height& height = HeightOf(rows);
  if (data_.taps().shared) height.pixel_offsets = PatternOf(*data_.taps().shared, rows).offsets;
  for (const LineEnds line : LinesOf(rows)) {
    Kernels& kernels = height.At(line);
    const auto generate = [&](MicrokernelSpec spec, bool prefetches, ByStores* to) -> Error {
      spec.loop = LoopFor(spec, line, prefetches);
      return Generate(spec, to);
    };
    if (data_.n >= nr_) {
      RETURN_IF_ERROR(generate(whole, false, &kernels.whole));
      if (can_prefetch_) RETURN_IF_ERROR(generate(whole, true, &kernels.prefetching));
    }
    if (EdgeVectors() != 0) RETURN_IF_ERROR(generate(edge, false, &kernels.edge));
  }
  height.state.store(Height::State::kMade, std::memory_order_release);
  return {};
}

Error PanelEngine::Generate(MicrokernelSpec spec, ByStores* kernels) const {
  ASSIGN_OR_RETURN(kernels->front(), GetMicrokernel(spec));
  if (!can_stream_ || spec.epilogue.variant.masked_vectors != 0) return {};
  spec.epilogue.variant.streams = true;
  ASSIGN_OR_RETURN(kernels->back(), GetMicrokernel(spec));
  return {};
}

Error PanelEngine::MakeHeight(int64_t rows) const {
  const std::lock_guard lock(generating_);
  const auto state = HeightOf(rows).state.load(std::memory_order_relaxed);
  if (state == Height::State::kMade) return {};
  return rows == kRowKernel ? GenerateRowKernel() : GenerateHeight(static_cast<int>(rows));
}

// A run cannot fail, so it goes on without these kernels. It does not try again.
bool PanelEngine::TryHeight(int64_t rows) const noexcept {
  try {
    const Error error = MakeHeight(rows);
    assert(error.status != INTACT_CODEGEN_FAILED);
    if (error.ok()) return true;
  } catch (const std::bad_alloc&) {
  }
  const std::lock_guard lock(generating_);
  auto expected = Height::State::kNotMade;
  HeightOf(rows).state.compare_exchange_strong(expected, Height::State::kFailed);
  return expected == Height::State::kMade;
}

MicrokernelLoop PanelEngine::LoopFor(const MicrokernelSpec& spec, LineEnds line, bool prefetches) const {
  const Taps& taps = data_.taps();
  if (schedule_ != nullptr) {
    return StripLoop{MostInGroup(data_.weights, schedule_->spec()),
                     static_cast<int>(Costs().layout.strip_ahead)};
  }
  if (taps.shared) {
    return SharedTaps{PatternOf(*taps.shared, spec.mr).pattern, static_cast<int>(taps.depth / kQuad)};
  }
  if (taps.vector_step != 0) return SteppingLoop{line};
  return PanelLoop{line, prefetches, Ahead(spec), IsInParts(spec)};
}

// Measured on Zen 5, where the products of the next tile pause while more than half of 28 vectors wait to be
// stored: 1.1 times as fast at a depth of 64, no gain from 512 on. On a Xeon with AMX two parts lose 5 to
// 11 % at any depth. So the table of AMD's CPUs has a limit, and the tables of Intel's CPUs have none that
// tiles reach. If outputs are converted, which takes longer than storing them, two parts gain nothing.
bool PanelEngine::IsInParts(const MicrokernelSpec& spec) {
  return spec.dot == jit::DotKind::kVnni && spec.epilogue.c_type == INTACT_S32 &&
         spec.mr * spec.vectors > Costs().layout.most_waiting_vectors;
}

// VNNI kernels on ymm registers always wait for weights: fetching each line is 1.03 times as fast at 64 to
// 3136 rows on a Xeon with AMX. On zmm registers it is 1.05 times as fast there with one row and weights that
// L2 does not hold; tiles of many rows lose 2 %. On Zen 5 8×4096×4096 is 1.2 times as fast. If L2 holds the
// weights, 3×512×1024 is 1.2 times as fast there, but tiles of more rows lose 1 %.
int PanelEngine::Ahead(const MicrokernelSpec& spec) const {
  // A product of so few rows takes less time than loading its weights from L2.
  constexpr int kWaitingRows = 3;
  constexpr int kSplitAhead = 4096;  // measured on Zen 3, and on Zen 5 with one row
  const LayoutLimits& limits = Costs().layout;
  if (spec.dot == jit::DotKind::kSplit) return kSplitAhead;
  const int64_t rows = data_.weights.bytes() > Caches().L2Weights() ? limits.fetching_rows : kWaitingRows;
  const bool waits =
      spec.mr <= std::min(rows, limits.fetching_rows) || jit::VectorBytes(spec.isa) < kPanelQuadBytes;
  return spec.dot == jit::DotKind::kVnni && waits ? static_cast<int>(limits.panel_ahead) : 0;
}

}  // namespace intact::kernels

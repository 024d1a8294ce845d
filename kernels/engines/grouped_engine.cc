#include "kernels/engines/grouped_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/blocking.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

constexpr int64_t kStepDepths = GroupedLayout::kStepDepths;
// Kernels of this number of rows or more read packed weights also if rows are many: unpacking nibbles then
// costs less than a pass that expands them.
constexpr int kManyRows = 8;
// Rows whose f stays in L1 and L2 while a panel's depths pass.
constexpr int64_t kChunkRows = 256;

}  // namespace

Result<std::unique_ptr<const GroupedEngine>> GroupedPanelEngine::Create(
    const GroupedProblem& problem, std::shared_ptr<const GroupedWeights> packed, core::Isa isa) {
  const bool may_have_tiles = UsesTiles(isa) && HasGroupedTileKernel(problem.group);
  isa = VectorIsa(isa);
  std::unique_ptr<GroupedPanelEngine> engine(new GroupedPanelEngine);
  engine->weights_ = std::move(packed);
  const GroupedWeights& weights = *engine->weights_;
  const GroupedLayout& layout = weights.layout();
  const int columns = weights.columns();
  // Tiles of 8-bit weights subtract zero points from each sum, which takes longer than their products in small groups.
  const int64_t least_group = layout.NeedsExpansion() ? 32 : layout.zero_point_bytes == 0 ? 64 : 128;
  const bool has_tiles = may_have_tiles && problem.group >= least_group;
  engine->n_ = problem.n;
  engine->groups_ = problem.groups();
  engine->group_ = problem.group;
  engine->last_depth_ = problem.GroupDepth(problem.groups() - 1);
  engine->c_bytes_ = core::BytesOf(problem.c_type);
  engine->constants_ = MakeGroupedConstants();
  engine->epilogue_constants_ = MakeEpilogueConstants(problem.bounds, {}, isa);
  if (!problem.bias_f32.empty()) {
    const int64_t padded = weights.expert_panels() * columns;
    if (!engine->bias_.Resize(static_cast<size_t>(problem.experts * padded))) {
      return Error{INTACT_OUT_OF_MEMORY, "no memory for the bias"};
    }
    std::memset(engine->bias_.data(), 0, engine->bias_.bytes());
    for (int64_t expert = 0; expert < problem.experts; ++expert) {
      std::copy_n(problem.Bias(expert), problem.n, engine->bias_.data() + expert * padded);
    }
  }

  GroupedKernelSpec spec;
  spec.isa = isa;
  spec.layout = layout;
  spec.a_signed = problem.a_type == INTACT_S8;
  spec.has_group_scales = problem.has_group_scales;
  const int64_t steps = CeilDivide(problem.group, kStepDepths);
  spec.unrolled_steps = steps >= 4 ? 4 : steps >= 2 ? 2 : 1;
  RETURN_IF_ERROR(engine->MakeKernels(spec, &engine->whole_));
  RETURN_IF_ERROR(engine->MakeMinimums(isa));
  int64_t block_group_bytes = layout.GroupBytes(columns, steps);
  const bool is_expanded = layout.NeedsExpansion() && (has_tiles || engine->whole_.most_rows() < kManyRows);
  const GroupedExpansionSpec expansion = {isa, layout, has_tiles};
  if (is_expanded) spec.layout = expansion.Expanded();
  if (has_tiles) RETURN_IF_ERROR(engine->MakeTiles(spec));
  if (is_expanded) {
    const int64_t bytes = spec.layout.GroupBytes(columns, steps);
    if (has_tiles || bytes <= Caches().ExpandedWeights()) {
      if (!has_tiles) RETURN_IF_ERROR(engine->MakeKernels(spec, &engine->expanded_));
      ASSIGN_OR_RETURN(engine->expanding_, GetGroupedExpansion(expansion));
      block_group_bytes = engine->expanded_group_bytes_ = bytes;
    }
  }
  const CacheSizes& caches = Caches();
  int64_t block_groups = caches.StayingWeights() / block_group_bytes;
  if (has_tiles) {
    const int64_t groups = engine->tiles_.groups;
    block_groups = std::max<int64_t>(caches.GroupedTileWeights() / (block_group_bytes * groups), 1) * groups;
  }
  engine->block_groups_ = std::clamp<int64_t>(block_groups, 1, problem.groups());
  ASSIGN_OR_RETURN(engine->output_, GetGroupedOutput({isa, problem.c_type, !problem.bias_f32.empty(),
                                                      !problem.has_group_scales}));
  return std::unique_ptr<const GroupedEngine>(std::move(engine));
}

Error GroupedPanelEngine::MakeKernels(const GroupedKernelSpec& spec, Kernels* kernels) {
  const int most = LargestGroupedRows(spec.isa, spec.layout.step);
  for (int rows = 1; rows <= most; ++rows) {
    GroupedKernelSpec with_rows = spec;
    with_rows.mr = rows;
    with_rows.prefetches = spec.layout == weights_->layout();
    ASSIGN_OR_RETURN(GroupedKernelFunction kernel, GetGroupedKernel(with_rows));
    kernels->of_rows.push_back(std::move(kernel));
    kernels->names.push_back(with_rows.Name());
  }
  return {};
}

Error GroupedPanelEngine::MakeMinimums(core::Isa isa) {
  if (weights_->minimum_type() == INTACT_TYPE_NONE) return {};
  for (int rows = 1; rows <= LargestGroupedMinimumRows(isa); ++rows) {
    ASSIGN_OR_RETURN(GroupedMinimumFunction kernel,
                     GetGroupedMinimumKernel({isa, rows, weights_->minimum_type()}));
    minimums_.push_back(std::move(kernel));
  }
  return {};
}

Error GroupedPanelEngine::MakeTiles(const GroupedKernelSpec& spec) {
  GroupedTileKernelSpec of_tiles = {spec.layout, static_cast<int>(group_), spec.a_signed,
                                    spec.has_group_scales, weights_->layout().NeedsExpansion()};
  ASSIGN_OR_RETURN(tiles_.functions, GetTileFunctions());
  // Two groups that are half a tile each are added together, so that f is loaded and stored half as often.
  of_tiles.groups = group_ < kTileDepth ? 2 : 1;
  tiles_.groups = of_tiles.groups;
  for (of_tiles.row_tiles = 1; of_tiles.units() <= 2; ++of_tiles.row_tiles) {
    TileKernels kernels;
    of_tiles.multiplies = of_tiles.adds = true;
    ASSIGN_OR_RETURN(kernels.does_both, GetGroupedTileKernel(of_tiles));
    tiles_.name = of_tiles.Name();
    of_tiles.adds = false;
    ASSIGN_OR_RETURN(kernels.multiplies, GetGroupedTileKernel(of_tiles));
    of_tiles.multiplies = false;
    of_tiles.adds = true;
    ASSIGN_OR_RETURN(kernels.adds, GetGroupedTileKernel(of_tiles));
    tiles_.kernels.push_back(std::move(kernels));
  }
  if (group_ < kTileDepth || !of_tiles.is_centered) tiles_.least_rows = 2 * kTileRows;
  return {};
}

std::string GroupedPanelEngine::KernelName(int64_t m) const {
  const int64_t rows = std::clamp<int64_t>(m, 1, kChunkRows);
  if (IsOfTiles(rows)) return tiles_.name;
  const Kernels& kernels = IsExpanded(rows) ? expanded_ : whole_;
  const int64_t blocks = CeilDivide(rows, kernels.most_rows());
  return kernels.names[static_cast<size_t>(CeilDivide(rows, blocks) - 1)];
}

GroupedPanelEngine::Groups GroupedPanelEngine::BlockAt(int64_t first, int64_t rows) const {
  const bool has_short_last = last_depth_ != group_;
  int64_t equal_groups = groups_ - (has_short_last ? 1 : 0);
  if (first == equal_groups) return {first, 1, CeilDivide(last_depth_, kStepDepths)};
  // The groups that are no whole steps of tiles are a block.
  if (IsOfTiles(rows) && first < equal_groups / tiles_.groups * tiles_.groups) {
    equal_groups = equal_groups / tiles_.groups * tiles_.groups;
  }
  const bool is_one_pass = rows <= whole_.most_rows();
  return {first, std::min(is_one_pass ? equal_groups : block_groups_, equal_groups - first),
          CeilDivide(group_, kStepDepths)};
}

void GroupedPanelEngine::SetValues(const GroupedRows& rows, const Scratch& scratch) const noexcept {
  const bool is_uniform = weights_->layout().zero_point_bytes == 0;
  const auto factor = static_cast<uint32_t>(is_uniform ? -weights_->uniform_zero_point() : -1);
  for (int64_t row = 0; row < rows.count; ++row) {
    for (int64_t g = 0; g < groups_; ++g) {
      const GroupedValues& given = rows.values[row * groups_ + g];
      const uint32_t start = factor * static_cast<uint32_t>(given.centered_sum);  // modulo 2³²
      const int64_t place = g * rows.count + row;
      scratch.values[place] = {static_cast<int32_t>(start), given.zero_point, given.scale};
      if (!minimums_.empty()) scratch.factors[place] = given.scale * given.float_sum;
    }
  }
}

GroupedPanelEngine::Offsets GroupedPanelEngine::OffsetsOf(int64_t rows) const {
  const int64_t panel_bytes = rows * weights_->columns() * int64_t{sizeof(float)};
  Offsets offsets = {};
  offsets.factors = RoundUp(rows * groups_ * int64_t{sizeof(GroupedRowValues)}, 64);
  const int64_t factors = minimums_.empty() ? 0 : rows * groups_;
  offsets.f = RoundUp(offsets.factors + factors * int64_t{sizeof(float)}, 64);
  offsets.outputs = offsets.f + panel_bytes;
  offsets.expanded = offsets.outputs + panel_bytes;
  offsets.sums = RoundUp(offsets.expanded + (IsExpanded(rows) ? 2 * ExpandedBytes() : 0), 64);
  offsets.end = offsets.sums + (IsOfTiles(rows) ? 2 * kGroupedTileSums : 0);
  return offsets;
}

int64_t GroupedPanelEngine::ScratchBytes(int64_t rows) const {
  return OffsetsOf(std::min(rows, kChunkRows)).end;
}

void GroupedPanelEngine::Run(const GroupedRows& rows, int64_t expert, int64_t column_begin,
                             int64_t column_end, uint8_t* c, int64_t c_stride_bytes,
                             uint8_t* scratch) const noexcept {
  const int64_t columns = weights_->columns();
  ScopedTiles tiles(tiles_.functions);
  for (int64_t row = 0; row < rows.count; row += kChunkRows) {
    GroupedRows chunk = rows;
    chunk.count = std::min(kChunkRows, rows.count - row);
    chunk.a += row * rows.stride_bytes;
    chunk.values += row * groups_;
    chunk.scales += row;
    const Offsets offsets = OffsetsOf(chunk.count);
    const Scratch parts = {reinterpret_cast<GroupedRowValues*>(scratch),
                           reinterpret_cast<float*>(scratch + offsets.factors),
                           reinterpret_cast<float*>(scratch + offsets.f),
                           scratch + offsets.outputs,
                           scratch + offsets.expanded,
                           reinterpret_cast<int32_t*>(scratch + offsets.sums)};
    SetValues(chunk, parts);
    if (IsOfTiles(chunk.count)) tiles.Configure(kTileRows, std::min<int64_t>(group_, kTileDepth));
    const Rows own = {chunk, expert, parts.values, parts.factors};
    for (int64_t panel = column_begin / columns; panel * columns < column_end; ++panel) {
      RunPanel(own, panel, parts);
      Store(own, panel, parts, c + row * c_stride_bytes, c_stride_bytes);
    }
  }
}

void GroupedPanelEngine::StartPanel(const Rows& rows, int64_t panel, float* f) const noexcept {
  const int64_t count = rows.given.count;
  if (minimums_.empty()) return static_cast<void>(std::fill_n(f, count * weights_->columns(), 0.0f));
  const int64_t blocks = CeilDivide(count, static_cast<int64_t>(minimums_.size()));
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = count * i / blocks, end = count * (i + 1) / blocks;
    const GroupedMinimumArgs args = {rows.factors + first, count * int64_t{sizeof(float)},
                                     weights_->PanelMinimums(rows.expert, panel),
                                     f + first * weights_->columns(), groups_};
    minimums_[static_cast<size_t>(end - first - 1)](&args);
  }
}

void GroupedPanelEngine::RunPanel(const Rows& rows, int64_t panel, const Scratch& scratch) const noexcept {
  StartPanel(rows, panel, scratch.f);
  const uint8_t* const weights = weights_->Panel(rows.expert, panel);
  IsOfTiles(rows.given.count) ? RunOnTiles(rows, weights, scratch) : RunOnVectors(rows, weights, scratch);
}

void GroupedPanelEngine::Expand(const Groups& block, const uint8_t* weights, uint8_t* to) const noexcept {
  const GroupedExpansionArgs args = {weights,    to, block.count, block.steps, weights_->uniform_zero_point(),
                                     &constants_};
  expanding_(&args);
}

void GroupedPanelEngine::RunOnVectors(const Rows& rows, const uint8_t* weights,
                                      const Scratch& scratch) const noexcept {
  const int64_t count = rows.given.count;
  const bool is_expanded = IsExpanded(count);
  for (int64_t first = 0; first < groups_;) {
    const Groups block = BlockAt(first, count);
    const int64_t bytes = PackedBytes(block);
    if (is_expanded) {
      Expand(block, weights, scratch.expanded);
      Ahead ahead(weights + bytes, bytes, CeilDivide(count, expanded_.most_rows()));
      RunBlock(expanded_, rows, 0, block, scratch.expanded, scratch.f, &ahead);
    } else {
      RunBlock(whole_, rows, 0, block, weights, scratch.f);
    }
    weights += bytes;
    first += block.count;
  }
}

void GroupedPanelEngine::RunOnTiles(const Rows& rows, const uint8_t* weights,
                                    const Scratch& scratch) const noexcept {
  WaitingTiles waiting;
  waiting.args.sums = scratch.sums;
  waiting.args.finished.sums = scratch.sums + kGroupedTileSums / 4;
  // The sums of a block may wait while the next block is expanded.
  uint8_t *expanded = scratch.expanded, *next_expanded = expanded + ExpandedBytes();
  for (int64_t first = 0; first < groups_;) {
    const Groups block = BlockAt(first, rows.given.count);
    const uint8_t* const next_weights = weights + PackedBytes(block);
    // A short last group has no kernel of tiles.
    const bool has_tiles =
        block.count % tiles_.groups == 0 && (first + block.count < groups_ || last_depth_ == group_);
    int64_t done = 0;
    if (!has_tiles) {
      AddWaiting(&waiting);
    } else if (!expanding_) {
      done = RunTiles(rows, block, weights, scratch, next_weights, &waiting);
    } else {
      Expand(block, weights, expanded);
      done = RunTiles(rows, block, expanded, scratch, next_weights, &waiting);
      std::swap(expanded, next_expanded);
    }
    RunBlock(whole_, rows, done, block, weights, scratch.f);
    weights = next_weights;
    first += block.count;
  }
  AddWaiting(&waiting);
}

GroupedKernelArgs GroupedPanelEngine::ArgsOf(const Rows& rows, int64_t begin, const Groups& groups,
                                             const uint8_t* weights, float* f) const noexcept {
  const GroupedRows& given = rows.given;
  GroupedKernelArgs args;
  args.a = given.a + begin * given.stride_bytes + groups.first * group_;
  args.a_stride_bytes = given.stride_bytes;
  args.values = rows.values + groups.first * given.count + begin;
  args.values_stride_bytes = given.count * int64_t{sizeof(GroupedRowValues)};
  args.weights = weights;
  args.f = f + begin * weights_->columns();
  args.groups = groups.count;
  args.steps = groups.steps;
  args.constants = &constants_;
  return args;
}

int64_t GroupedPanelEngine::RunTiles(const Rows& rows, const Groups& groups, const uint8_t* weights,
                                     const Scratch& scratch, const uint8_t* next_weights,
                                     WaitingTiles* waiting) const noexcept {
  const int64_t group_bytes = expanding_ ? expanded_group_bytes_ : PackedBytes(groups) / groups.count;
  const int64_t most_tiles = std::ssize(tiles_.kernels);
  Ahead ahead(next_weights, PackedBytes(groups), CeilDivide(rows.given.count / kTileRows, most_tiles));
  int64_t row = 0;
  while (row + kTileRows <= rows.given.count) {
    ahead.FetchShare();
    const int64_t row_tiles = std::min((rows.given.count - row) / kTileRows, most_tiles);
    MultiplyTiles(tiles_.kernels[static_cast<size_t>(row_tiles - 1)],
                  ArgsOf(rows, row, groups, weights, scratch.f), group_bytes, waiting);
    row += row_tiles * kTileRows;
  }
  return row;
}

void GroupedPanelEngine::MultiplyTiles(const TileKernels& kernels, const GroupedKernelArgs& args,
                                       int64_t group_bytes, WaitingTiles* waiting) const noexcept {
  if (waiting->kernels != &kernels) AddWaiting(waiting);
  const int64_t steps = args.groups / tiles_.groups;
  const auto values_at = [&](int64_t step) {
    const auto* const first = reinterpret_cast<const uint8_t*>(args.values);
    return reinterpret_cast<const GroupedRowValues*>(first + step * tiles_.groups * args.values_stride_bytes);
  };
  const auto run = [&](const GroupedTileKernelFunction& kernel, int64_t first, int64_t end) {
    GroupedTileKernelArgs& tiles = waiting->args;
    tiles.steps = end - first;
    tiles.a = args.a + first * tiles_.groups * group_;
    tiles.a_stride_bytes = args.a_stride_bytes;
    tiles.weights = args.weights + first * tiles_.groups * group_bytes;
    tiles.values = values_at(first);
    tiles.values_stride_bytes = args.values_stride_bytes;
    tiles.f = args.f;
    kernel(&tiles);
    if ((end - first) % 2 != 0) std::swap(tiles.sums, tiles.finished.sums);
    tiles.finished.values = values_at(end - 1);
    tiles.finished.weights = args.weights + (end - 1) * tiles_.groups * group_bytes;
    tiles.finished.f = args.f;
  };
  const int64_t first = waiting->kernels == nullptr ? 1 : 0;
  if (first != 0) run(kernels.multiplies, 0, 1);
  if (first != steps) run(kernels.does_both, first, steps);
  waiting->kernels = &kernels;
}

void GroupedPanelEngine::AddWaiting(WaitingTiles* waiting) noexcept {
  if (waiting->kernels != nullptr) waiting->kernels->adds(&waiting->args);
  waiting->kernels = nullptr;
}

// Rows are cut into blocks of nearly equal size.
void GroupedPanelEngine::RunBlock(const Kernels& kernels, const Rows& rows, int64_t begin,
                                  const Groups& groups, const uint8_t* weights, float* f,
                                  Ahead* ahead) const noexcept {
  const int64_t count = rows.given.count - begin, blocks = CeilDivide(count, kernels.most_rows());
  for (int64_t i = 0; i < blocks; ++i) {
    if (ahead != nullptr) ahead->FetchShare();
    const int64_t first = begin + count * i / blocks, end = begin + count * (i + 1) / blocks;
    const GroupedKernelArgs args = ArgsOf(rows, first, groups, weights, f);
    kernels.of_rows[static_cast<size_t>(end - first - 1)](&args);
  }
}

void GroupedPanelEngine::Store(const Rows& rows, int64_t panel, const Scratch& scratch, uint8_t* c,
                               int64_t c_stride_bytes) const noexcept {
  const int64_t columns = weights_->columns(), first = panel * columns;
  const int64_t count = std::min(columns, n_ - first);
  uint8_t* const to = c + first * c_bytes_;
  GroupedOutputArgs args;
  args.f = scratch.f;
  args.scales = rows.given.scales;
  args.rows = rows.given.count;
  args.c = count == columns ? to : scratch.outputs;
  args.c_stride_bytes = count == columns ? c_stride_bytes : columns * c_bytes_;
  args.epilogue.addends = bias_.size() == 0
                              ? nullptr
                              : bias_.data() + (rows.expert * weights_->expert_panels() + panel) * columns;
  args.epilogue.constants = &epilogue_constants_;
  output_(&args);
  if (count == columns) return;
  for (int64_t row = 0; row < rows.given.count; ++row) {
    std::memcpy(to + row * c_stride_bytes, scratch.outputs + row * columns * c_bytes_,
                static_cast<size_t>(count * c_bytes_));
  }
}

}  // namespace intact::kernels

#include "kernels/amx_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace intact::kernels {
namespace {

// From which Cost() is estimated: figures of one machine (Sapphire Rapids class) and assumptions. None of it
// has been fitted to measurements of this engine.
constexpr double kVnniMultiplyAdds = 119;  // a cycle, of VPDPBUSD on ZMM
constexpr double kShareOfPeak = 0.69;      // of TDPBUSD's cycle per row, with A in L1 and B from L2
constexpr double kLoadCycles = 32;  // of a tile of B; 21 at L2's bandwidth, and some that do not overlap
constexpr double kConfigurationCycles = 400;  // LDTILECFG, TILERELEASE and filling the pipeline; assumed

constexpr int64_t kBlockInts = kMaxBlockTiles * kTileBytes / 4;
constexpr int64_t kBlockBytes = kMaxBlockTiles * kTileBytes;
/// Panels for which reading A in place, from L2 again for each block, beats staging it.
constexpr int64_t kFewPanels = 4;

// L1's share for A's block: B streams past it, and the sums take little.
int64_t ABlockBytes(const CacheSizes& caches) { return caches.l1d_bytes * 3 / 4; }

int64_t MaxDepth(int64_t block_rows, const CacheSizes& caches) {
  return std::max<int64_t>(ABlockBytes(caches) / block_rows / kTileDepth * kTileDepth, kTileDepth);
}

// Panels that half of L2 holds, in whole blocks.
int64_t MaxChunkPanels(int64_t k, const CacheSizes& caches) {
  const int64_t panels = caches.l2_bytes / 2 / (RoundUp(k, kTileDepth) * kPanelColumns);
  return std::max<int64_t>(panels / kMaxBlockTiles, 1) * kMaxBlockTiles;
}

// Copies depths [begin, end) of `rows` rows to rows of whole tiles. What pads them does not matter: there B
// is zero.
void Stage(RowCursor a, const Taps& taps, int64_t rows, int64_t begin, int64_t end, uint8_t* to) {
  const int64_t width = RoundUp(end - begin, kTileDepth);
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* const from = a.Next();
    for (int64_t depth = begin; depth < end;) {
      const int64_t in_tap = depth % taps.depth;
      const int64_t bytes = std::min(end - depth, taps.depth - in_tap);
      std::memcpy(to + row * width + (depth - begin),
                  from + taps.offsets[static_cast<size_t>(depth / taps.depth)] + in_tap,
                  static_cast<size_t>(bytes));
      depth += bytes;
    }
  }
}

}  // namespace

AmxBlocking ChooseAmxBlocking(int64_t rows, int64_t panels, int64_t k, int64_t a_stride,
                              const CacheSizes& caches) {
  AmxBlocking blocking;
  const int64_t four = kMaxBlockTiles * kTileRows;
  blocking.block_rows = panels == 1 && rows >= four ? four : std::min<int64_t>(rows, 2 * kTileRows);
  blocking.stages_a =
      a_stride == 0 || (panels > kFewPanels && blocking.block_rows * a_stride > ABlockBytes(caches));
  const int64_t depth_blocks = blocking.stages_a ? CeilDivide(k, MaxDepth(blocking.block_rows, caches)) : 1;
  blocking.depth = RoundUp(CeilDivide(k, depth_blocks), kTileDepth);
  blocking.chunk_panels = MaxChunkPanels(k, caches);
  blocking.a_stays = rows * k <= caches.l2_bytes / 2;
  if (blocking.a_stays && panels > blocking.chunk_panels) {
    // The next chunk comes while this one is used, so both must fit; 16 panels are enough for A's way into
    // L1.
    constexpr int64_t kEnough = 16;
    blocking.chunk_panels = std::clamp<int64_t>(blocking.chunk_panels / 2 / kMaxBlockTiles * kMaxBlockTiles,
                                                kMaxBlockTiles, kEnough);
  }
  const int64_t chunks = CeilDivide(panels, blocking.chunk_panels);
  blocking.chunk_panels = RoundUp(CeilDivide(panels, chunks), kMaxBlockTiles);
  return blocking;
}

// What one RunRange() has at hand.
class AmxEngine::Region {
 public:
  Region(const AmxEngine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch)
      : engine_(engine),
        data_(engine.data_),
        buffers_(buffers),
        range_(range),
        panel_end_(CeilDivide(range.column_end, kPanelColumns)),
        blocking_(ChooseAmxBlocking(range.row_end - range.row_begin,
                                    panel_end_ - range.column_begin / kPanelColumns, data_.k, AStride(),
                                    Caches())),
        streams_(buffers.may_stream && engine.can_stream_),
        sums_(reinterpret_cast<int32_t*>(scratch)),
        edge_(scratch + engine.MaxBlocks() * kBlockBytes),
        staged_(edge_ + engine.EdgeBytes()) {}

  void Run() {
    for (int64_t panel = range_.column_begin / kPanelColumns; panel < panel_end_; panel = chunk_end_) {
      chunk_begin_ = panel;
      chunk_end_ = std::min(panel_end_, panel + blocking_.chunk_panels);
      next_b_ = data_.weights.Panel(panel) + (chunk_end_ - panel) * data_.weights.panel_stride_bytes();
      for (int64_t row = range_.row_begin; row < range_.row_end; row += RowsAt(row))
        RunRows(row, RowsAt(row));
    }
    StoreWaiting();
  }

 private:
  struct Block {
    int64_t row, rows;
    int64_t panel, panels;
    int64_t index;  // among those of its rows and chunk
  };

  // As ChooseAmxBlocking() wants it.
  int64_t AStride() const { return buffers_.a.IsEven() && data_.taps.count() == 1 ? buffers_.a.stride : 0; }

  int64_t RowsAt(int64_t row) const {
    const int64_t rows = range_.row_end - row;
    return rows >= blocking_.block_rows ? blocking_.block_rows : std::min<int64_t>(rows, 2 * kTileRows);
  }

  // One block of rows × the chunk.
  void RunRows(int64_t row, int64_t rows) {
    tiles_.Configure(rows);
    const int64_t width = kMaxBlockTiles / RowTiles(rows);
    for (int64_t depth = 0; depth < data_.k; depth += blocking_.depth) {
      const int64_t depth_end = std::min(data_.k, depth + blocking_.depth);
      SetSegments(row, rows, depth, depth_end);
      Block block{row, rows, chunk_begin_, 0, 0};
      for (; block.panel < chunk_end_; block.panel += block.panels, ++block.index) {
        block.panels = std::min(width, chunk_end_ - block.panel);
        RunBlock(block, depth, depth_end);
      }
    }
  }

  // Depths [begin, end) of A: in place as far as tiles can be loaded there, the rest staged.
  void SetSegments(int64_t row, int64_t rows, int64_t begin, int64_t end) {
    const int64_t staged = blocking_.stages_a ? begin : end - (end - begin) % kTileDepth;
    segments_end_ = segments_.data();
    if (staged > begin) {
      *segments_end_++ = {buffers_.a.At(row) + begin, AStride(), (staged - begin) / kTileDepth};
    }
    if (staged < end) {
      Stage(RowCursor(buffers_.a, row), data_.taps, rows, staged, end, staged_);
      const int64_t stride = RoundUp(end - staged, kTileDepth);
      *segments_end_++ = {staged_, stride, stride / kTileDepth};
    }
  }

  void RunBlock(const Block& block, int64_t depth, int64_t depth_end) {
    const auto row_tiles = static_cast<size_t>(RowTiles(block.rows));
    const auto panels = static_cast<size_t>(block.panels);
    const bool has_other_depths = blocking_.depth < data_.k;
    int32_t* const sums = sums_ + (has_other_depths ? block.index * kBlockInts : 0);
    if (waiting_panels_ != panels) StoreWaiting();
    AmxKernelArgs args;
    args.segment = segments_.data();
    args.segments_end = segments_end_;
    args.b = data_.weights.Panel(block.panel) + OffsetInPanel(depth, 0);
    args.b_panel_stride_bytes = data_.weights.panel_stride_bytes();
    args.seed = depth == 0 ? engine_.initial() + block.panel * kPanelColumns : sums;
    args.seed_stride_bytes = depth == 0 ? 0 : block.panels * kPanelColumns * 4;
    args.sums = sums;
    args.store = waiting_;
    if (AmxKernelPrefetches(RowTiles(block.rows), static_cast<int>(block.panels))) {
      SetPrefetch(block, depth, depth_end, &args);
    }
    engine_.kernels_[row_tiles][streams_][panels](&args);
    waiting_ = {};
    if (depth_end == data_.k) Finish(block, sums);
  }

  // Sums of the whole depth wait for the next kernel to store them, but for those at an edge within a panel.
  void Finish(const Block& block, const int32_t* sums) {
    const int64_t column = block.panel * kPanelColumns;
    const int64_t columns = std::min(range_.column_end - column, block.panels * kPanelColumns);
    const int64_t element = data_.element_bytes();
    uint8_t* const c = buffers_.c + block.row * buffers_.c_stride_bytes + column * element;
    waiting_panels_ = static_cast<size_t>(block.panels);
    waiting_.sums = sums;
    waiting_.sums_end = sums + block.rows * block.panels * kPanelColumns;
    waiting_.c = c;
    waiting_.c_stride_bytes = buffers_.c_stride_bytes;
    waiting_.epilogue = data_.EpilogueAt(buffers_, block.row, column);
    if (columns % kPanelColumns == 0) return;
    waiting_.c = edge_;
    waiting_.c_stride_bytes = block.panels * kPanelColumns * element;
    CopyResidual(data_, block.rows, columns, block.panels * kPanelColumns, edge_ + kBlockBytes,
                 &waiting_.epilogue);
    engine_.stores_[false][waiting_panels_](&waiting_);
    CopyTile(edge_, waiting_.c_stride_bytes, block.rows, columns * element, c, buffers_.c_stride_bytes);
    waiting_ = {};
  }

  void StoreWaiting() {
    if (waiting_.sums == waiting_.sums_end) return;
    engine_.stores_[streams_][waiting_panels_](&waiting_);
    waiting_ = {};
  }

  // A share of what comes after this chunk's rows or depths, a line per dot product: the next chunk, or the
  // next block of A.
  void SetPrefetch(const Block& block, int64_t depth, int64_t depth_end, AmxKernelArgs* args) {
    constexpr int64_t kLines = kMaxBlockTiles;  // per step
    args->prefetch = segments_[0].a;            // a line that is there already
    if (blocking_.a_stays) {
      const int8_t* const end = data_.weights.Panel(panel_end_);
      if (next_b_ >= end) return;
      args->prefetch = reinterpret_cast<const uint8_t*>(next_b_);
      args->prefetch_stride_bytes = kPanelQuadBytes;
      next_b_ +=
          std::min(kLines * CeilDivide(depth_end - depth, kTileDepth) * kPanelQuadBytes, end - next_b_);
      return;
    }
    const bool has_depth = depth_end < data_.k;
    const int64_t row = has_depth ? block.row : block.row + block.rows;
    const int64_t first = block.index * kLines;  // of its rows
    if (row >= range_.row_end || first >= block.rows || AStride() == 0) return;
    args->prefetch = buffers_.a.At(std::min(row + first, range_.row_end - 1)) + (has_depth ? depth_end : 0);
    args->prefetch_stride_bytes = AStride();
    args->prefetch_step_bytes = kTileDepth - kLines * AStride();
  }

  const AmxEngine& engine_;
  const GemmData& data_;
  const RunBuffers& buffers_;
  const Range& range_;
  int64_t panel_end_;
  AmxBlocking blocking_;
  bool streams_;
  int32_t* sums_;    // blocks of the chunk, or one
  uint8_t* edge_;    // a block of C, and one of the residual
  uint8_t* staged_;  // of A

  ScopedTiles tiles_;
  int64_t chunk_begin_ = 0, chunk_end_ = 0;
  std::array<AmxSegment, 2> segments_;
  AmxSegment* segments_end_ = nullptr;
  AmxStoreArgs waiting_;
  size_t waiting_panels_ = 0;
  const int8_t* next_b_ = nullptr;
};

Result<std::unique_ptr<Engine>> AmxEngine::Create(const GemmData& data) {
  std::unique_ptr<AmxEngine> engine(new AmxEngine(data));
  for (const auto step : {&AmxEngine::SetInitial, &AmxEngine::GenerateKernels}) {
    Error error = (engine.get()->*step)();
    if (error.status != INTACT_OK) return error;
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

Error AmxEngine::SetInitial() {
  if (data_.shift() == 0) return {};
  if (!initial_.Resize(data_.initial.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  for (size_t n = 0; n < initial_.size(); ++n) {
    const ColumnParts& sums = data_.certificate.column_sums[n];
    const int64_t shifted = data_.initial[n] + data_.shift() * (sums.positive + sums.negative);
    initial_[n] = static_cast<int32_t>(static_cast<uint32_t>(shifted));
  }
  return {};
}

Error AmxEngine::GenerateKernels() {
  Error error = ScopedTiles::Prepare();
  if (error.status != INTACT_OK) return error;
  can_stream_ = data_.element_bytes() == 4;
  AmxKernelSpec spec;
  spec.a_signed = data_.a_type == INTACT_S8;
  for (const bool streams : {false, true}) {
    if (streams && !can_stream_) continue;
    spec.epilogue = data_.epilogue;
    spec.epilogue.streams = streams;
    for (spec.panels = 1; spec.panels <= kMaxBlockTiles; ++spec.panels) {
      const auto panels = static_cast<size_t>(spec.panels);
      const Result<AmxStoreFunction> store = GetAmxStore(spec.epilogue, spec.panels);
      if (!store) return store.error();
      stores_[streams][panels] = *store;
      for (spec.row_tiles = 1; spec.row_tiles * spec.panels <= kMaxBlockTiles; spec.row_tiles *= 2) {
        const Result<AmxKernelFunction> kernel = GetAmxKernel(spec);
        if (!kernel) return kernel.error();
        kernels_[static_cast<size_t>(spec.row_tiles)][streams][panels] = *kernel;
      }
    }
  }
  spec.row_tiles = 2;
  spec.panels = 2;
  spec.epilogue = data_.epilogue;
  kernel_name_ = spec.Name();
  return {};
}

double AmxEngine::Cost(int64_t m) const {
  const auto b_tiles = static_cast<double>(data_.weights.panels() * CeilDivide(data_.k, kTileDepth));
  const auto block_cycles = [&](int64_t rows) {
    return b_tiles * std::max(static_cast<double>(rows) / kShareOfPeak, kLoadCycles);
  };
  const int64_t blocks = m / mr();
  const int64_t rest = m % mr();
  const double cycles = kConfigurationCycles + static_cast<double>(blocks) * block_cycles(mr()) +
                        (rest == 0 ? 0 : block_cycles(rest));
  return cycles / (b_tiles * kTileBytes / kVnniMultiplyAdds);
}

int64_t AmxEngine::MaxBlocks() const {
  if (data_.k <= MaxDepth(mr(), Caches())) return 1;
  return CeilDivide(std::min(data_.weights.panels(), MaxChunkPanels(data_.k, Caches())), 2);
}

int64_t AmxEngine::EdgeBytes() const { return kBlockBytes * (data_.epilogue.has_residual() ? 2 : 1); }

int64_t AmxEngine::ScratchBytes(int64_t /*rows*/) const {
  const int64_t staged = std::max(ABlockBytes(Caches()), int64_t{kMaxBlockTiles} * kTileRows * kTileDepth);
  return MaxBlocks() * kBlockBytes + EdgeBytes() + RoundUp(staged, 64);
}

void AmxEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  Region(*this, buffers, range, scratch).Run();
}

}  // namespace intact::kernels

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/engines/panel_engine.h"

namespace intact::kernels {

// Records the calls of a range, and repeats them. Kernels change their arguments, so each call gets a copy. Calls
// beyond kMostBoundCalls are only counted: the range is then not bound.
class PanelEngine::Recorder final : public BoundCalls, private Calls {
 public:
  Recorder(const PanelEngine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch)
      : engine_(engine),
        stages_(engine.Stages(engine.RunsRow(range))),
        buffers_(buffers),
        range_(range),
        scratch_(scratch) {
    engine_.RunBy(buffers_, range_, scratch_, this);
  }
  size_t count() const override { return count_; }
  void Run() const noexcept override {
    if (stages_) engine_.Stage(buffers_.rows(), range_.row_begin, range_.row_end, scratch_);
    for (const auto& [kernel, args, rows, tiles, column, columns] : calls_) {
      MicrokernelArgs call = args;
      call.rows = rows.get();
      if (columns == 0) {
        (*kernel)(&call);
      } else {
        engine_.RunEdge(buffers_, tiles, column, columns, &call);
      }
    }
  }

 private:
  using Rows = std::shared_ptr<const uint8_t*[]>;
  struct Recorded {
    const MicrokernelFunction* kernel;  // null for an edge
    MicrokernelArgs args;
    Rows rows;
    Tiles tiles;  // of an edge
    int64_t column, columns;
  };

  void Call(const MicrokernelFunction& kernel, int64_t rows, MicrokernelArgs* call) override {
    if (++count_ > kMostBoundCalls) return;
    calls_.push_back({&kernel, *call, Keep(call->rows, rows), {}, 0, 0});
  }
  void CallEdge(const Tiles& tiles, int64_t column, int64_t columns, MicrokernelArgs* call) override {
    if (++count_ > kMostBoundCalls) return;
    calls_.push_back({nullptr, *call, Keep(call->rows, tiles.all_rows()), tiles, column, columns});
  }
  void LackKernel() override { count_ = kMostBoundCalls + 1; }
  // The calls of adjacent columns share their rows.
  Rows Keep(const uint8_t* const* rows, int64_t count) {
    if (count != kept_count_ || !std::equal(rows, rows + count, kept_.get())) {
      kept_ = Rows(new const uint8_t*[static_cast<size_t>(count)]);
      kept_count_ = count;
      std::copy_n(rows, count, kept_.get());
    }
    return kept_;
  }

  const PanelEngine& engine_;
  bool stages_;
  RunBuffers buffers_;
  Range range_;
  uint8_t* scratch_;
  size_t count_ = 0;
  std::vector<Recorded> calls_;
  Rows kept_;  // of the last call
  int64_t kept_count_ = 0;
};

std::unique_ptr<BoundCalls> PanelEngine::Bind(const RunBuffers& buffers, const Range& range,
                                              uint8_t* scratch) const {
  const int64_t rows = range.row_end - range.row_begin;
  const bool is_block = !is_staged_ || rows <= BlockRows(rows);
  if (rows > kMostBoundRows || !is_block || buffers.weights != nullptr || buffers.may_stream) return nullptr;
  auto recorder = std::make_unique<Recorder>(*this, buffers, range, scratch);
  return recorder->count() > kMostBoundCalls ? nullptr : std::move(recorder);
}

}  // namespace intact::kernels

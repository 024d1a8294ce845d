#include "kernels/plans/engine_set.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/types.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {

EngineSet::Maker EngineSet::MakerOf(const PlanData& data, core::Isa isa) {
  if (const auto* const planar = std::get_if<PlanarData>(&data)) return PlanarMaker(*planar, isa);
  return EngineMaker(std::get<GemmData>(data), isa);
}

Error EngineSet::MakeUsual(UsualRows usual, const EngineSet* like) {
  const auto make = [&]<class Own>(Own& maker) {
    return maker.MakeUsual(usual, like == nullptr ? nullptr : &std::get<Own>(like->maker_));
  };
  ASSIGN_OR_RETURN(usual_, std::visit(make, maker_));
  for (const auto& engine : usual_) column_step_ = std::lcm(column_step_, engine->tile().columns);
  return {};
}

// ----- which engine ----------------------------------------------------------------------------------------

const Engine& EngineSet::For(int64_t m) const {
  const auto chosen = std::ranges::lower_bound(choices_, m, {}, &Choices::value_type::first);
  return chosen != choices_.end() && chosen->first == m ? *chosen->second : ModelFor(m);
}

const Engine& EngineSet::ModelFor(int64_t m) const {
  if (run_all_as_ != 0) m = run_all_as_;
  if (usual_.size() == 1) return *usual_.front();
  return Recall(&remembered_, m, false);
}

const Engine& EngineSet::ForPanels(int64_t m) const { return Recall(&remembered_for_panels_, m, true); }

template <class Memory>
const Engine& EngineSet::Recall(Memory* memory, int64_t m, bool from_panels) const {
  const auto place = static_cast<size_t>(m - 1);
  if (place >= kRemembered) return *Cheapest(m, from_panels);
  std::atomic<const Engine*>& remembered = (*memory)[place];
  const Engine* engine = remembered.load(std::memory_order_relaxed);
  if (engine == nullptr) {
    engine = Cheapest(m, from_panels);
    remembered.store(engine, std::memory_order_relaxed);
  }
  return *engine;
}

// `from_panels`: only of the engines that read panels which are not cut.
const Engine* EngineSet::Cheapest(int64_t m, bool from_panels) const {
  const auto cost = [&](const auto& engine) {
    const bool is_candidate = from_panels ? engine->runtime_form() == RuntimeForm::kPanels
                                          : !IsWasteful(data_, m, engine->ScratchBytes(m));
    return is_candidate ? engine->Cost(m) : std::numeric_limits<double>::infinity();
  };
  return std::ranges::min_element(usual_, {}, cost)->get();
}

EngineSet::Split EngineSet::SplitOf(const Engine& engine, int64_t rows) const {
  const int64_t whole = engine.WholeRows(rows);
  if (whole == rows || whole == 0 || run_all_as_ != 0 || data_.problem.has_runtime_b) return {rows};
  const Engine& other = For(rows - whole);
  if (engine.Cost(whole) + other.Cost(rows - whole) >= engine.Cost(rows)) return {rows};
  return {whole, &other};
}

EngineSet::Split EngineSet::SplitOf(const Engine& engine, const Range& range) const {
  const int64_t rows = range.row_end - range.row_begin;
  const Split split = SplitOf(engine, rows);
  const auto is_cut = [&](int64_t column) {
    return column == data_.n || column % split.tail->tile().columns == 0;
  };
  const bool can_split = split.tail != nullptr && is_cut(range.column_begin) && is_cut(range.column_end);
  return can_split ? split : Split{rows};
}

// ----- a run -----------------------------------------------------------------------------------------------

void EngineSet::Run(const Engine& engine, const RunBuffers& buffers, const Range& range,
                    uint8_t* scratch) const {
  const Split split = SplitOf(engine, range);
  if (split.tail == nullptr) {
    engine.RunRange(buffers, range, scratch);
  } else {
    Range whole = range;
    Range tail = range;
    whole.row_end = tail.row_begin = range.row_begin + split.whole;
    engine.RunRange(buffers, whole, scratch);
    split.tail->RunRange(buffers, tail, scratch);
  }
  const LinearProblem& problem = data_.problem;
  if (problem.lookup_table.empty()) return;
  LookUp(problem.lookup_table.data(), core::LowestOf(problem.c_type), buffers.output, range.row_begin,
         range.row_end, range.column_begin, range.column_end - range.column_begin);
}

Error EngineSet::PrepareRows(const Engine& engine, int64_t rows, bool or_fewer) const {
  const bool may_be_uncut = engine.runtime_form() == RuntimeForm::kCutPanels;
  if (!or_fewer) {
    const Split split = SplitOf(engine, rows);
    RETURN_IF_ERROR(engine.PrepareRows(split.whole, false));
    if (split.tail != nullptr) {
      RETURN_IF_ERROR(split.tail->PrepareRows(rows - split.whole, false));
      // A share is not split if the tail's engine cannot cut its columns.
      if (engine.tile().columns % split.tail->tile().columns != 0) {
        RETURN_IF_ERROR(engine.PrepareRows(rows, false));
      }
    }
    return may_be_uncut ? ForPanels(rows).PrepareRows(rows, false) : Error();
  }
  Error error = engine.PrepareRows(rows, true);
  if (engine.tile().least_row_step == 0 && !may_be_uncut) return error;
  ForEach([&](const Engine& other) {
    if (error.ok()) error = other.PrepareRows(rows, true);
  });
  return error;
}

Error EngineSet::FindUnready(const Engine& engine, int threads) const {
  Error error = engine.FindSchedule(threads);
  if (engine.tile().least_row_step != 0) {
    ForEach([&](const Engine& other) {
      if (error.ok()) error = other.FindSchedule(threads);
    });
  }
  if (error.ok()) engine.set_ready(true);
  return error;
}

int64_t EngineSet::ScratchBytes(const Engine& engine, int64_t m) const {
  int64_t bytes = engine.ScratchBytes(m);
  const EngineTile tile = engine.tile();
  const bool may_be_uncut = engine.runtime_form() == RuntimeForm::kCutPanels;
  if (tile.least_row_step == 0 && !may_be_uncut) return RoundUp(bytes, 64);
  // Another engine may run the tail of rows, or panels that are not cut.
  const int64_t rows = may_be_uncut ? m : std::min<int64_t>(m, tile.rows);
  ForEach([&](const Engine& other) {
    if (may_be_uncut && other.runtime_form() == RuntimeForm::kUnpacked) return;
    bytes = std::max(bytes, other.ScratchBytes(rows));
  });
  return RoundUp(bytes, 64);
}

double EngineSet::RowsCost(const Engine& engine, int64_t rows) const {
  const Split split = SplitOf(engine, rows);
  const double cost = engine.Cost(split.whole);
  return split.tail == nullptr ? cost : cost + split.tail->Cost(rows - split.whole);
}

void EngineSet::SetSteps(const Engine& engine, SharedOutput* output) const {
  const EngineTile tile = engine.tile();
  output->row_step = tile.row_step;
  output->least_row_step = tile.least_row_step;
  output->any_column_step = 1;
  const bool may_be_uncut = engine.runtime_form() == RuntimeForm::kCutPanels;
  ForEach([&](const Engine& any) {
    if (may_be_uncut && any.runtime_form() == RuntimeForm::kUnpacked) return;
    output->any_column_step = std::lcm(output->any_column_step, any.tile().columns);
  });
  // If panels are not cut, another engine runs them.
  output->column_step = may_be_uncut ? output->any_column_step : tile.columns;
}

int64_t EngineSet::ChunkColumns(int64_t least) const {
  const int64_t column_bytes = data_.weights.panel_stride_bytes() / data_.weights.width;
  const int64_t whole = Caches().RuntimeChunk() / column_bytes / column_step_ * column_step_;
  return std::max(whole, RoundUp(std::max<int64_t>(least, 1), column_step_));
}

Partition EngineSet::Cut(const Engine& engine, int64_t m, int parts) const {
  if (parts == 1) return Partition::Whole(m, data_.n);
  SharedOutput output;
  output.m = m;
  output.n = data_.n;
  SetSteps(engine, &output);
  output.line_columns = LineColumns(data_.n, data_.element_bytes());
  return Partition::Choose(output, parts, RowCostOf([&](int64_t rows) { return RowsCost(engine, rows); }));
}

// ----- candidates ------------------------------------------------------------------------------------------

Result<std::vector<const Engine*>> EngineSet::MakeAll() {
  for (const EngineId& id : Possible()) {
    if (const auto made = FindOrMake(id); !made) return made.error();
  }
  return Made();
}

std::vector<const Engine*> EngineSet::Made() const {
  std::vector<const Engine*> all;
  ForEach([&](const Engine& engine) { all.push_back(&engine); });
  return all;
}

const Engine* EngineSet::Find(const EngineId& id) const {
  const Engine* found = nullptr;
  ForEach([&](const Engine& engine) {
    if (engine.id() == id) found = &engine;
  });
  return found;
}

Result<const Engine*> EngineSet::FindOrMake(const EngineId& id) {
  if (const Engine* const found = Find(id); found != nullptr) return found;
  const std::vector<EngineId> possible = Possible();
  if (std::ranges::find(possible, id) == possible.end()) {
    return Error{INTACT_UNSUPPORTED, "the plan has no such engine"};
  }
  RETURN_IF_ERROR(data_.linear->RestorePanels());
  ForEach([](const Engine& engine) { engine.set_ready(false); });  // the new engine may run their last rows
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> made,
                   std::visit([&](auto& maker) { return maker.Make(id); }, maker_));
  return others_.emplace_back(std::move(made)).get();
}

void EngineSet::Choose(int64_t m, const Engine* engine) {
  const auto place = std::ranges::lower_bound(choices_, m, {}, &Choices::value_type::first);
  if (place != choices_.end() && place->first == m) {
    place->second = engine;
  } else {
    choices_.emplace(place, m, engine);
  }
}

void EngineSet::DropUnchosen(const Engine* kept) {
  std::erase_if(others_, [&](const auto& engine) {
    return engine.get() != kept &&
           std::ranges::find(choices_, engine.get(), &Choices::value_type::second) == choices_.end();
  });
}

std::shared_ptr<const LazySchedule> EngineSet::PanelsFrom() const {
  std::shared_ptr<const LazySchedule> source = usual_.front()->panel_source();
  ForEach([&](const Engine& engine) {
    if (engine.panel_source() == nullptr) source = nullptr;
  });
  return source;
}

ScheduleStatistics EngineSet::statistics() const {
  ScheduleStatistics statistics;
  ForEach([&](const Engine& engine) {
    if (statistics.quads == 0) statistics = engine.statistics();
  });
  return statistics;
}

int64_t EngineSet::packed_bytes() const {
  int64_t bytes = 0;
  ForEach([&](const Engine& engine) { bytes += engine.packed_bytes(); });
  return bytes;
}

}  // namespace intact::kernels

#include "bench/cases/probes.h"

#include <algorithm>
#include <span>
#include <utility>

#include "reference/models/lowering.h"
#include "reference/models/operands.h"

namespace intact::bench {

Probes::Probes(const reference::Operation& operation)
    : pieces_(reference::VisitLinear([](const auto& one) { return PiecesOf(one); }, operation)) {
  const Piece& last = pieces_.back();
  columns_ = last.first_column + last.gemm.n;
}

std::vector<Probes::Piece> Probes::PiecesOf(const reference::Gemm& gemm) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < (gemm.has_runtime_b ? gemm.batch : 1); ++i) {
    reference::Gemm& item = pieces.emplace_back().gemm;
    item = gemm.has_runtime_b ? reference::Item(gemm, i) : gemm;
    item.a.clear();
  }
  return pieces;
}

std::vector<Probes::Piece> Probes::PiecesOf(const reference::Conv& conv) {
  std::vector<Piece> pieces;
  int64_t columns = 0;
  for (reference::Gemm& group : reference::Lower(conv, {})) {
    const int64_t first_column = std::exchange(columns, columns + group.n);
    pieces.push_back({std::move(group), {}, first_column});
  }
  return pieces;
}

void Probes::Piece::Add(const Activations& x, int64_t row, size_t probe) {
  const auto begin = x.a.begin() + row * gemm.k;
  gemm.a.insert(gemm.a.end(), begin, begin + gemm.k);
  gemm.a_zero_points.push_back(x.zero_points.empty() ? 0 : x.zero_points[static_cast<size_t>(row)]);
  probes.push_back(probe);
  gemm.m = std::ssize(probes);
}

void Probes::Add(const reference::Operation& operation, const Activations& x,
                 const std::vector<int64_t>& rows) {
  reference::VisitLinear([&](const auto& one) { Add(one, x, rows); }, operation);
  count_ += rows.size();
}

void Probes::Add(const reference::Gemm& gemm, const Activations& x, const std::vector<int64_t>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t item = gemm.has_runtime_b ? rows[i] / gemm.m : 0;
    pieces_[static_cast<size_t>(item)].Add(x, rows[i], count_ + i);
  }
}

void Probes::Add(reference::Conv conv, const Activations& x, const std::vector<int64_t>& rows) {
  conv.a = x.a;
  std::vector<reference::Gemm> groups = reference::Lower(conv, rows);
  for (size_t group = 0; group < groups.size(); ++group) {
    const Activations lowered = {std::move(groups[group].a), {}, {}};
    for (size_t i = 0; i < rows.size(); ++i) {
      pieces_[group].Add(lowered, static_cast<int64_t>(i), count_ + i);
    }
  }
}

Sums Probes::Accumulate() const {
  const size_t size = count_ * static_cast<size_t>(columns_);
  Sums sums = {std::vector<int32_t>(size), std::vector<int32_t>(size)};
  for (const Piece& piece : pieces_) {
    const reference::Operands operands(piece.gemm);
    const auto accumulate = [&](reference::Model model, std::vector<int32_t>* all) {
      const std::vector<int32_t> of_piece = reference::Accumulators(operands, model);
      auto from = of_piece.begin();
      for (const size_t probe : piece.probes) {
        const auto to = all->begin() + static_cast<int64_t>(probe) * columns_ + piece.first_column;
        std::copy_n(from, operands.n, to);
        from += operands.n;
      }
    };
    accumulate(reference::Model::kExact, &sums.exact);
    accumulate(reference::Model::kMaddubs, &sums.maddubs);
  }
  return sums;
}

}  // namespace intact::bench

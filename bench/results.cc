#include "bench/results.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace intact::bench {
namespace {

double PeakMicroseconds(const Row& row) { return 1e-3 * row.shape().Operations() / row.peak_gops; }

double ReadMicroseconds(const Row& row) {
  return 1e-3 * static_cast<double>(row.shape().WeightBytes()) / row.read_gb_per_s;
}

}  // namespace

const Timing* Row::Find(std::string_view contender, std::string_view c_type) const {
  const auto found = std::ranges::find_if(timings, [&](const Timing& timing) {
    return timing.contender == contender && timing.c_type == c_type && timing.IsTimed();
  });
  return found == timings.end() ? nullptr : &*found;
}

bool Results::AllRight() const {
  const auto is_right = [](const Timing& timing) { return timing.contender != kIntact || timing.IsTimed(); };
  return std::ranges::all_of(rows,
                             [&](const Row& row) { return std::ranges::all_of(row.timings, is_right); }) &&
         std::ranges::all_of(first_calls, [](const FirstCall& call) { return call.error.empty(); });
}

std::vector<std::string> Results::Isas() const {
  std::vector<std::string> found;
  for (const Row& row : rows) {
    if (found.empty() || found.back() != row.isa) found.push_back(row.isa);
  }
  return found;
}

std::vector<Row> Results::RowsOf(std::string_view isa) const {
  std::vector<Row> found;
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const Row& row) { return row.isa == isa; });
  return found;
}

double Gops(const Row& row, const Timing& timing) {
  return 1e-3 * row.shape().Operations() / timing.microseconds;
}

double RoofMicroseconds(const Row& row) { return std::max(PeakMicroseconds(row), ReadMicroseconds(row)); }

bool IsMemoryBound(const Row& row) { return ReadMicroseconds(row) > PeakMicroseconds(row); }

double OfRoof(const Row& row, const Timing& timing) { return RoofMicroseconds(row) / timing.microseconds; }

std::optional<double> SpeedUp(const Row& row, std::string_view peer, std::string_view c_type) {
  const Timing* const ours = row.Find(kIntact, c_type);
  const Timing* const theirs = row.Find(peer, c_type);
  if (ours == nullptr || theirs == nullptr) return std::nullopt;
  return theirs->microseconds / ours->microseconds;
}

std::optional<double> FusedCost(const Row& row) {
  const Timing* const s32 = row.Find(kIntact, "s32");
  const Timing* const u8 = row.Find(kIntact, "u8");
  if (s32 == nullptr || u8 == nullptr) return std::nullopt;
  return u8->microseconds / s32->microseconds - 1;
}

double Intensity(const Row& row) {
  const auto bytes = static_cast<double>(row.m * row.k + row.k * row.n + 4 * row.m * row.n);
  return row.shape().Operations() / bytes;
}

std::optional<double> GeometricMean(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace intact::bench

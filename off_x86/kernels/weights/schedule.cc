// Schedules are for generated kernels, so portable plans ask for none.
#include "kernels/weights/schedule.h"

#include <cstdlib>

#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {
namespace {

Error NoSchedules() { return {INTACT_UNSUPPORTED, "this build of intact is not for x86-64"}; }

}  // namespace

std::optional<ScheduleStatistics> EstimateSchedule(const PackedWeights& /*weights*/,
                                                   const ScheduleSpec& /*spec*/) noexcept {
  return std::nullopt;
}
ScheduleStatistics LeastSchedule(const PackedWeights& /*weights*/, const ScheduleSpec& /*spec*/) noexcept {
  return {};
}
std::optional<std::vector<uint8_t>> OrderOf(const PackedWeights& /*weights*/,
                                            const ScheduleSpec& /*spec*/) noexcept {
  return std::nullopt;
}
Error CheckOrderEnd(std::span<const uint8_t> /*order*/) { return NoSchedules(); }
Error NoMemoryForSchedule() { return NoSchedules(); }

void ScheduledWeights::Begin(const PackedWeights& /*weights*/, const ScheduleSpec& /*spec*/) {}
Error ScheduledWeights::BuildPieces(const PackedWeights& /*weights*/, Pieces* /*pieces*/,
                                    std::span<const uint8_t> /*order*/, Part* /*part*/) {
  return NoSchedules();
}
void ScheduledWeights::Add(Part /*part*/) { std::abort(); }
bool ScheduledWeights::CopyFrom(const ScheduledWeights& /*other*/) noexcept { return false; }
void ScheduledWeights::AddTo(PackedWeights* /*packed*/) const noexcept { std::abort(); }
void ScheduledWeights::Relocate(const PlanarAccess& /*planar*/) noexcept { std::abort(); }

ScheduleSpec ScheduledVectors::SpecFor(const PackedWeights& /*weights*/, int /*lanes*/, int /*amax*/) {
  return {};
}
void ScheduledVectors::Begin(const PackedWeights& /*weights*/, const ScheduleSpec& /*spec*/) {}
Error ScheduledVectors::BuildPieces(const PackedWeights& /*weights*/, Pieces* /*pieces*/,
                                    std::span<const uint8_t> /*order*/, Part* /*part*/) {
  return NoSchedules();
}
void ScheduledVectors::Add(const Part& /*part*/) { std::abort(); }
void ScheduledVectors::AddTo(PackedWeights* /*packed*/) const noexcept { std::abort(); }

}  // namespace intact::kernels

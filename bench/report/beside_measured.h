// This CPU beside the CPUs that were measured before, so that a new CPU's figures can be judged at a glance.
#ifndef INTACT_BENCH_REPORT_BESIDE_MEASURED_H_
#define INTACT_BENCH_REPORT_BESIDE_MEASURED_H_

#include <array>
#include <span>
#include <string_view>

#include "bench/report/report_table.h"
#include "bench/report/results.h"

namespace intact::bench {

inline constexpr std::array kMeasuredShapes = {
    Shape{1, 4096, 4096},  Shape{8, 4096, 4096},  Shape{128, 768, 768},  Shape{128, 3072, 768},
    Shape{128, 768, 3072}, Shape{784, 128, 1152}, Shape{196, 256, 2304}, Shape{1024, 1024, 1024}};

/// The share of the roof (OfRoof()) of exact kernels with s32 outputs on one CPU and ISA. The pages in
/// docs/measurements say when and how it was measured.
struct Measured {
  std::string_view cpu, vendor;
  int family, model;
  std::string_view isa;
  std::array<double, kMeasuredShapes.size()> shares;  // 0 = not measured
};

std::span<const Measured> AllMeasured();

/// For each ISA: this CPU's shares, and in parentheses the shares of the nearest CPU that measured this ISA (of
/// the same vendor, then of the nearest family and model). Marks shares that are unusual. Has no rows if
/// `results` has none of the shapes. It fits a screen of 80 columns and 24 lines.
Table BesideMeasured(const Results& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_REPORT_BESIDE_MEASURED_H_

// Measurements of one machine, ISA by ISA, and the figures derived from them. measure.h describes how they
// are taken.
#ifndef INTACT_BENCH_REPORT_RESULTS_H_
#define INTACT_BENCH_REPORT_RESULTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/case.h"
#include "verify/report/report.h"

namespace intact::bench {

inline constexpr std::string_view kIntact = "intact";
inline constexpr std::string_view kSaturating = "saturating";  // intact in saturating mode
inline constexpr std::string_view kExact = "exact";
inline constexpr std::string_view kSaturates = "saturates";
inline constexpr std::string_view kNear = "near";  // a peer of weights in blocks: right, except for rounding
inline constexpr std::string_view kWrong = "wrong: not timed";

/// The time of one contender in one format.
struct Timing {
  std::string contender;  // kIntact, kSaturating, or a peer's name, with its kernels if it has several
  Format format;
  std::string implementation;
  std::string result;  // kExact, kSaturates (C equals the maddubs model), kNear, kWrong, or why it cannot run
  double microseconds = 0;  // median; 0 = not timed
  double spread = 0;        // interquartile range over the median
  // If runs quantize A: (time in `format`) / (time in kF32) of the contender, the median of turns. 0 = not
  // timed.
  double over_static = 0;
  bool IsTimed() const { return microseconds > 0; }
  /// Whether turns differ so much that the median means little.
  bool IsUnsteady() const { return spread > kMostSpread; }
  static constexpr double kMostSpread = 0.25;
};

/// One shape on one ISA. Its timings, peak and bandwidth are measured in turns.
struct Row {
  std::string isa;
  Shape shape;
  int times = 1;             // occurrences in the suite's network
  std::string peak;          // the ISA's instruction sequence
  double peak_gops = 0;      // median
  double read_gb_per_s = 0;  // from a buffer as large as the weights; median
  std::vector<Timing> timings;

  /// nullptr if there is no such timing, or if it was not timed.
  const Timing* Find(std::string_view contender, const Format& format) const;
  /// Whether a timing is unsteady. Reports mark such a row, and leave it out of means and worst ratios.
  bool IsUnsteady() const;
};

/// The time to create plans, and the speed-up by a second thread.
struct FirstCall {
  std::string isa;
  std::string error;                   // "" or why there are no figures
  double create_microseconds = 0;      // a plan for kTinyShape, once its code is cached
  double pack_gb_per_s = 0;            // for a plan of kThreadsShape: bytes of weights over its creation time
  double speed_up_of_two_threads = 0;  // kThreadsShape; 0 = one CPU only
};
inline constexpr Shape kTinyShape = {1, 16, 64};

struct PeakResult {
  std::string name;
  double gops = 0;
};

struct ReadResult {
  int64_t bytes = 0;
  std::string level;
  double gb_per_s = 0;
};

struct PeerVersion {
  std::string name, version;
  double call_microseconds = 0;  // Peer::CallMicroseconds()
};

struct Results {
  support::Origin origin;
  std::string suite, weights;
  support::Machine machine;
  std::vector<support::IsaStatus> isas;
  std::vector<PeakResult> peaks;
  std::vector<ReadResult> reads;
  std::vector<PeerVersion> peers;
  std::vector<Row> rows;  // by ISA, weakest first
  std::vector<FirstCall> first_calls;
  int64_t not_measured = 0;  // rows and first calls that a deadline prevented

  /// Whether every case of intact was timed.
  bool AllRight() const;
  /// The ISAs that have rows, weakest first.
  std::vector<std::string> Isas() const;
  /// Rows of one ISA.
  std::vector<Row> RowsOf(std::string_view isa) const;
};

// NOLINTBEGIN(readability-identifier-naming): nlohmann::json finds them by these names
void to_json(nlohmann::json& json, const Timing& timing);
void from_json(const nlohmann::json& json, Timing& timing);
void to_json(nlohmann::json& json, const Extents& extents);
void from_json(const nlohmann::json& json, Extents& extents);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Geometry, height, width, c_in, c_out, kernel, stride, groups, batch,
                                   transposed, dilation)
void to_json(nlohmann::json& json, const Blocks& blocks);
void from_json(const nlohmann::json& json, Blocks& blocks);
void to_json(nlohmann::json& json, const Batch& batch);
void from_json(const nlohmann::json& json, Batch& batch);
void to_json(nlohmann::json& json, const Shape& shape);
void from_json(const nlohmann::json& json, Shape& shape);
// NOLINTEND(readability-identifier-naming)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Row, isa, shape, times, peak, peak_gops, read_gb_per_s, timings)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FirstCall, isa, error, create_microseconds, pack_gb_per_s,
                                   speed_up_of_two_threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeakResult, name, gops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReadResult, bytes, level, gb_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeerVersion, name, version, call_microseconds)

double Gops(const Row& row, const Timing& timing);
/// The shortest time by the roofline: the operations at the peak, or reading the weights once, whichever
/// takes longer.
double RoofMicroseconds(const Row& row);
bool IsMemoryBound(const Row& row);
/// RoofMicroseconds() over the measured time.
double OfRoof(const Row& row, const Timing& timing);
/// The first format that a shape is measured with. Reports show the share of the roof, and draw pictures, for
/// this format.
Format MainFormat(const Row& row);
/// The static format with scaled outputs.
Format ScaledFormat(const Row& row);
/// The format of intact that is compared with a peer's `format`. It is `format`, except for kFloat. A float
/// peer is compared with kByTensor for dynamic GEMMs (float input and output), and with ScaledFormat() for
/// other shapes.
Format OursBeside(const Row& row, const Format& format);
/// The time of contender `other` over intact's time; nothing unless both were timed.
std::optional<double> SpeedUp(const Row& row, std::string_view other, const Format& format);
/// The extra time of intact's `format` over its main format, as a fraction.
std::optional<double> CostOf(const Row& row, const Format& format);
/// Operations per byte of A (or the input), B and s32 C, each moved once: the roofline's abscissa.
double Intensity(const Row& row);

/// Nothing if `values` is empty.
std::optional<double> GeometricMean(std::span<const double> values);

/// Rows that get a geometric mean.
struct Group {
  std::string name;
  std::vector<Row> rows;
};
/// The groups that have rows: "gemm", "dynamic", "blocks", "batch", "dense", "grouped", "depthwise" and "transposed".
/// "first layer" and "other dense" are added if "dense" has both. "all" is added for a network of several
/// groups.
std::vector<Group> GroupsOf(std::span<const Row> rows);

/// The number of layers of a network, repeated layers included; 0 if `rows` are not of a network.
int Layers(std::span<const Row> rows);
/// The contenders that intact is compared with in `rows`: its own saturating kernels, then peers.
std::vector<std::string> OthersOf(std::span<const Row> rows);
/// Whether any of `rows` has a timing of `contender` in `format`.
bool HasTiming(std::span<const Row> rows, std::string_view contender, const Format& format);
/// The smallest SpeedUp() of the rows; nothing if no row has one.
std::optional<double> WorstOf(std::span<const Row> rows, std::string_view other, const Format& format);
/// The sum of the rows' times in milliseconds, each multiplied by Row::times; nothing if a row was not timed.
std::optional<double> NetworkMilliseconds(std::span<const Row> rows, std::string_view contender,
                                          const Format& format);

}  // namespace intact::bench
#endif  // INTACT_BENCH_REPORT_RESULTS_H_

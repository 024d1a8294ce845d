// The results as a table for the terminal, as an HTML page with a roofline, and as JSON.
//
// bench.json, schema version 4. Times are medians of repeated turns (measure.h). GOPS are 2·M·N·K per
// nanosecond.
//
//   schema           "intact-bench"; schema_version 4; version of intact; suite; weights (their
//                    distribution; "trained": drawn to resemble each layer's weights, networks.h)
//   machine, isas[]  as in report.json (verify/report/report.h)
//   peaks[]          registers-only instruction peaks: name, gops
//   reads[]          read bandwidth of one core: bytes (of the buffer), level (where it fits: "L1", "L2",
//                    "L3", "memory"; "L3 or memory" if L3's size is unknown), gb_per_s
//   peers[]          name, version, call_microseconds (of a call alone, which each run includes; 0 if the
//                    library is called directly)
//   not_measured     how many rows and first calls --time prevented. If any, times of all rows is 1, and sums is empty
//   rows[]           one shape on one ISA; its figures are measured together, in turns: isa, m, n, k, conv
//                    (null for a GEMM; else height and width of the input, c_in, c_out, kernel and stride
//                    ([height, width] each), groups, batch, transposed, dilation; m, n and k are then output
//                    pixels, output channels, taps × channels of a group), batch (null, or for GEMMs with
//                    runtime B: items, b_type, b_order ("kn", or "nk" if each B is N×K); a peer that takes no
//                    u8 B gets an s8 B), dynamic (whether it is a GEMM of float32 activations), blocks
//                    (null, or for a GEMM of float32 activations with weights in blocks: b_type, depth), times
//                    (occurrences in the suite's network), peak (the ISA's instruction sequence), peak_gops,
//                    read_gb_per_s (buffer as large as the weights), memory_bound (reading the weights takes
//                    longer than the operations at the peak), intensity (operations per byte of u8 A, B and
//                    s32 C), fused_cost (extra time of intact's scaled output over its s32 output, as a
//                    fraction of the s32 time; the scaled output is f32 for a batch, else u8; null if not
//                    timed, dynamic or blocks), timings[]: contender ("intact"; "saturating": intact in that mode; or
//                    a peer's name, with its kernels if it has several), quantization ("static": A is u8; "tensor", "row", "block": A is float32
//                    and quantized in the run, with one scale or one for each row, or one for each block of a
//                    row; "none": computed in float),
//                    c_type ("s32"; "u8": per-channel scales and ReLU; "f32": scales; a convolution in float
//                    has ReLU), implementation (a name from the contender; intact names the kernel for many
//                    rows), result ("exact"; "saturates": equal to the maddubs model, not to the exact
//                    result; "near": a peer with blocks is near the float64 product of its own integers; else
//                    why it is not timed), microseconds (null if not timed), spread
//                    (interquartile range over median), over_static (for "tensor" and "row": the time over
//                    the contender's "static" time with the same c_type, median of the turns' ratios; else
//                    null), gops, of_peak, of_bandwidth (weights' bytes per second over read_gb_per_s),
//                    speed_up (peers and "saturating" only: intact's speed over the contender's in the same
//                    format; if quantization is "none", see OursBeside() in results.h)
//   first_calls[]    per ISA, exact mode, s32 output: isa, error ("" or why there are no figures),
//                    create_microseconds (a plan of N = 16, K = 64, its code cached), pack_gb_per_s (weights'
//                    bytes over the time to create a plan of N = K = 1024), speed_up_of_two_threads
//                    (1024×1024×1024; 0 on one CPU)
//   means[]          geometric means of speed_up: isa, kind (of the rows: "gemm", "dynamic", "blocks", "batch",
//                    "dense", "first layer", "other dense", "grouped", "depthwise", "transposed"; for a
//                    network also "all"), contender, quantization, c_type, rows (how many have a speed_up),
//                    speed_up, worst (the smallest)
//   sums[]           the time of a network (each layer times its occurrences): isa, contender, quantization,
//                    c_type, layers, milliseconds
#ifndef INTACT_BENCH_REPORT_REPORT_H_
#define INTACT_BENCH_REPORT_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "bench/report/results.h"

namespace intact::bench {

/// A line that says what was measured.
std::string Title(const Results& results);

nlohmann::ordered_json ToJson(const Results& results);
std::string ToText(const Results& results);
std::string ToHtml(const Results& results);

}  // namespace intact::bench
#endif  // INTACT_BENCH_REPORT_REPORT_H_
